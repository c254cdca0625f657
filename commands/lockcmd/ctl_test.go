package lockcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// book is an Inspector of one lock, job, and what it was asked.
type book struct {
	held    bool
	owner   string // of the lock; empty: me
	readers []locks.ReadBy
	permits int // of who waits
	asked   []string
	err     error
}

var jobHeld = locks.Holding{
	Key: locks.Key{Name: "job"}, Owner: "me", Fence: 7, Holds: 2, Remaining: 1500500 * time.Microsecond, Held: 2 * time.Second,
	Info: "why", Votes: 2, Waiters: 1,
}

func (b *book) holding() locks.Holding {
	h := jobHeld
	h.Owner = cmp.Or(b.owner, h.Owner)
	if !b.held {
		h = locks.Holding{Key: h.Key, Remaining: time.Second}
	}
	h.Readers = len(b.readers)
	return h
}

func (b *book) Inspect(_ context.Context, k locks.Key) (locks.Inspection, error) {
	b.asked = append(b.asked, fmt.Sprintf("inspect %d/%s", k.DB, k.Name))
	in := locks.Inspection{Need: 2, Holding: locks.Holding{Key: k}, Nodes: []locks.NodeView{
		{Address: "n1", State: locks.NodeVoting, Owner: "me", Fence: 7, Remaining: time.Second},
		{Address: "n2", State: locks.NodeVoting, Owner: "you", Fence: 8, Remaining: 2 * time.Second},
		{Address: "n3", Err: errors.New("timeout")},
	}}
	if in.Held = b.held && k.Name == "job"; in.Held {
		in.Holding = b.holding()
		in.Nodes[0].Owner = in.Holding.Owner
	} else if len(b.readers) > 0 {
		in.Holding = b.holding()
		in.Nodes[0], in.Nodes[1] = locks.NodeView{Address: "n1", State: locks.NodeVoting, Readers: 2}, locks.NodeView{Address: "n2", State: locks.NodeVoting}
	}
	in.Readers = b.readers
	return in, b.err
}

func (b *book) List(_ context.Context, r locks.ListRequest) (locks.Listing, error) {
	b.asked = append(b.asked, fmt.Sprintf("list %d %q %d %q", r.DB, r.Match, r.Count, r.Cursor))
	return locks.Listing{Held: []locks.Holding{b.holding()}, Cursor: "1.0.5"}, b.err
}

func (b *book) Waiters(k locks.Key) []locks.Waiter {
	return []locks.Waiter{{Owner: "you", Info: "me too", Client: "h:1", Waiting: time.Second, Left: 2 * time.Second, Shared: len(b.readers) > 0, Permits: b.permits}}
}

func (b *book) Force(_ context.Context, k locks.Key) (locks.Holding, bool, error) {
	b.asked = append(b.asked, fmt.Sprintf("force %d/%s", k.DB, k.Name))
	return b.holding(), b.held, b.err
}

func (b *book) Read(_ context.Context, k locks.Key) (locks.Reading, error) {
	b.asked = append(b.asked, strings.TrimSpace(fmt.Sprintf("read %d/%s %s", k.DB, k.Name, k.Reader)))
	if k.Reader != "" {
		return locks.Reading{Held: k.Reader == "reader", Owner: k.Reader, Fence: 6}, b.err
	}
	return locks.Reading{Held: b.held && k.Name == "job", Owner: cmp.Or(b.owner, "me"), Fence: 7}, b.err
}

func (b *book) nodes() []locks.NodeStatus {
	return []locks.NodeStatus{
		{Address: "n1", Up: true, State: locks.NodeVoting, RunID: "r1", Doubt: 12 * time.Second, Largest: 9, Took: time.Millisecond, Queued: 3},
		{Address: "n2", Chosen: true, Up: true, State: locks.NodeQuarantine, Left: 41 * time.Second, Err: &locks.NodeError{Node: "n2", Err: errors.New("quarantine")}},
		{Address: "n3", Up: true, State: locks.NodeRefusing, Since: time.Now().Add(-7 * time.Hour), Err: &locks.NodeError{Node: "n3", Err: errors.New("OOM")}},
		{Address: "n4", State: locks.NodeDown, Err: &locks.NodeError{Node: "n4", Err: errors.New("timeout")}},
	}
}

