package upstream

import (
	"slices"

	"github.com/lockproxy/lockproxy/backends/topology"
)

// ReadFrom tells which nodes commands that only read may be sent to.
type ReadFrom uint8

const (
	FromMaster  ReadFrom = iota // the master alone
	FromReplica                 // a replica, or the master if there is none
	FromAny                     // any of them
)

// A View is which pool serves which slot, at one time. It is immutable.
type View struct {
	shards []shard
	slots  []uint16 // index in shards, or topology.NoShard; nil: not a Cluster
	read   ReadFrom
	none   *Pool // of no node, for FirstMaster
}

type shard struct {
	master   *Pool // nil in a Cluster if there is none
	replicas []*Pool
}

// Cluster reports whether keys belong to slots.
func (v *View) Cluster() bool { return v.slots != nil }

// FirstMaster is the pool for commands that belong to no slot: the master, or the
// first one of a Cluster. It is never nil; without a master, its calls fail.
func (v *View) FirstMaster() *Pool {
	for _, s := range v.shards {
		if s.master != nil {
			return s.master
		}
	}
	return v.none
}

// Master is the pool of the master that serves a slot; nil if none does.
func (v *View) Master(slot int) *Pool {
	if s := v.shardOf(slot); s != nil {
		return s.master
	}
	return nil
}

// Reader is the pool of a node for commands that only read the slot; nil if no node
// serves it. Calls with the same hint give the same node while nothing changes.
func (v *View) Reader(slot int, hint uint32) *Pool {
	s := v.shardOf(slot)
	if s == nil {
		return nil
	}
	n := uint32(len(s.replicas))
	if v.read == FromAny && hint%(n+1) == n {
		return s.master
	}
	for i := range n {
		if p := s.replicas[(hint+i)%n]; p.Up() {
			return p
		}
	}
	return s.master
}

// shardOf is the shard that serves a slot; nil if none does. Without a Cluster there
// is one shard.
func (v *View) shardOf(slot int) *shard {
	i := 0
	if v.slots != nil {
		i = int(v.slots[slot])
	}
	if i >= len(v.shards) {
		return nil
	}
	return &v.shards[i]
}

// ReadsReplicas reports whether Reader may give other nodes than the master.
func (v *View) ReadsReplicas() bool { return v.read != FromMaster }

// Masters are the pools of all known masters, in the order of their first slots.
func (v *View) Masters() []*Pool {
	var all []*Pool
	for _, s := range v.shards {
		if s.master != nil && !slices.Contains(all, s.master) {
			all = append(all, s.master)
		}
	}
	return all
}

// FirstSlots are the lowest slots of all masters that serve slots, in order.
func (v *View) FirstSlots() (slots []int) {
	seen := make([]bool, len(v.shards))
	for slot, i := range v.slots {
		if i != topology.NoShard && !seen[i] {
			seen[i] = true
			slots = append(slots, slot)
		}
	}
	return slots
}

// withMaster is v with master as the one that serves slot.
func (v *View) withMaster(slot int, master *Pool) *View {
	w := &View{shards: v.shards, slots: slices.Clone(v.slots), read: v.read, none: v.none}
	i := slices.IndexFunc(w.shards, func(s shard) bool { return s.master == master })
	if i < 0 {
		i = len(w.shards)
		w.shards = append(slices.Clone(w.shards), shard{master: master})
	}
	w.slots[slot] = uint16(i)
	return w
}
