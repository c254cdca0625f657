package topology

import (
	"testing"
)

func TestTopologyEqual(t *testing.T) {
	one := func(url string, replicas ...string) *Topology {
		s := Shard{}
		if url != "" {
			s.Master = parse(t, url)
		}
		for _, r := range replicas {
			s.Replicas = append(s.Replicas, parse(t, r))
		}
		return &Topology{Shards: []Shard{s}}
	}
	cluster := one("a:1")
	cluster.Slots = make([]uint16, SlotCount)
	moved := one("a:1")
	moved.Slots = make([]uint16, SlotCount)
	moved.Slots[7] = NoShard
	empty := one("a:1")
	empty.Slots = []uint16{}
	tests := []struct {
		name string
		a, b *Topology
		want bool
	}{
		{"the same", one("a:1", "b:1"), one("redis://a:1", "b:1"), true},
		{"another master", one("a:1"), one("b:1"), false},
		{"no master", one("a:1"), one(""), false},
		{"both without", one(""), one(""), true},
		{"another replica", one("a:1", "b:1"), one("a:1", "c:1"), false},
		{"a replica less", one("a:1", "b:1"), one("a:1"), false},
		{"a Cluster", cluster, one("a:1"), false},
		{"an empty Cluster", empty, one("a:1"), false},
		{"a slot", cluster, moved, false},
		{"nothing", nil, one("a:1"), false},
	}
	for _, tt := range tests {
		if tt.a.Equal(tt.b) != tt.want || tt.b.Equal(tt.a) != tt.want {
			t.Errorf("%s: equal %v", tt.name, tt.a.Equal(tt.b))
		}
	}
}
