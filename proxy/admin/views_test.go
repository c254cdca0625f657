package admin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestViews_Readers: a name that is only read is shown so, with who reads it and for how long; beside a writer its readers are
// counted. A node where it is read does not say that it is free.
func TestViews_Readers(t *testing.T) {
	k := locks.Key{Name: "job"}
	read := locks.Holding{Key: k, Readers: 60, Remaining: 2 * time.Second}
	held := locks.Holding{Key: k, Readers: 1, Owner: "me", Fence: 7}
	if row := viewLock(read, 3); row.Readers != 60 || !row.Read || row.Remaining != 2000 {
		t.Errorf("the row of a name that is read: %+v", row)
	}
	if row := viewLock(held, 3); row.Readers != 1 || row.Read || row.Owner.Text != "me" {
		t.Errorf("the row of a writer who reads: %+v", row)
	}
	in := locks.Inspection{Holding: read, Nodes: []locks.NodeView{{State: locks.NodeVoting, Readers: 60}, {State: locks.NodeVoting}}}
	in.Readers = slices.Repeat([]locks.ReadBy{{Owner: "r1", Remaining: 1500 * time.Millisecond}}, 60)
	d := viewDetail(k, in, []locks.Waiter{{Owner: "w"}, {Owner: "r2", Shared: true}, {Owner: "p", Shared: true, Permits: 3}}, newTimelines(), nil)
	if d.Waiters[0].Shared || !d.Waiters[1].Shared || d.Waiters[1].Permits != 0 || d.Waiters[2].Permits != 3 {
		t.Errorf("who waits: %+v", d.Waiters)
	}
	if d.Held || d.Reading != 60 || len(d.Readers) != detailReaders || d.Readers[0] != (readerView{Owner: short("r1"), Left: 1500}) {
		t.Errorf("all about it: %+v", d)
	}
	if d.Nodes[0].Says != "shared by 60" || d.Nodes[1].Says != "free" {
		t.Errorf("the nodes say %q and %q", d.Nodes[0].Says, d.Nodes[1].Says)
	}
	if text, err := json.Marshal(viewDetail(k, locks.Inspection{Need: 1, Nodes: in.Nodes[1:]}, nil, newTimelines(), nil)); err != nil || !strings.Contains(string(text), `"readers":[],"reading":0`) {
		t.Errorf("nobody reads: %v, %s", err, text)
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
