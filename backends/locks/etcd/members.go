package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/loglimit"
)

const probeEvery = time.Second

// statuses are what the last probes told of the members.
type statuses struct {
	mu    sync.Mutex
	all   []locks.NodeStatus
	lines []loglimit.Limit // about each member
}

// Nodes implements locks.Inspector.
func (s *Store) Nodes() []locks.NodeStatus {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return slices.Clone(s.status.all)
}

// voting is how many members take part.
func (s *Store) voting() (n int) {
	for _, is := range s.Nodes() {
		if is.Ready() {
			n++
		}
	}
	return n
}

// Run implements locks.Store: it follows releases, and looks at the members.
func (s *Store) Run(ctx context.Context) {
	for _, source := range s.host.Lines.Listen() {
		s.group.Go(func() { s.follow(ctx, source) })
	}
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		s.probeAll(ctx)
		s.leaveFailed()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

// probeAll asks every member how it is.
func (s *Store) probeAll(ctx context.Context) []statusResponse {
	all := make([]statusResponse, len(s.opts.Members))
	var asked sync.WaitGroup
	for i := range all {
		asked.Go(func() {
			took, err := s.probe(ctx, i, &all[i])
			if ctx.Err() == nil {
				s.noteStatus(i, &all[i], err, took)
			}
		})
	}
	asked.Wait()
	told := map[string]int{}
	for _, r := range all {
		if id := r.cluster(); id != "" {
			if told[id]++; told[id] == s.need() {
				s.client.cluster.Store(id)
			}
		}
	}
	return all
}

// probe asks a member how it is, which it tells everybody, and whether it shows this user a key.
func (s *Store) probe(ctx context.Context, i int, r *statusResponse) (took time.Duration, err error) {
	began := s.Now()
	err = s.client.try(ctx, i, pathStatus, []byte("{}"), r)
	if took = s.Now() - began; err != nil || !r.hasLeader() || r.Learner {
		return took, err
	}
	shown := s.client.try(ctx, i, pathRange, encode(rangeRequest{Key: s.keys().floor(), Own: true}), &rangeResponse{})
	if refused := (*refusal)(nil); errors.As(shown, &refused) {
		err = shown
	}
	return took, err
}

// noteStatus keeps what a member has said, and logs a change.
func (s *Store) noteStatus(i int, r *statusResponse, err error, took time.Duration) {
	n := locks.NodeStatus{Address: s.opts.Members[i], Etcd: true, State: locks.NodeVoting, Up: err == nil, Took: took, RunID: r.MemberID}
	switch refused := (*refusal)(nil); {
	case errors.As(err, &refused):
		n.State, n.Up, n.Err = locks.NodeRefusing, true, err
	case err != nil:
		n.State, n.Err = locks.NodeDown, err
	case s.client.foreign(r.cluster()):
		n.State, n.Err = locks.NodeRefusing, errForeign
	case !r.hasLeader():
		n.State, n.Err = locks.NodeRefusing, errors.New("no leader")
	case r.Learner:
		n.State, n.Err = locks.NodeRefusing, errors.New("a learner")
	case len(r.Errors) > 0:
		n.State, n.Err = locks.NodeRefusing, fmt.Errorf("%.200s", strings.Join(r.Errors, ", "))
	default:
		s.floor.mu.Lock()
		n.Largest = s.floor.base + r.Revision
		s.floor.mu.Unlock()
	}
	s.status.mu.Lock()
	before := s.status.all[i]
	if n.Since = before.Since; n.State != before.State {
		n.Since = time.Now()
	}
	s.status.all[i] = n
	leftOut, due := s.status.lines[i].State(n.State != before.State, time.Now())
	s.status.mu.Unlock()
	if line := []slog.Attr{slog.String("member", n.Address)}; due && n.Ready() {
		s.opts.Log.LogAttrs(s.ctx, loglimit.Level(leftOut), "etcd member takes part", loglimit.With(line, leftOut)...)
	} else if due {
		s.opts.Log.LogAttrs(s.ctx, slog.LevelWarn, "etcd member does not take part", loglimit.With(append(line, slog.String("state", n.Brief())), leftOut)...)
	}
}

// leaveFailed has another member asked first, if the one that is does not take part.
func (s *Store) leaveFailed() {
	nodes := s.Nodes()
	using := s.client.using.Load()
	if i := slices.IndexFunc(nodes, func(n locks.NodeStatus) bool { return n.Ready() }); i >= 0 && !nodes[using].Ready() {
		s.client.using.CompareAndSwap(using, int64(i))
	}
}

// Check implements locks.Inspector: members of one cluster, each named once.
func (s *Store) Check(ctx context.Context) error {
	all := s.probeAll(ctx)
	s.leaveFailed()
	for i, a := range all {
		for j, b := range all[:i] {
			switch {
			case a.MemberID == "" || b.MemberID == "":
			case a.ClusterID != b.ClusterID:
				return fmt.Errorf("%s and %s are of different etcd clusters", s.opts.Members[j], s.opts.Members[i])
			case a.MemberID == b.MemberID:
				return fmt.Errorf("%s and %s are the same member of etcd", s.opts.Members[j], s.opts.Members[i])
			}
		}
	}
	return nil
}

// Init implements locks.Inspector.
func (s *Store) Init(context.Context) error {
	return errors.New("etcd knows by itself which members are new: there is nothing to declare")
}

// need is how many members must agree on everything.
func (s *Store) need() int { return len(s.opts.Members)/2 + 1 }
