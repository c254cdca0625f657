package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// book is an Inspector of one lock, job, and what it was asked.
type book struct {
	held  bool
	asked []string
	err   error
}

var jobHeld = locks.Holding{
	Key: locks.Key{Name: "job"}, Owner: "me", Fence: 7, Holds: 2, Remaining: 1500500 * time.Microsecond, Held: 2 * time.Second,
	Info: "why", Votes: 2, Waiters: 1,
}

func (b *book) Inspect(_ context.Context, k locks.Key) (locks.Inspection, error) {
	b.asked = append(b.asked, fmt.Sprintf("inspect %d/%s", k.DB, k.Name))
	in := locks.Inspection{Need: 2, Holding: locks.Holding{Key: k}, Nodes: []locks.NodeView{
		{Address: "n1", State: locks.NodeVoting, Owner: "me", Fence: 7, Remaining: time.Second},
		{Address: "n2", State: locks.NodeVoting, Owner: "you", Fence: 8, Remaining: 2 * time.Second},
		{Address: "n3", Err: errors.New("timeout")},
	}}
	if in.Held = b.held && k.Name == "job"; in.Held {
		in.Holding = jobHeld
	}
	return in, b.err
}

func (b *book) List(_ context.Context, r locks.ListRequest) (locks.Listing, error) {
	b.asked = append(b.asked, fmt.Sprintf("list %d %q %d %q", r.DB, r.Match, r.Count, r.Cursor))
	return locks.Listing{Held: []locks.Holding{jobHeld}, Cursor: "1.0.5"}, b.err
}

func (b *book) Waiters(k locks.Key) []locks.Waiter {
	return []locks.Waiter{{Owner: "you", Info: "me too", Client: "h:1", Waiting: time.Second, Left: 2 * time.Second}}
}

func (b *book) Force(_ context.Context, k locks.Key) (locks.Holding, bool, error) {
	b.asked = append(b.asked, fmt.Sprintf("force %d/%s", k.DB, k.Name))
	return jobHeld, b.held, b.err
}

func (b *book) nodes() []locks.NodeStatus {
	return []locks.NodeStatus{
		{Address: "n1", Up: true, State: locks.NodeVoting, RunID: "r1", Largest: 9, Took: time.Millisecond, Queued: 3},
		{Address: "n2", Chosen: true, Up: true, State: locks.NodeQuarantine, Left: 41 * time.Second, Err: &locks.NodeError{Node: "n2", Err: errors.New("quarantine")}},
		{Address: "n3", Up: true, State: locks.NodeRefusing, Since: time.Now().Add(-7 * time.Hour), Err: &locks.NodeError{Node: "n3", Err: errors.New("OOM")}},
		{Address: "n4", State: locks.NodeDown, Err: &locks.NodeError{Node: "n4", Err: errors.New("timeout")}},
	}
}

// library is a stage with a book; admin says what the upstream answers of admin commands.
func library(t *testing.T, admin bool) (*book, *player) {
	t.Helper()
	b := &book{held: true}
	s := newStage(t, Options{Inspector: b, Nodes: b.nodes}, func(l *link, args []string) (string, bool) {
		if strings.Join(args, " ") == "ACL DRYRUN default PING" && !admin {
			return "-NOPERM this user has no permissions to run the 'acl|dryrun' command\r\n", true
		}
		return "", false
	})
	return b, s.enter(t)
}

// flat writes a reply with spaces for the ends of its lines.
func flat(reply string) string { return strings.ReplaceAll(reply, "\r\n", " ") }

const job2 = "$4 name $3 job $5 owner $%d %s $5 fence :7 $5 holds :2 $12 remaining-ms :1501 $7 held-ms :2000 $4 info $3 why $7 session $2 no $7 waiters :1 $5 votes :2 "

