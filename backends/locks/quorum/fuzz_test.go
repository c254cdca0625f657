package quorum

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/hints"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

// answering is a client of a server that answers HELLO, and the next command with reply.
func answering(t *testing.T, reply []byte) rueidis.Client {
	t.Helper()
	s, err := backends.Parse("redis://fuzz:1")
	if err != nil {
		t.Fatal(err)
	}
	dialled := false
	c, err := s.Client(func(opt *rueidis.ClientOption) {
		opt.RingScaleEachConn, opt.ReadBufferEachConn, opt.WriteBufferEachConn = 6, 4<<10, 4<<10
		opt.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			if dialled {
				return nil, errors.New("gone")
			}
			dialled = true
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				r := bufio.NewReader(there)
				for _, p := range [][]byte{[]byte("%1\r\n+proto\r\n:3\r\n"), reply} {
					_ = there.SetDeadline(time.Now().Add(time.Second))
					if _, err := r.ReadByte(); err != nil {
						return
					}
					_, _ = r.Discard(r.Buffered())
					if _, err := there.Write(p); err != nil {
						return
					}
				}
			}()
			return here, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// votings are the readers of what a node answers.
var votings = []struct {
	name string
	vote.Parse
}{
	{"acquire", vote.ParseAcquire}, {"done", vote.ParseDone}, {"renew", vote.ParseRenew}, {"release", vote.ParseRelease}, {"read", vote.ParseRead}, {"state", vote.ParseState}, {"order", vote.ParseRepair},
	{"scan", func(m []rueidis.RedisMessage) (vote.Vote, error) { return parsePage(m, "lockproxy:lock:") }},
}

// FuzzVotes: whatever a node answers, it is one vote, which is silent where the answer
// cannot be read, and counting five of it decides nothing that cannot be.
func FuzzVotes(f *testing.F) {
	for _, s := range []string{
		"*7\r\n:1\r\n:9\r\n:0\r\n:30000\r\n:1\r\n$1\r\nl\r\n:4\r\n", "*2\r\n:2\r\n:9\r\n", "*4\r\n:0\r\n$2\r\nme\r\n:5\r\n:9\r\n", "*1\r\n:0\r\n", "*2\r\n:1\r\n:0\r\n", "*3\r\n:3\r\n$1\r\nl\r\n:4\r\n", "*1\r\n:4\r\n",
		"*5\r\n:1\r\n:0\r\n:2\r\n:1\r\n:3\r\n", "*4\r\n:3\r\n:1\r\n:2\r\n$1\r\nh\r\n", "*2\r\n:-1\r\n:0\r\n", "*3\r\n:-1\r\n:0\r\n$2\r\nid\r\n", "*4\r\n:-1\r\n:0\r\n$2\r\nid\r\n:1\r\n", "*3\r\n:-4\r\n:1\r\n$3\r\na b\r\n", "*8\r\n:1\r\n:9\r\n:60000\r\n:1\r\n$1\r\nw\r\n$1\r\nl\r\n$0\r\n\r\n$0\r\n\r\n", "*2\r\n:-2\r\n:60000\r\n", "*3\r\n:-2\r\n:60000\r\n:60000\r\n", "*4\r\n:-3\r\n:60000\r\n$1\r\nq\r\n:60000\r\n", "*3\r\n:1\r\n:9\r\n:60000\r\n", "*2\r\n:-99\r\n:1\r\n", "*1\r\n:-9223372036854775808\r\n",
		"*15\r\n:1\r\n$2\r\nme\r\n:5\r\n:9\r\n$1\r\nl\r\n:4\r\n$0\r\n\r\n:0\r\n$0\r\n\r\n:10\r\n:0\r\n:0\r\n$5\r\n1 9 h\r\n$1\r\nh\r\n:10\r\n",
		"*2\r\n$1\r\n0\r\n*2\r\n$17\r\nlockproxy:lock:a\x00\r\n$1\r\nb\r\n", "-NOSCRIPT no\r\n", "_\r\n", "*-1\r\n", "$-1\r\n", "+OK\r\n", "*3\r\n:1\r\n*1\r\n:1\r\n%1\r\n+a\r\n+b\r\n", "*2\r\n$1\r\n1\r\n,1.5\r\n",
	} {
		for i := range votings {
			f.Add([]byte(s), uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, reply []byte, which uint8) {
		c := answering(t, reply)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := votings[int(which)%len(votings)]
		v := vote.OfResult(c.Do(ctx, c.B().Arbitrary("EVALSHA").Build()), p.Parse)
		switch {
		case v.Err != nil && v.Kind != vote.Silent:
			t.Fatalf("%s of %q: a vote and an error: %+v", p.name, reply, v)
		case v.Err == nil && v.Code != 0:
			t.Fatalf("%s of %q: an abstention without a reason", p.name, reply)
		case v.Kind == vote.Yes && (p.name == "read") != (v.Read != nil):
			t.Fatalf("%s of %q: a reading is missing", p.name, reply)
		}
		if p.name == "acquire" {
			votes := []vote.Vote{v, v, v, {}, {}}
			if got := tally.Acquire(votes, 3, tally.Over); (got.Verdict == tally.Granted) && v.Kind != vote.Yes {
				t.Fatalf("%q is granted", reply)
			}
		}
	})
}

// FuzzCursor: a cursor is refused, or reads back as it was, and goes on without an end only
// where there is something to look through.
func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", "0", "1", "3.2.77", "0.0.0", "1.1.18446744073709551615", "7.3", "1.0.5", "-1", "0.-1.0", "9.9.9", "1..", "18446744073709551615"} {
		f.Add(s, uint8(5))
	}
	f.Fuzz(func(t *testing.T, text string, nodes uint8) {
		n := 1 + int(nodes)%63
		c, err := parseCursor(text, n)
		if err != nil {
			if bad := (*locks.CursorError)(nil); !errors.As(err, &bad) || len(err.Error()) > 1000 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := parseCursor(c.String(), n)
		if err != nil || again != c && c.node >= 0 {
			t.Fatalf("%q is %+v, its text %q is %+v, %v", text, c, c.String(), again, err)
		}
		if c.node >= n || c.node >= 0 && c.done&(1<<c.node) != 0 {
			t.Fatalf("%q is at a node that was looked through, or is none: %+v", text, c)
		}
	})
}

// FuzzHints: what is published on a channel is a hint with a fence, or nothing.
func FuzzHints(f *testing.F) {
	for _, s := range []string{"9 unlock", "9 handed", "9 undo", "9", "-9 x", "9223372036854775808 x", "", " ", "9  handed", "x handed"} {
		f.Add([]byte(s), "lockproxy:lock:0:job")
	}
	f.Fuzz(func(t *testing.T, text []byte, channel string) {
		svc, err := newProxy(testOptions{
			Nodes: nodesAt(t, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"), now: func() time.Duration { return time.Second },
		})
		if err != nil {
			t.Fatal(err)
		}
		l := &hints.Listener{Set: svc.inner.Store.set, Keepalive: svc.inner.Store.host.Keepalive, Source: svc.waiting.Listen()[1]}
		job := locks.Key{DB: 0, Name: "job"}
		w, err := svc.waiting.Join([]locks.Key{job}, "", "", waitq.Alone, &locks.Waiting{Attempt: locks.Attempt{LockRequest: locks.LockRequest{Key: job}}})
		if err != nil {
			t.Fatal(err)
		}
		svc.waiting.Asked(w, waitq.Known{Asked: true, Holder: "other", Fence: 5, Until: time.Minute})
		asleep, cancel := context.WithCancel(t.Context())
		cancel()
		_ = svc.waiting.Sleep(asleep, w) // subscribes
		l.Subscribed(rueidis.PubSubSubscription{Kind: "subscribe", Channel: channel})
		l.Message(rueidis.PubSubMessage{Channel: channel, Message: string(text)})
		if k, _ := svc.waiting.Known(job); !k.Answers(time.Second) && !bytes.ContainsAny(text, "0123456789") {
			t.Fatalf("%q made it doubtful who has the name", text)
		}
		if left, unused := svc.waiting.Leave(w, false); left != 0 || unused {
			t.Fatalf("%d left, %v", left, unused)
		}
	})
}
