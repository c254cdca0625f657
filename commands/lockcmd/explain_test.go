package lockcmd

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

var oneWaiter = []locks.Waiter{{Owner: "you", Info: "me too", Client: "h:1", Waiting: time.Second, Left: 2 * time.Second}}

func TestExplain(t *testing.T) {
	voting := func(address, owner string, fence int64, left time.Duration) locks.NodeView {
		return locks.NodeView{Address: address, State: locks.NodeVoting, Owner: owner, Fence: fence, Remaining: left}
	}
	free := []locks.NodeView{voting("n1", "", 6, 0), voting("n2", "", 6, 0), voting("n3", "", 6, 0)}
	held := []locks.NodeView{
		voting("n1", "me", 7, 27900*time.Millisecond), voting("n2", "me", 7, 28*time.Second),
		{Address: "n3", State: locks.NodeQuarantine, Left: 41 * time.Second, Err: errors.New("quarantine for 41s")},
	}
	held[1].Reinstated = true
	copies, doubts := slices.Clone(held), slices.Clone(free)
	copies[2].Copies = true
	doubts[2] = locks.NodeView{Address: "n3", State: locks.NodeUnknown, Doubt: 39 * time.Minute, Err: &locks.NodeError{Node: "n3", Err: errors.New("forgot")}}
	doubts[1] = copies[2]
	split := []locks.NodeView{voting("n1", "me", 7, 5*time.Second), voting("n2", "you", 8, 400*time.Millisecond), voting("n3", "they", 8, 3*time.Second)}
	short := []locks.NodeView{
		voting("n1", "me", 7, time.Second), held[2],
		{Address: "n3", State: locks.NodeUnknown, Err: &locks.NodeError{Node: "n3", Err: errors.New("timeout")}},
	}
	full := slices.Clone(held[:2])
	since := time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC)
	for i := range full {
		full[i].State, full[i].Since, full[i].Err = locks.NodeRefusing, since, &locks.NodeError{Node: full[i].Address, Err: errors.New("OOM")}
	}
	full = append(full, locks.NodeView{Address: "n3", State: locks.NodeDown, Since: since, Err: &locks.NodeError{Node: "n3", Err: errors.New("connection refused")}})
	fullFree := slices.Clone(full)
	fullFree[0].Owner, fullFree[1].Owner = "", ""
	has := locks.Holding{Key: locks.Key{Name: "job"}, Owner: "me", Fence: 7, Holds: 2, Remaining: 27900 * time.Millisecond, Held: 125 * time.Second, Info: "nightly", Votes: 2}
	kept := has
	kept.Session, kept.Client = true, "h:7"
	there := has
	there.DB = 3
	hidden := func(string) string { return "" }
	const hiddenReader = "an owner whom only admin users may see"
	readers := []locks.ReadBy{{Owner: "r1", Remaining: 9 * time.Second}, {Owner: "r2", Remaining: 900 * time.Millisecond}}
	read := slices.Clone(free)
	heldAndRead := slices.Clone(held)
	read[0].Readers, read[1].Readers, heldAndRead[0].Readers = 2, 1, 1
	tests := []struct {
		name string
		e    explanation
		want string // lines that must be there, in this order
	}{
		{"free", explanation{Inspection: locks.Inspection{Nodes: free, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}},
			"job is free|3 of 3 nodes vote, 2 must agree:|  n1: free|  n3: free|nobody waits for it at this proxy; who waits at others is not known here|next: the first LOCK gets it"},
		{"held", explanation{Inspection: locks.Inspection{Nodes: held, Need: 2, Held: true, Holding: has, Each: []locks.HeldFor{
			{Taken: 125 * time.Second, Left: 900 * time.Millisecond}, {Taken: 2 * time.Second, Left: 28 * time.Second}}}},
			"job is held 2 times by me, fence 7, for 2m5s; 2 nodes agree|its holds: taken 2m5s ago, 900ms left; taken 2s ago, 28s left|its info: nightly|2 of 3 nodes vote, 2 must agree:|" +
				"  n1: held by me, fence 7, 27.9s left|  n2: held by me, fence 7, 28s left, put back by a renewal|" +
				"  n3: does not vote for another 41s: it may have forgotten leases that still run|" +
				"next: free in at most 27.9s, unless its owner or the proxy of its SESSION renews it; at once when it is unlocked"},
		{"held, and a node copies", explanation{Inspection: locks.Inspection{Nodes: copies, Need: 2, Held: true, Holding: has}},
			"  n3: does not vote: it may have forgotten leases that still run, and first has to know what a majority of the others hold; it votes in seconds if these do, else in 41s|next: free in at most 27.9s, unless its owner or the proxy of its SESSION renews it; at once when it is unlocked"},
		{"in doubt", explanation{Inspection: locks.Inspection{Nodes: doubts, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}, noQuorum: true},
			"1 of 3 nodes vote, 2 must agree:|  n3: does not vote: forgot|next: NOQUORUM until 1 more node votes; enough vote about this name when it has been unlocked or taken away by FORCE, or in 39m0s"},
		{"held by somebody", explanation{Inspection: locks.Inspection{Nodes: held, Need: 2, Held: true, Holding: has}, visible: hidden},
			"job is held 2 times by an owner whom only admin users may see, fence 7, for 2m5s; 2 nodes agree|  n1: held by an owner whom only admin users may see, fence 7, 27.9s left"},
		{"renewed", explanation{Inspection: locks.Inspection{Nodes: held, Need: 2, Held: true, Holding: kept}},
			"next: this proxy renews it while its client at h:7 is connected; CLIENT KILL ADDR h:7 frees what that has"},
		{"renewed for somebody", explanation{Inspection: locks.Inspection{Nodes: held, Need: 2, Held: true, Holding: kept}, visible: hidden},
			"next: this proxy renews it while its client is connected"},
		{"in another database", explanation{Inspection: locks.Inspection{Nodes: held, Need: 2, Held: true, Holding: there}},
			"job of database 3 is held 2 times by me, fence 7, for 2m5s; 2 nodes agree"},
		{"split", explanation{Inspection: locks.Inspection{Nodes: split, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}},
			"job is not held: some nodes name an owner, but no majority does|  n2: held by you, fence 8, 400ms left|next: those who tried take back what they have got; free in at most 3s"},
		{"no quorum", explanation{Inspection: locks.Inspection{Nodes: short, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}, noQuorum: true},
			"whether job is held cannot be decided|1 of 3 nodes vote, 2 must agree:|  n3: does not vote: timeout|next: NOQUORUM until 1 more node votes; enough quarantines end in 41s, and if no other node comes back these vote within a minute after that"},
		{"held on full nodes", explanation{Inspection: locks.Inspection{Nodes: full, Need: 2, Held: true, Holding: kept}},
			"job is held 2 times by me, fence 7, for 2m5s; 2 nodes agree|0 of 3 nodes vote, 2 must agree:|" +
				"  n1: refuses (OOM) since 2026-03-01T02:30:00Z; there held by me, fence 7, 27.9s left|  n3: down (connection refused) since 2026-03-01T02:30:00Z|" +
				"next: free in at most 27.9s; who renews or wants it is answered NOQUORUM until 2 more nodes vote"},
		{"free on full nodes", explanation{Inspection: locks.Inspection{Nodes: fullFree, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}, waiters: oneWaiter},
			"job is free|0 of 3 nodes vote, 2 must agree:|  n2: refuses (OOM) since 2026-03-01T02:30:00Z|next: NOQUORUM until 2 more nodes vote"},
		{"read", explanation{Inspection: locks.Inspection{Nodes: read, Need: 2, Readers: readers, Holding: locks.Holding{Key: locks.Key{Name: "job"}, Readers: 2, Remaining: 9 * time.Second}}},
			"job is shared by r1 for 9s at most; r2 for 900ms at most|3 of 3 nodes vote, 2 must agree:|  n1: shared by 2 owners|  n2: shared by 1 owner|  n3: free|" +
				"next: others may read it or take a permit that is left, unless a writer waits; free for a writer in at most 9s, unless a lease is renewed"},
		{"read on too few nodes", explanation{Inspection: locks.Inspection{Nodes: read, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}},
			"job is not held: some nodes name an owner, but no majority does|  n1: shared by 2 owners"},
		{"waited for by a reader", explanation{Inspection: locks.Inspection{Nodes: held, Need: 2, Held: true, Holding: has}, waiters: []locks.Waiter{{Owner: "you", Waiting: time.Second, Left: 2 * time.Second, Shared: true}}},
			"1 waits for it at this proxy; who waits at others is not known here:|  1. you, to read, for 1s, gives up in 2s"},
		{"waited for by who wants a permit", explanation{Inspection: locks.Inspection{Nodes: read, Need: 2, Readers: readers}, waiters: []locks.Waiter{
			{Owner: "you", Client: "h:1", Waiting: time.Second, Left: 2 * time.Second, Shared: true, Permits: 2}, {Owner: "they", Waiting: time.Second, Left: 2 * time.Second, Shared: true, Permits: 1}}},
			"2 wait for it at this proxy; who waits at others is not known here:|  1. you at h:1, to take 1 of 2 permits, for 1s, gives up in 2s|  2. they, to take 1 of 1 permit, for 1s, gives up in 2s"},
		{"read by many", explanation{Inspection: locks.Inspection{Nodes: read, Need: 2, Readers: slices.Repeat(readers, 6), Holding: locks.Holding{Key: locks.Key{Name: "job"}, Readers: 12}}, visible: hidden},
			"job is shared by " + strings.Repeat(hiddenReader+" for 9s at most; "+hiddenReader+" for 900ms at most; ", 5) + "and 2 more"},
		{"read by its writer", explanation{Inspection: locks.Inspection{Nodes: heldAndRead, Need: 2, Held: true, Holding: has, Readers: []locks.ReadBy{{Owner: "me", Remaining: time.Second}}}},
			"job is held 2 times by me, fence 7, for 2m5s; 2 nodes agree|shared by me for 1s at most|  n1: held by me, fence 7, 27.9s left, shared by 1 owner|  n2: held by me, fence 7, 28s left, put back by a renewal"},
		{"waited for", explanation{Inspection: locks.Inspection{Nodes: free, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}, waiters: oneWaiter},
			"1 waits for it at this proxy; who waits at others is not known here:|  1. you at h:1, for 1s, gives up in 2s, its info: me too|next: the first who waits is about to take it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.e.visible == nil {
				tt.e.visible = func(owner string) string { return owner }
			}
			got := tt.e.lines()
			rest := got
			for want := range strings.SplitSeq(tt.want, "|") {
				for len(rest) > 0 && rest[0] != want {
					rest = rest[1:]
				}
				if len(rest) == 0 {
					t.Fatalf("no line %q in\n%s", want, strings.Join(got, "\n"))
				}
			}
			if tt.e.visible("x") == "" && strings.Contains(strings.Join(got, "\n"), "by me") {
				t.Error("an owner is shown")
			}
		})
	}
}

