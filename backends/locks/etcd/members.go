package etcd

import (
	"context"
	"slices"
	"sync"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// statuses are what the last probes told of the members.
type statuses struct {
	mu  sync.Mutex
	all []locks.NodeStatus
}

// Nodes implements locks.Inspector.
func (s *Store) Nodes() []locks.NodeStatus {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return slices.Clone(s.status.all)
}

// Run implements locks.Store.
func (s *Store) Run(ctx context.Context) { <-ctx.Done() }
