package topology

import (
	"strings"
	"testing"
)

// Nodes are a, b, c; view is the view of self in which owner serves slots 0-9.
func TestMerge(t *testing.T) {
	view := func(self, owner string, epoch uint64) *nodeView {
		return &nodeView{self: self, epochs: map[string]uint64{owner: epoch},
			ranges: []slotRange{{first: 0, last: 9, master: masterNode{owner, owner + ":1"}, replicas: []string{self + "r"}}}}
	}
	blank := &nodeView{self: "a", slotless: []masterNode{{"z", "z:1"}}}
	tests := []struct {
		name  string
		views []*nodeView
		want  string // the master of slots 0-9, and its replicas
	}{
		{"one", []*nodeView{view("b", "a", 1)}, "a:1 br"},
		{"its own word on replicas", []*nodeView{view("b", "a", 1), view("a", "a", 1)}, "a:1 ar"},
		{"the higher epoch", []*nodeView{view("a", "a", 1), view("c", "a", 1), view("b", "b", 2)}, "b:1 br"},
		{"it says it does not", []*nodeView{view("c", "a", 3), view("a", "b", 2)}, "b:1 ar"},
		{"no epochs: more of them", []*nodeView{view("", "b", 0), view("", "a", 0), view("", "a", 0)}, "a:1 r"},
		{"nobody", []*nodeView{blank}, ""},
	}
	for _, tt := range tests {
		m := merge(tt.views)
		got := ""
		if i := m.slots[0]; i != NoShard {
			got = m.shards[i].master.addr + " " + strings.Join(m.shards[i].replicas, " ")
		}
		if got != tt.want || m.slots[10] != NoShard {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	reset := view("b", "a", 1)
	reset.slotless = []masterNode{{"a'", "a:1"}, {"z'", "z:1"}}
	if m := merge([]*nodeView{reset, blank}); len(m.shards) != 2 {
		t.Errorf("nodes under two ids: %v", m.shards)
	}
	if m := merge([]*nodeView{blank}); len(m.shards) != 1 || m.shards[0].master.addr != "z:1" {
		t.Errorf("a master without slots: %v", m.shards)
	}
}
