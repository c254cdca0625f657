package admin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// TestViews_AdoptedOwners: the page shows the value or field of an adopted lock, and which it is, wherever it shows an owner.
func TestViews_AdoptedOwners(t *testing.T) {
	for kind, owner := range map[string]string{"string": locks.NewAdoptedString(&locks.RandSource{}, "token-1"), "hash": locks.NewAdoptedHash("token-1"), "sorted set": locks.NewAdoptedSorted(&locks.RandSource{}, "token-1"), "": "token-1"} {
		k := locks.Key{Name: "job"}
		h := locks.Holding{Key: k, Owner: owner, Fence: 7}
		row := viewLock(h, 3)
		if row.Owner.Text != "token-1" || row.Adopted != kind {
			t.Errorf("the row of %q: %+v", owner, row)
		}
		d := viewDetail(k, locks.Inspection{Held: true, Holding: h, Nodes: []locks.NodeView{{State: locks.NodeVoting, Owner: owner, Fence: 7}}}, []locks.Waiter{{Owner: owner}}, newTimelines(), nil)
		if d.Owner != "token-1" || d.Adopted != kind || d.Nodes[0].Owner != "token-1" || d.Nodes[0].Adopted != kind || d.Nodes[0].Says != "held" || d.Waiters[0].Owner.Text != "token-1" {
			t.Errorf("all about the lock of %q: %+v", owner, d)
		}
		q := viewQueue(locks.Queue{Key: k, Holder: owner, Next: owner})
		if q.Holder.Text != "token-1" || q.Next.Text != "token-1" {
			t.Errorf("the queue behind %q: %+v", owner, q)
		}
		text, err := json.Marshal([]any{row, d, q})
		if err != nil || strings.Contains(string(text), "lpa") || kind == "" && strings.Contains(string(text), "adopted") {
			t.Errorf("of %q: %v, %s", owner, err, text)
		}
	}
}

func TestSummarize(t *testing.T) {
	nodes := func(votes string) (all []nodeView) {
		for _, v := range votes {
			all = append(all, nodeView{Votes: v == '+'})
		}
		return all
	}
	bad := []checkView{{Of: "clients", Says: "accepting", OK: true}, {Of: "upstream", Says: "timeout"}, {Of: "lock nodes", Says: "few"}}
	for _, c := range []struct {
		votes  string
		health []checkView
		want   summaryView
	}{
		{"+++++", bad[:1], summaryView{"good", "Ready: all 5 lock nodes vote, 3 must agree."}},
		{"+", nil, summaryView{"good", "Ready: all 1 lock nodes vote, 1 must agree."}},
		{"++-++", bad[:1], summaryView{"warn", "Ready, but 4 of 5 lock nodes vote, 3 must agree. Locks go on; 1 more may fail."}},
		{"--+++", nil, summaryView{"warn", "Ready, but 3 of 5 lock nodes vote, 3 must agree. Locks go on; no other node may fail."}},
		{"--++-", bad, summaryView{"bad", "No quorum: 2 of 5 lock nodes vote, 3 must agree. No lock can be taken or renewed."}},
		{"+++", bad, summaryView{"bad", "Not ready: upstream timeout; lock nodes few."}},
	} {
		v := stateView{Nodes: nodes(c.votes), Needed: len(c.votes)/2 + 1, Health: c.health}
		if got := summarize(v); got != c.want {
			t.Errorf("%s, %v: %v", c.votes, c.health, got)
		}
	}
}