// library is a client that may ask about a book.
func library(admin bool, proto int) (*book, *Client) {
	b := &book{held: true}
	v := New(Options{Inspector: b, Nodes: b.nodes, Reader: b, Proxies: func() []Proxy {
		return []Proxy{{ID: "x", Name: "host", SameUpstream: true, Adopts: []string{"a", "b"}, Conflict: "why", Warning: "what"}}
	}}, slog.New(slog.DiscardHandler))
	c := v.NewClient(&fakeConn{admin: admin, proto: proto})
	return b, &c
}

// answer is the reply to a LOCKCTL.
func (c *Client) answer(t *testing.T, line string) string {
	t.Helper()
	reply, err := c.Do(t.Context(), (*Client).Ctl, words(line))
	if err == nil {
		return string(reply.Now())
	}
	if b := AppendError(nil, err); b != nil {
		return string(b)
	}
	return string(resp.AppendError(nil, err.Error()))
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
			b, c := library(true, proto+2)
			if got := flat(c.answer(t, tt.line)); got != want {
				t.Errorf("%s in protocol %d:\ngot  %s\nwant %s", tt.line, proto+2, got, want)
			}
			if tt.line == "lockctl list match j* count 10 cursor 0" && b.asked[0] != `list 0 "j*" 10 "0"` {
				t.Errorf("asked %q", b.asked)
			}
		}
	}
	for _, hidden := range []string{job, nobody} {
		_, c := library(hidden == job, 2)
		if got := flat(c.answer(t, "LOCKCTL LIST")); got != "*2 $5 1.0.5 *1 *20 "+hidden {
			t.Errorf("got %s", got)
		}
	}
}

// TestLockctl_Readers: a name that is only read is told of as one without an owner that has readers; beside a writer they are
// told of as well. Who reads is for admins, and for the reader's own connection.
func TestLockctl_Readers(t *testing.T) {
	const read = "$4 name $3 job $5 owner $0  $5 fence :0 $5 holds :0 $12 remaining-ms :1000 $7 held-ms :0 $4 info $0  $7 session $2 no $7 waiters :0 $5 votes :0 $7 readers :2 "
	const nodes = "$6 needed :2 $5 nodes *3 *4 $7 address $2 n1 $4 says $6 shared *4 $7 address $2 n2 $4 says $4 free *4 $7 address $2 n3 $4 says $7 timeout "
	by := func(a, b string) string {
		return fmt.Sprintf("$7 read-by *2 *4 $5 owner $%d %s $12 remaining-ms :2000 *4 $5 owner $%d %s $12 remaining-ms :1 ", len(a), a, len(b), b)
	}
	ask := func(admin, held bool, line string) string {
		b, c := library(admin, 2)
		b.held, b.readers = held, []locks.ReadBy{{Owner: "r1", Remaining: 2 * time.Second}, {Owner: "r2", Remaining: time.Microsecond}}
		c.implicit.Add(locks.Grant{Key: locks.Key{Name: "job", Reader: "r2"}, Owner: "r2", Fence: 7})
		return flat(c.answer(t, line))
	}
	for _, tt := range []struct {
		what, got, want string
	}{
		{"INFO", ask(true, false, "LOCKCTL INFO job"), "*28 " + read + nodes + by("r1", "r2")},
		{"INFO for a reader", ask(false, false, "LOCKCTL INFO job"), "*28 " + read + nodes + by("", "r2")},
		{"LIST", ask(true, false, "LOCKCTL LIST"), "*2 $5 1.0.5 *1 *22 " + read},
		{"LIST, with a writer", ask(true, true, "LOCKCTL LIST"), "*2 $5 1.0.5 *1 *22 " + fmt.Sprintf(job2, 2, "me") + "$7 readers :2 "},
	} {
		if tt.got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.what, tt.got, tt.want)
		}
	}
	if got := ask(true, true, "LOCKCTL WAITERS job"); !strings.HasPrefix(got, "*1 *14 ") || !strings.HasSuffix(got, "$6 client $3 h:1 $6 shared $3 yes ") {
		t.Errorf("WAITERS, a reader: %s", got)
	}
	b, c := library(true, 2)
	b.readers, b.permits = []locks.ReadBy{{Owner: "r1"}}, 3
	if got := flat(c.answer(t, "LOCKCTL WAITERS job")); !strings.HasPrefix(got, "*1 *14 ") || !strings.HasSuffix(got, "$6 client $3 h:1 $7 permits :3 ") {
		t.Errorf("WAITERS, for a permit: %s", got)
	}
	if got := ask(true, true, "LOCKCTL INFO job"); !strings.HasPrefix(got, "*28 ") || !strings.HasSuffix(got, by("r1", "r2")) {
		t.Errorf("INFO with a writer: %s", got)
	}
}

