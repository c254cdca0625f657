package adopt

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

// An inspected engine has locks that can be listed, a page of two at a time, and taken away.
type inspected struct {
	scripted
	held   []locks.Holding
	forced []string
	fault  error // of the second page
	other  bool  // each has another grant by now
}

func (e *inspected) List(_ context.Context, r locks.ListRequest) (page locks.Listing, err error) {
	at := 0
	if r.Cursor != "" {
		fmt.Sscan(r.Cursor, &at)
	}
	if at > 0 && e.fault != nil {
		return page, e.fault
	}
	for _, h := range e.held[min(at, len(e.held)):min(at+2, len(e.held))] {
		if r.DB == locks.AllDBs || r.DB == h.DB {
			page.Held = append(page.Held, h)
		}
	}
	if page.Cursor = "0"; at+2 < len(e.held) {
		page.Cursor = fmt.Sprint(at + 2)
	}
	return page, nil
}

func (e *inspected) Inspect(context.Context, locks.Key) (in locks.Inspection, err error) {
	return in, nil
}

func (e *inspected) ForceReaders(context.Context, locks.Key) (was locks.Holding, held bool, err error) {
	return was, false, nil
}

func (e *inspected) ForceGrant(_ context.Context, k locks.Key, fence int64) (was locks.Holding, held bool, err error) {
	if e.other {
		return was, false, &locks.OtherGrantError{}
	}
	e.forced = append(e.forced, fmt.Sprint(k.DB, " ", k.Name, " ", fence))
	return was, true, nil
}

// flushed is a client of a proxy with these patterns, and the engine there.
func flushed(t *testing.T, patterns ...string) (*client, *inspected) {
	t.Helper()
	e := &inspected{}
	for i, name := range []string{"lock:a", "lock:b", "foo", "lock:native", "cart:a", "lock:c"} {
		owner := locks.NewAdoptedString(&locks.RandSource{}, "me")
		if name == "lock:native" {
			owner = "a client of LOCK"
		}
		e.held = append(e.held, locks.Holding{Key: locks.Key{DB: i % 2, Name: name}, Owner: owner, Fence: int64(i + 1)})
	}
	a, err := New(parsed(t, patterns...), Options{Engine: e, Inspector: e, MinTTL: time.Millisecond, MaxTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return &client{t: t, a: a, proto: 2, says: "+OK\r\n"}, e
}

// TestFlush: the adopted locks of the patterns with flush=release are released, in the databases that are emptied, behind
// the upstream's +OK. All others stay.
func TestFlush(t *testing.T) {
	for _, tt := range []struct {
		name, command string
		patterns      []string
		want          string // forced; -: it is no command on locks
	}{
		{"all databases", "FLUSHALL", []string{"lock:* flush=release"}, "0 lock:a 1, 1 lock:b 2, 1 lock:c 6"},
		{"one database", "flushdb ASYNC", []string{"lock:* flush=release"}, "0 lock:a 1"},
		{"several patterns", "FLUSHALL SYNC", []string{"lock:* flush=release", "cart:*", "foo flush=release"}, "0 lock:a 1, 1 lock:b 2, 1 lock:c 6, 0 foo 3"},
		{"a pattern before it", "FLUSHALL", []string{"lock:a", "lock:* flush=release"}, "1 lock:b 2, 1 lock:c 6"},
		{"a pattern of one database", "FLUSHALL", []string{"lock:* db=1 flush=release"}, "1 lock:b 2, 1 lock:c 6"},
		{"a pattern of another database", "FLUSHDB", []string{"lock:* db=1 flush=release"}, "-"},
		{"flush=keep", "FLUSHALL", []string{"lock:* flush=keep"}, "-"},
		{"a pattern that is not on", "FLUSHALL", []string{"lock:* mode=observe flush=release"}, "-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, e := flushed(t, tt.patterns...)
			words := [][]byte{}
			for _, w := range strings.Fields(tt.command) {
				words = append(words, []byte(w))
			}
			if adopts := c.a.Concerns(words) && c.a.Adopts(0, words, Keys{nil, true}); adopts != (tt.want != "-") {
				t.Fatalf("adopted: %t", adopts)
			}
			if tt.want == "-" {
				return
			}
			if got := c.do(strings.Fields(tt.command)...); got != "+OK" || strings.Join(e.forced, ", ") != tt.want {
				t.Errorf("%s, %q", got, e.forced)
			}
			if !slices.Equal(c.asked, []string{tt.command}) {
				t.Errorf("the upstream was asked %q", c.asked)
			}
		})
	}
}

// TestFlush_Fails: what the upstream refuses releases nothing, and a flush after which locks may be left says so.
func TestFlush_Fails(t *testing.T) {
	c, e := flushed(t, "lock:* flush=release")
	c.says = "-NOPERM no\r\n"
	if got := c.do("FLUSHALL"); got != "-NOPERM no" || len(e.forced) != 0 {
		t.Errorf("%s, %q", got, e.forced)
	}
	c.says, e.fault = "+OK\r\n", &locks.QuorumError{Op: "LIST", Nodes: 5, Need: 3, Got: 2}
	words := [][]byte{[]byte("FLUSHALL")}
	call, err := c.a.Call(c, words, Keys{nil, true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.a.Decide(t.Context(), c, call)
	partial, few := (*PartialError)(nil), (*locks.QuorumError)(nil)
	if !errors.As(err, &partial) || !errors.As(err, &few) {
		t.Fatal(err)
	}
	if got := string(partial.Amend([]byte("-NOQUORUM why\r\n"))); got != "-NOQUORUM why (the upstream is flushed; adopted locks may be left: flush it again)\r\n" {
		t.Error(got)
	}
	e.fault, e.other, e.forced = nil, true, nil // granted anew since they were listed
	if got := c.do("FLUSHALL"); got != "+OK" {
		t.Error(got)
	}
	_, refused := c.a.Queue(c, &Transaction{}, words, Keys{nil, true}, UpstreamTx{})
	if got := refused.Error(); got != `ADOPTREFUSED FLUSHALL lock:*: it is inside MULTI; adopted by "lock:*"` {
		t.Error(got)
	}
}
