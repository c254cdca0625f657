package client

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// heldOn is a lock of a minute's lease that was just granted on a connection to a proxy
// which answers each command so much later. heard gets the commands, and "closed".
func heldOn(t *testing.T, late time.Duration, heard chan<- string) *Held {
	t.Helper()
	nobody, err := backends.Parse("unix:///none/such")
	if err != nil {
		t.Fatal(err)
	}
	conn, proxy := net.Pipe()
	go func() {
		r := bufio.NewReader(proxy)
		for {
			v, err := ReadReply(r)
			if err != nil {
				heard <- "closed"
				return
			}
			time.Sleep(late)
			heard <- strings.TrimSpace(v.Elems[0].Text + " " + v.Elems[1].Text)
			if _, err := proxy.Write([]byte(":1\r\n")); err != nil {
				heard <- "closed"
				return
			}
		}
	}()
	w := &Conn{conn: conn, replies: make(chan resp.Tree, 1), losses: make(chan resp.Tree, 1), ended: make(chan struct{})}
	go w.read()
	h := &Held{Options: &Options{Name: "job", Owner: "me", TTL: time.Minute, KillAfter: 5 * time.Second, Proxies: []*backends.Server{nobody}}, Fence: "7", wire: w, probedAt: time.Now()}
	h.extend(time.Now(), 0)
	return h
}

// A proxy gives the lock away at the end of its connection, so one that is slow must not
// be taken for one that is gone while the lock counts as held.
func TestHeld_AnswersThatAreLate(t *testing.T) {
	for _, tt := range []struct {
		late time.Duration
		lost time.Duration // when; 0: not at all
	}{
		{0, 0},
		{maxProbeInterval - time.Millisecond, 0},
		{maxProbeInterval + time.Millisecond, 0},
		{3999 * time.Millisecond, 0},
		{time.Hour, 8 * time.Second}, // killAfter is a third of 12 s
	} {
		t.Run(tt.late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				heard := make(chan string, 1000)
				h := heldOn(t, tt.late, heard)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				l := h.Keep(ctx)
				switch took := time.Since(began); {
				case tt.lost == 0 && l != nil:
					t.Errorf("lost after %v: %s", took, l.Reason)
				case tt.lost != 0 && (l == nil || took != tt.lost || !l.By.Equal(began.Add(silenceLimit))):
					t.Errorf("lost after %v: %+v", took, l)
				}
				for len(heard) > 0 {
					if what := <-heard; what != "LOCKCTL HELP" {
						t.Errorf("the proxy saw %s while the lock was held", what)
					}
				}
				h.Close()
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// TestHeld_GivesBackOnALateConnection: if it were closed first, the lock would be gone
// when UNLOCK comes by another, and look lost.
func TestHeld_GivesBackOnALateConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan string, 10)
		h := heldOn(t, 1900*time.Millisecond, heard)
		h.TTL = 2 * time.Second
		if err := h.Release(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"LOCKCTL HELP", "UNLOCK job", "closed"} {
			if got := <-heard; got != want {
				t.Errorf("the proxy saw %s, want %s", got, want)
			}
		}
	})
}

// proxyAt is a proxy that accepts connections, and answers each command as the function says; nil: not at all.
func proxyAt(t *testing.T, answer func(command string) string) *backends.Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go func() {
				r := bufio.NewReader(conn)
				for answer != nil {
					v, err := ReadReply(r)
					if err != nil {
						return
					}
					_, _ = io.WriteString(conn, answer(v.Elems[0].Text))
				}
			}()
		}
	}()
	s, err := backends.Parse("redis://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestHeld_SilentProxyLeavesTime: with a lease of some seconds the time for all attempts is less than one attempt may take.
func TestHeld_SilentProxyLeavesTime(t *testing.T) {
	silent := proxyAt(t, nil)
	answers := proxyAt(t, func(command string) string {
		if command == "LOCK" {
			return "*4\r\n$1\r\n7\r\n$2\r\nme\r\n:9000\r\n:1\r\n"
		}
		return "+OK\r\n"
	})
	h := &Held{Options: &Options{Name: "job", Owner: "me", TTL: 10 * time.Second, Proxies: []*backends.Server{silent, answers}}, Fence: "7", wire: &Conn{ended: make(chan struct{})}}
	var a attempt
	for range 10 { // a busy machine may need several
		ctx, cancel := context.WithTimeout(t.Context(), attemptTimeout-100*time.Millisecond)
		a = h.reacquireAnywhere(ctx)
		if cancel(); a.wire != nil {
			a.wire.Close()
			return
		}
	}
	t.Errorf("the second proxy was not asked: %+v", a)
}

// A reply counts although the connection has ended behind it.
func TestConn_ReplyBeforeTheEnd(t *testing.T) {
	for range 50 { // with a random choice all of them would pass once in 2^50
		here, there := net.Pipe()
		defer there.Close()
		w := &Conn{conn: here, replies: make(chan resp.Tree, 1), ended: make(chan struct{}), err: io.EOF}
		go func() { _, _ = io.Copy(io.Discard, there) }()
		w.replies <- resp.Tree{Kind: '+', Text: "OK"}
		close(w.ended)
		if v, err := w.Do(t.Context(), "LOCKCTL", "HELP"); err != nil || v.Text != "OK" {
			t.Fatalf("%v, %v", v, err)
		}
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "nightly job": "nightly job", `say "hi"`: `say "hi"`, "作業": "作業",
		"\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`, "a\tb": `"a\tb"`, "\xff": `"\xff"`, "\u202e": `"\u202e"`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