func TestLockctl_Nodes(t *testing.T) {
	_, c := library(false, 2)
	got := flat(c.answer(t, "LOCKCTL NODES"))
	for _, part := range []string{
		"*10 $6 voting :1 $6 needed :3 $4 hint $", "tolerates no more",
		"*4 *24 $7 address $2 n1 $4 kind $10 standalone $2 up $3 yes $5 state $6 voting $8 state-ms :0 $13 quarantine-ms :0 $8 doubt-ms :12000 $5 error $0  $6 run-id $2 r1 $13 largest-fence :9 $14 answered-in-us :1000 $6 queued :3 ",
		"$4 kind $8 sentinel $2 up $3 yes $5 state $10 quarantine $8 state-ms :0 $13 quarantine-ms :41000 $8 doubt-ms :0 $5 error $10 quarantine ",
		"$7 address $2 n3 $4 kind $10 standalone $2 up $3 yes $5 state $13 refuses (OOM) $8 state-ms :252000",
		"$7 address $2 n4 $4 kind $10 standalone $2 up $2 no $5 state $14 down (timeout) $8 state-ms :0 ",
		"$7 proxies *1 *12 $2 id $1 x $5 proxy $4 host $13 same-upstream $3 yes $6 adopts *2 $1 a $1 b $8 conflict $3 why $7 warning $4 what ",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("got %s\nwithout %s", got, part)
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
		{"LOCKCTL LIST MATCH", "-ERR option MATCH needs a value; usage: LOCKCTL LIST [MATCH glob] [COUNT n] [CURSOR c]"},
		{"LOCKCTL LIST TYPE x", "-ERR unknown option 'TYPE'; usage: LOCKCTL LIST [MATCH glob] [COUNT n] [CURSOR c]"},
		{"LOCKCTL FENCE job", "-ERR wrong number of arguments for 'lockctl|fence' command"},
		{"LOCKCTL FENCE job me you", "-ERR wrong number of arguments for 'lockctl|fence' command"},
		{"LOCKCTL FENCE " + strings.Repeat("n", locks.MaxName+1) + " me", "-ERR the name of a lock must have 1 to 65536 bytes"},
		{"LOCKCTL FORCE job", "-NOPERM this user has no permissions to run the 'lockctl|force' command"},
		{"LOCKCTL INFO " + strings.Repeat("n", locks.MaxName+1), "-ERR the name of a lock must have 1 to 65536 bytes"},
	}
	for _, tt := range tests {
		b, c := library(false, 2)
		if got := c.answer(t, tt.line); got != tt.want+"\r\n" {
			t.Errorf("%.40s: got %q, want %q", tt.line, got, tt.want)
		}
		if len(b.asked) != 0 {
			t.Errorf("%.40s: asked %q", tt.line, b.asked)
		}
	}
	b, c := library(true, 2)
	b.err = &locks.QuorumError{Nodes: 3, Need: 2, Got: 1}
	for _, line := range []string{"LOCKCTL INFO job", "LOCKCTL LIST", "LOCKCTL FORCE job", "LOCKCTL FENCE job me"} {
		if got := c.answer(t, line); got != "-NOQUORUM 1 of 3 answered, 2 needed\r\n" {
			t.Errorf("%s: got %q", line, got)
		}
	}
	none := New(Options{}, nil).NewClient(&fakeConn{})
	if got := none.answer(t, "LOCKCTL NODES"); got != "-ERR LOCKCTL is not served here\r\n" {
		t.Errorf("got %q", got)
	}
}

// TestLockctl_ShowsOwnOwner: a connection sees what it took, though it may not see
// others'.
func TestLockctl_ShowsOwnOwner(t *testing.T) {
	b, c := library(false, 2)
	c.implicit.Add(locks.Grant{Key: locks.Key{Name: "job"}, Owner: "me", Fence: 7})
	got := flat(c.answer(t, "LOCKCTL INFO job"))
	if strings.Count(got, "$5 owner $2 me ") != 2 || !strings.Contains(got, "$5 owner $0  $5 fence :8") || len(b.asked) != 1 {
		t.Errorf("got %s", got)
	}
}
