// Package topology answers who is master of what: which server of an upstream, or of
// a lock node, holds the data now, and which are replicas in sync.
//
// A [Watcher] probes the servers that a URL names, and those that these name, again
// and again: standalone servers, replicated ones, sentinels, a Cluster. Each probe
// gives a [Topology], an immutable value. A probe that nobody answers changes
// nothing: the last Topology stays in force.
//
// Goroutines: Watcher.Run probes on its caller's goroutine; it starts one for each
// sentinel's +switch-master subscription, and returns when these have ended.
package topology

import (
	"slices"

	"github.com/lockproxy/lockproxy/backends"
)

// A Topology is where the nodes of one upstream are, as last seen. It is immutable.
type Topology struct {
	// Shards are the parts of the data. A standalone, replicated or Sentinel upstream
	// has one; a Cluster's are in the order of their first slots.
	Shards []Shard
	// Slots is the index in Shards of each of a Cluster's [SlotCount] slots, or
	// NoShard; nil: not a Cluster.
	Slots []uint16
}

// A Shard is one part of the data and the servers that have it.
type Shard struct {
	Master   *backends.Server   // nil: there is none now
	Replicas []*backends.Server // in sync and reachable, as far as known; may be empty
}

const (
	// SlotCount is the number of hash slots of a Redis Cluster.
	SlotCount = 16384
	// NoShard is the entry in Topology.Slots of a slot that no node serves.
	NoShard = 0xFFFF
)

// Equal reports whether t and o have the same shards and slots. Either may be nil,
// which equals only nil.
func (t *Topology) Equal(o *Topology) bool {
	if t == nil || o == nil {
		return t == o
	}
	return slices.Equal(t.Slots, o.Slots) && (t.Slots == nil) == (o.Slots == nil) &&
		slices.EqualFunc(t.Shards, o.Shards, func(a, b Shard) bool {
			return sameServer(a.Master, b.Master) && slices.EqualFunc(a.Replicas, b.Replicas, sameServer)
		})
}

func sameServer(a, b *backends.Server) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.String() == b.String()
}
