package relay

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// tape is an Output that remembers.
type tape struct {
	bytes.Buffer
	closed, aborted bool
}

func (t *tape) Write(p []byte) bool   { t.Buffer.Write(p); return true }
func (t *tape) Close()                { t.closed = true }
func (t *tape) Full() <-chan struct{} { return nil }
func (t *tape) Abort()                { t.aborted = true }

func (t *tape) want(tt *testing.T, what, want string) {
	tt.Helper()
	if got := t.String(); got != want {
		tt.Errorf("%s: the client has %q, want %q", what, got, want)
	}
}

func TestReplies_KeepOrder(t *testing.T) {
	a, b := new(upstream.Conn), new(upstream.Conn)
	out := new(tape)
	r := NewReplies(out, RepliesOptions{Limit: 1 << 20})

	r.Local([]byte("0"))
	out.want(t, "a reply of our own waits for Flush", "")
	r.Expect(a, 2)
	out.want(t, "or for what follows", "0")
	r.Local([]byte("3"))
	r.Expect(b, 1)
	r.ExpectReplaced(b, []byte("5"))
	r.Local([]byte("6"))
	r.Expect(a, 1)

	r.Deliver(b, []byte("4"), 1)
	r.Deliver(b, []byte("no"), 0)
	r.Deliver(b, []byte("pe"), 1)
	out.want(t, "later replies wait for earlier ones", "0")
	r.Deliver(a, []byte("1"), 1)
	out.want(t, "the first may go", "01")
	r.Deliver(a, []byte("(2"), 0)
	out.want(t, "even in part", "01(2")
	r.Deliver(a, []byte(")"), 1)
	out.want(t, "then all that is complete", "01(2)3456")
	if r.Pending() != 1 {
		t.Errorf("owed %d, want 1", r.Pending())
	}
	r.Deliver(a, []byte("7"), 1)
	r.Local([]byte("8"))
	r.Flush()
	out.want(t, "the end", "01(2)345678")
	if r.Pending() != 0 || r.buffered != 0 || out.aborted {
		t.Errorf("owed %d, kept %d, aborted %v", r.Pending(), r.buffered, out.aborted)
	}
}

func TestReplies_Captured(t *testing.T) {
	a := new(upstream.Conn)
	out := new(tape)
	r := NewReplies(out, RepliesOptions{Limit: 1 << 20})
	var got []byte
	r.Expect(a, 1)
	r.ExpectCaptured(a, func(p []byte) { got = append([]byte(nil), p...) })
	r.Deliver(a, []byte("1"), 1)
	r.Deliver(a, []byte("2"), 0)
	r.Deliver(a, []byte("3"), 1)
	out.want(t, "a caught reply", "1")
	if string(got) != "23" {
		t.Errorf("caught %q", got)
	}
	lost := false
	r.ExpectCaptured(a, func(p []byte) { lost = p == nil })
	r.Fail(a, 1, false, errors.New("gone"))
	if !lost || r.Pending() != 0 {
		t.Errorf("a caught reply that will not come: told %v, owed %d", lost, r.Pending())
	}
}

func TestReplies_Fail(t *testing.T) {
	a, b := new(upstream.Conn), new(upstream.Conn)
	out := new(tape)
	r := NewReplies(out, RepliesOptions{Limit: 1 << 20})
	r.Expect(b, 1)
	r.Expect(a, 2)
	r.ExpectReplaced(a, []byte("x"))
	r.Fail(a, 3, false, errors.New("reset by peer"))
	out.want(t, "behind another's reply", "")
	r.Deliver(b, []byte("1"), 1)
	if n := strings.Count(out.String(), "-UPSTREAMDOWN "); n != 3 || !strings.HasPrefix(out.String(), "1-") {
		t.Errorf("the client has %q, want 1 and three errors", out.String())
	}
	if out.aborted {
		t.Error("disconnected, though every reply is whole")
	}
	r.Expect(a, 1)
	r.Deliver(a, []byte("$5\r\nhe"), 0)
	r.Fail(a, 1, true, errors.New("reset by peer"))
	if !out.aborted {
		t.Error("not disconnected after half a reply")
	}
}

