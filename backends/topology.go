package backends

import (
	"net"
	"slices"
	"strings"
)

// A Topology is where the nodes of one upstream are, as last seen. It is immutable.
type Topology struct {
	// Shards are the parts of the data. A standalone, replicated or Sentinel upstream
	// has one; a Cluster's are in the order of their first slots.
	Shards []Shard
	// Slots says for each of a Cluster's [SlotCount] slots which of Shards serves it, or
	// NoShard; nil: not a Cluster.
	Slots []uint16
}

// A Shard is one part of the data, and who keeps it.
type Shard struct {
	Master   *Server   // nil: there is none now
	Replicas []*Server // in sync and reachable, as far as known; may be empty
}

const (
	// SlotCount is how many hash slots a Redis Cluster has.
	SlotCount = 16384
	// NoShard is in Topology.Slots where no node serves the slot.
	NoShard = 0xFFFF
)

// Equal says that both say the same. Either may be nil, which is like nothing else.
func (t *Topology) Equal(o *Topology) bool {
	if t == nil || o == nil {
		return t == o
	}
	return slices.Equal(t.Slots, o.Slots) && (t.Slots == nil) == (o.Slots == nil) &&
		slices.EqualFunc(t.Shards, o.Shards, func(a, b Shard) bool {
			return sameServer(a.Master, b.Master) && slices.EqualFunc(a.Replicas, b.Replicas, sameServer)
		})
}

func sameServer(a, b *Server) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.String() == b.String()
}

// At is the server at another host:port that is spoken to in the same way: with the
// same credentials, TLS and timeouts.
func (s *Server) At(addr string) *Server {
	opt := s.opt
	opt.InitAddress = []string{addr}
	opt.Sentinel.MasterSet = ""
	if strings.Contains(s.name, "/") {
		opt.DialCtxFn = nil // which dials a socket
	}
	if host, _, err := net.SplitHostPort(addr); err == nil && opt.TLSConfig != nil {
		opt.TLSConfig = opt.TLSConfig.Clone()
		opt.TLSConfig.ServerName = host
	}
	return &Server{opt: opt, name: addr}
}