func TestLockctl_Replies(t *testing.T) {
	job := fmt.Sprintf(job2, 2, "me")
	nobody := fmt.Sprintf(job2, 0, "")
	tests := []struct {
		line, two, three string
	}{
		{"LOCKCTL INFO free", "*-1 ", "_ "},
		{"LOCKCTL INFO job",
			"*24 " + job + "$6 needed :2 $5 nodes *3 " +
				"*10 $7 address $2 n1 $4 says $4 held $5 owner $2 me $5 fence :7 $12 remaining-ms :1000 " +
				"*10 $7 address $2 n2 $4 says $21 held by another owner $5 owner $3 you $5 fence :8 $12 remaining-ms :2000 " +
				"*4 $7 address $2 n3 $4 says $7 timeout ",
			"%12 " + job + "$6 needed :2 $5 nodes *3 " +
				"%5 $7 address $2 n1 $4 says $4 held $5 owner $2 me $5 fence :7 $12 remaining-ms :1000 " +
				"%5 $7 address $2 n2 $4 says $21 held by another owner $5 owner $3 you $5 fence :8 $12 remaining-ms :2000 " +
				"%2 $7 address $2 n3 $4 says $7 timeout "},
		{"lockctl list match j* count 10 cursor 0",
			"*2 $5 1.0.5 *1 *20 " + job,
			"*2 $5 1.0.5 *1 %10 " + job},
		{"LOCKCTL WAITERS job",
			"*1 *12 $8 position :1 $10 waiting-ms :1000 $11 gives-up-ms :2000 $5 owner $3 you $4 info $6 me too $6 client $3 h:1 ",
			"*1 %6 $8 position :1 $10 waiting-ms :1000 $11 gives-up-ms :2000 $5 owner $3 you $4 info $6 me too $6 client $3 h:1 "},
		{"LOCKCTL FORCE job", "*20 " + job, "%10 " + job},
	}
	for _, tt := range tests {
		for proto, want := range []string{tt.two, tt.three} {
			b, p := library(t, true)
			p.do(t, fmt.Sprintf("HELLO %d", proto+2))
			p.until(t, "HELLO is answered", func() bool { return strings.Contains(p.text, "\r\n") })
			p.read = len(p.text)
			p.do(t, tt.line)
			p.until(t, "a reply", func() bool { return len(p.text) > p.read })
			if got := flat(p.text[p.read:]); got != want {
				t.Errorf("%s in protocol %d:\ngot  %s\nwant %s", tt.line, proto+2, got, want)
			}
			if tt.line == "lockctl list match j* count 10 cursor 0" && b.asked[0] != `list 0 "j*" 10 "0"` {
				t.Errorf("asked %q", b.asked)
			}
		}
	}
	for _, hidden := range []string{job, nobody} {
		b, p := library(t, hidden == job)
		b.held = true
		p.do(t, "LOCKCTL LIST")
		p.until(t, "a reply", func() bool { return strings.Contains(p.text, "votes\r\n:2\r\n") })
		if got := flat(p.text); got != "*2 $5 1.0.5 *1 *20 "+hidden {
			t.Errorf("got %s", got)
		}
	}
}

func TestLockctl_Nodes(t *testing.T) {
	_, p := library(t, false)
	p.do(t, "LOCKCTL NODES")
	p.until(t, "a reply", func() bool { return strings.Contains(p.text, "41000") })
	got := flat(p.text)
	for _, part := range []string{
		"*8 $6 voting :1 $6 needed :3 $4 hint $", "tolerates no more",
		"*4 *22 $7 address $2 n1 $4 kind $10 standalone $2 up $3 yes $5 state $6 voting $8 state-ms :0 $13 quarantine-ms :0 $5 error $0  $6 run-id $2 r1 $13 largest-fence :9 $14 answered-in-us :1000 $6 queued :3 ",
		"$4 kind $8 sentinel $2 up $3 yes $5 state $10 quarantine $8 state-ms :0 $13 quarantine-ms :41000 $5 error $10 quarantine ",
		"$7 address $2 n3 $4 kind $10 standalone $2 up $3 yes $5 state $13 refuses (OOM) $8 state-ms :252000",
		"$7 address $2 n4 $4 kind $10 standalone $2 up $2 no $5 state $14 down (timeout) $8 state-ms :0 ",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("got %s\nwithout %s", got, part)
		}
	}
	for n, want := range map[int]string{1: "fewer than three", 2: "fewer than three", 3: "", 4: "an even number", 5: ""} {
		if hint := nodesHint(n); !strings.HasPrefix(hint, want) || want == "" && hint != "" {
			t.Errorf("the hint for %d nodes: %q", n, hint)
		}
	}
}

func TestLockctl_Errors(t *testing.T) {
	tests := []struct{ line, want string }{
		{"LOCKCTL", "-ERR wrong number of arguments for 'lockctl' command; try LOCKCTL HELP"},
		{"LOCKCTL WHAT", "-ERR unknown subcommand 'WHAT'. Try LOCKCTL HELP."},
		{"LOCKCTL INFO", "-ERR wrong number of arguments for 'lockctl|info' command"},
		{"LOCKCTL INFO a b", "-ERR wrong number of arguments for 'lockctl|info' command"},
		{"LOCKCTL NODES x", "-ERR wrong number of arguments for 'lockctl|nodes' command"},
		{"LOCKCTL LIST COUNT 0", "-ERR COUNT must be a positive integer"},
		{"LOCKCTL LIST COUNT 99999999999", "-ERR COUNT must be a positive integer"},
		{"LOCKCTL LIST MATCH", "-ERR option MATCH needs a value; usage: " + listUsage},
		{"LOCKCTL LIST TYPE x", "-ERR unknown option 'TYPE'; usage: " + listUsage},
		{"LOCKCTL FORCE job", "-NOPERM this user has no permissions to run the 'lockctl|force' command"},
		{"LOCKCTL INFO " + strings.Repeat("n", locks.MaxName+1), "-ERR the name of a lock must have 1 to 65536 bytes"},
	}
	for _, tt := range tests {
		b, p := library(t, false)
		p.do(t, tt.line)
		p.want(t, tt.want+"\r\n")
		if len(b.asked) != 0 {
			t.Errorf("%.40s: asked %q", tt.line, b.asked)
		}
	}
	b, p := library(t, true)
	b.err = &locks.QuorumError{Nodes: 3, Need: 2, Got: 1}
	p.do(t, "LOCKCTL INFO job", "LOCKCTL LIST", "LOCKCTL FORCE job")
	p.want(t, strings.Repeat("-NOQUORUM 1 of 3 answered, 2 needed\r\n", 3))

	p = newStage(t, Options{}, nil).enter(t)
	p.do(t, "LOCKCTL NODES")
	p.want(t, "-ERR LOCKCTL is not served here\r\n")
}