func TestReplies_WaitIdle(t *testing.T) {
	a := new(upstream.Conn)
	r := NewReplies(new(tape), RepliesOptions{Limit: 1 << 20})
	if err := r.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Expect(a, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.WaitIdle(ctx); err == nil {
		t.Error("idle, though a reply is owed")
	}
	done := make(chan error)
	go func() { done <- r.WaitIdle(t.Context()) }()
	r.Deliver(a, []byte("1"), 1)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestReplies_BufferIsBounded(t *testing.T) {
	a, b := new(upstream.Conn), new(upstream.Conn)
	out := new(tape)
	r := NewReplies(out, RepliesOptions{Limit: 100})
	r.Expect(a, 1)
	r.Expect(b, 1)
	r.Deliver(b, make([]byte, 100), 0)
	if out.aborted {
		t.Fatal("disconnected at the limit")
	}
	r.Deliver(b, make([]byte, 1), 0)
	if !out.aborted {
		t.Error("not disconnected beyond the limit")
	}
}

// TestReplies_PushBetweenReplies: a push waits for the end of the reply that has begun, and goes before the next one.
func TestReplies_PushBetweenReplies(t *testing.T) {
	conn, out := new(upstream.Conn), new(tape)
	r := NewReplies(out, RepliesOptions{Limit: 1 << 20})
	first, second := new(Request), new(Request)
	r.ExpectRequest(first)
	r.ExpectRequest(second)
	first.Deliver(conn, []byte("(1"), 0)
	r.Push([]byte(">1"))
	second.Deliver(conn, []byte("(2"), 0)
	out.want(t, "the first reply has begun", "(1")
	first.Deliver(conn, []byte(")"), 1)
	out.want(t, "the push is between the two", "(1)>1(2")
	r.Push([]byte(">2"))
	out.want(t, "the second reply has begun", "(1)>1(2")
	second.Deliver(conn, []byte(")"), 1)
	out.want(t, "the push is behind it", "(1)>1(2)>2")
}

func TestReplies_WaitAhead(t *testing.T) {
	a := new(upstream.Conn)
	r := NewReplies(new(tape), RepliesOptions{Limit: 1 << 20})
	r.Expect(a, 1)
	r.MarkBlocking(1)
	r.Expect(a, 1) // that was not sent yet
	r.Expect(a, 1) // the one that blocks
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 2 {
		if err := r.WaitAhead(over); err == nil {
			t.Errorf("%d replies came of two", i)
		}
		r.Deliver(a, []byte("1"), 1)
	}
	if err := r.WaitAhead(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestReplies_DropReply(t *testing.T) {
	tests := []struct {
		name    string
		pending func(r *Replies, c, other *upstream.Conn)
		reply   string
		dropped bool
		want    string
	}{
		{"unblocked", func(r *Replies, c, _ *upstream.Conn) { r.Expect(c, 1) }, "-UNBLOCKED x", true, ""},
		{"answered before", func(r *Replies, c, _ *upstream.Conn) { r.Expect(c, 1) }, "+a", true, "+a"},
		{"nothing is pending", func(*Replies, *upstream.Conn, *upstream.Conn) {}, "", false, ""},
		{"two replies", func(r *Replies, c, _ *upstream.Conn) { r.Expect(c, 2) }, "-UNBLOCKED x", false, "-UNBLOCKED x"},
		{"of two connections", func(r *Replies, c, other *upstream.Conn) { r.Expect(c, 1); r.Expect(other, 1) }, "-UNBLOCKED x", false, "-UNBLOCKED x"},
		{"of another one", func(r *Replies, _, other *upstream.Conn) { r.Expect(other, 1) }, "", false, ""},
	}
	for _, tt := range tests {
		c, out := new(upstream.Conn), new(tape)
		r := NewReplies(out, RepliesOptions{Limit: 1 << 20})
		tt.pending(r, c, new(upstream.Conn))
		if dropped := r.DropReply(c); dropped != tt.dropped {
			t.Errorf("%s: dropped %v", tt.name, dropped)
		}
		if tt.reply != "" {
			r.Deliver(c, []byte(tt.reply), 1)
		}
		out.want(t, tt.name, tt.want)
	}
}