func TestQuoted(t *testing.T) {
	for _, tt := range []struct {
		in     string
		spaces bool
		want   string
	}{
		{"job:7", false, "job:7"}, {"a b", false, `"a b"`}, {"a b", true, "a b"}, {"a\r\nb", true, `"a\r\nb"`},
		{"\xff", false, `"\xff"`}, {`a"b`, false, `"a\"b"`}, {"", false, `""`}, {"\u202e", true, `"\u202e"`},
	} {
		if got := quoted(tt.in, tt.spaces); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestNodesHint(t *testing.T) {
	for n, want := range map[int]string{1: "fewer than three", 2: "fewer than three", 3: "", 4: "an even number", 5: ""} {
		if hint := nodesHint(make([]locks.NodeStatus, n)); !strings.HasPrefix(hint, want) || want == "" && hint != "" {
			t.Errorf("the hint for %d nodes: %q", n, hint)
		}
	}
	late := []locks.NodeStatus{{Address: "a", State: locks.NodeVoting, Took: lateAnswer}, {Address: "b", State: locks.NodeVoting, Took: lateAnswer - 1}, {Address: "c", State: locks.NodeDown, Took: lateAnswer}}
	if hint := nodesHint(late); !strings.HasPrefix(hint, "a took 100ms to answer: ") {
		t.Errorf("one of three is late: %q", hint)
	}
	for took, want := range map[time.Duration]string{499 * time.Millisecond: "", 500 * time.Millisecond: "a took 500ms to answer: votes that come after node-timeout, 500ms, do not count"} {
		set := locks.NodeStatus{Address: "a", State: locks.NodeVoting, Took: took, Timeout: 500 * time.Millisecond}
		if hint := nodesHint([]locks.NodeStatus{set, {Timeout: set.Timeout}, {Timeout: set.Timeout}}); hint != want {
			t.Errorf("with a node-timeout of 500 ms, an answer in %v: %q", took, hint)
		}
	}
	empty := []locks.NodeStatus{{State: locks.NodeNew}, {State: locks.NodeNew}, {State: locks.NodeNew}}
	if hint := nodesHint(empty); !strings.Contains(hint, "bootstrap strict") || !strings.Contains(hint, "lockproxy init") {
		t.Errorf("all nodes are empty: %q", hint)
	}
	empty[1].State = locks.NodeDown
	if hint := nodesHint(empty); hint != "" {
		t.Errorf("one of the empty nodes is down, and may not be empty: %q", hint)
	}
	if hint := nodesHint([]locks.NodeStatus{{Etcd: true}}); hint != "" {
		t.Errorf("an etcd of one member: %q", hint)
	}
}