// TestOwnersAreShownToThemselves: a connection sees what it took, though it may not see
// others'.
func TestLockctl_ShowsOwnOwner(t *testing.T) {
	b, p := library(t, false)
	p.implicit.add(locks.Grant{Key: locks.Key{Name: "job"}, Owner: "me", Fence: 7})
	p.do(t, "LOCKCTL INFO job")
	p.until(t, "a reply", func() bool { return strings.Contains(p.text, "timeout") })
	got := flat(p.text)
	if strings.Count(got, "$5 owner $2 me ") != 2 || !strings.Contains(got, "$5 owner $0  $5 fence :8") || len(b.asked) != 1 {
		t.Errorf("got %s", got)
	}
}

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
	kept.Session = true
	hidden := func(string) string { return "" }
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
				"next: free in at most 27.9s, unless its owner renews it; at once when it is unlocked"},
		{"held by somebody", explanation{Inspection: locks.Inspection{Nodes: held, Need: 2, Held: true, Holding: has}, visible: hidden},
			"job is held 2 times by an owner whom only admin users may see, fence 7, for 2m5s; 2 nodes agree|  n1: held by an owner whom only admin users may see, fence 7, 27.9s left"},
		{"renewed", explanation{Inspection: locks.Inspection{Nodes: held, Need: 2, Held: true, Holding: kept}},
			"next: this proxy renews it while its client is connected"},
		{"split", explanation{Inspection: locks.Inspection{Nodes: split, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}},
			"job is not held: some nodes name an owner, but no majority does|  n2: held by you, fence 8, 400ms left|next: those who tried take back what they have got; free in at most 3s"},
		{"no quorum", explanation{Inspection: locks.Inspection{Nodes: short, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}, noQuorum: true},
			"whether job is held cannot be decided|1 of 3 nodes vote, 2 must agree:|  n3: does not vote: timeout|next: NOQUORUM until 1 more node votes; enough quarantines end in 41s, and if no other node comes back these vote one max-ttl later"},
		{"held on full nodes", explanation{Inspection: locks.Inspection{Nodes: full, Need: 2, Held: true, Holding: kept}},
			"job is held 2 times by me, fence 7, for 2m5s; 2 nodes agree|0 of 3 nodes vote, 2 must agree:|" +
				"  n1: refuses (OOM) since 2026-03-01T02:30:00Z; there held by me, fence 7, 27.9s left|  n3: down (connection refused) since 2026-03-01T02:30:00Z|" +
				"next: free in at most 27.9s; who renews or wants it is answered NOQUORUM until 2 more nodes vote"},
		{"free on full nodes", explanation{Inspection: locks.Inspection{Nodes: fullFree, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}, waiters: (&book{}).Waiters(locks.Key{})},
			"job is free|0 of 3 nodes vote, 2 must agree:|  n2: refuses (OOM) since 2026-03-01T02:30:00Z|next: NOQUORUM until 2 more nodes vote"},
		{"waited for", explanation{Inspection: locks.Inspection{Nodes: free, Need: 2, Holding: locks.Holding{Key: locks.Key{Name: "job"}}}, waiters: (&book{}).Waiters(locks.Key{})},
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
		{"\xff", false, `"\xff"`}, {`a"b`, false, `"a\"b"`}, {"", false, ""}, {"\u202e", true, `"\u202e"`},
	} {
		if got := quoted(tt.in, tt.spaces); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.in, got, tt.want)
		}
	}
}

// TestAdminsWithoutACL: where ACL is not there it is asked about another command for
// admins, which before Redis 6 everybody may run.
func TestIsAdmin_WithoutACL(t *testing.T) {
	for _, tt := range []struct{ lastSave, want string }{
		{":1700000000\r\n", "*20\r\n"},
		{"-NOPERM this user has no permissions to run the 'lastsave' command\r\n", "-NOPERM this user has no permissions to run the 'lockctl|force' command\r\n"},
	} {
		b := &book{held: true}
		s := newStage(t, Options{Inspector: b, Nodes: b.nodes}, func(l *link, args []string) (string, bool) {
			switch args[0] {
			case "ACL":
				return "-ERR unknown command 'ACL', with args beginning with: \r\n", true
			case "HELLO":
				return "-ERR unknown command 'HELLO', with args beginning with: \r\n", len(args) == 1
			}
			return tt.lastSave, args[0] == "LASTSAVE"
		})
		p := s.enter(t)
		p.do(t, "LOCKCTL FORCE job")
		p.until(t, "a reply", func() bool { return strings.HasPrefix(p.text, tt.want) })
	}
}
