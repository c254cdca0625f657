package integration

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestRandomVerbs: whatever a client says in between, and however its bytes are cut,
// each verb is answered once, in its turn and rightly.
func TestRandomVerbs(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--node-timeout", "2s")
	rival := redistest.Open(t, r.addr())
	wantGrant(t, rival.Do(t, "LOCK", rivalName, "60s", "OWNER", "rival", "SESSION"))
	if s := os.Getenv(seedVariable); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		r.runVerbs(t, seed)
		return
	}
	until, n := time.Now().Add(randomTime(t)), 0
	for ; time.Now().Before(until) && !t.Failed(); n++ {
		r.runVerbs(t, rand.Uint64())
	}
	t.Logf("%d clients", n)
}

// runVerbs is one client, which may leave at the end in the middle of something.
func (r *rig) runVerbs(t *testing.T, seed uint64) {
	t.Helper()
	l := newLocker(seed)
	c := redistest.Open(t, r.addr())
	defer c.Close()
	for range 1 + l.IntN(8) {
		l.exchange(t, c, seed, l.burst()+l.finishSometimes())
	}
	switch l.IntN(4) {
	case 0: // cut anywhere
		text := l.burst()
		_, _ = c.Write([]byte(text[:l.IntN(len(text)+1)]))
		if l.IntN(2) == 0 {
			_ = c.Conn.(*net.TCPConn).SetLinger(0)
		}
	case 1: // closed on one side: everything is answered all the same, LOCKs as given up
		if l.raw { // where replies are not counted, nobody knows which is the last
			return
		}
		text := l.burst()
		_, _ = c.Write([]byte(text))
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		n := 0
		_, err := c.Next()
		for ; err == nil; n++ {
			_, err = c.Next()
		}
		if late := (net.Error)(nil); errors.As(err, &late) && late.Timeout() || n != len(l.wants) && !l.raw {
			t.Errorf("%s=%d: a client that closed its side got %d of %d replies, then %v; all that was said:\n%s", seedVariable, seed, n, len(l.wants), err, strings.Join(l.story, "\n"))
		}
	default:
		l.exchange(t, c, seed, l.finish())
	}
}

// finishSometimes is a RESET now and then.
func (l *locker) finishSometimes() string {
	if l.IntN(3) == 0 || l.inTx {
		return l.finish()
	}
	return ""
}

// exchange writes a burst in pieces and reads all that it must be answered.
func (l *locker) exchange(t *testing.T, c *redistest.Conn, seed uint64, text string) {
	t.Helper()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if text == "" {
			return
		}
		for _, piece := range pieces(l.Rand, text) {
			if _, err := c.Write([]byte(piece)); err != nil {
				return
			}
		}
	}()
	defer func() { <-sent }()
	wants := l.wants
	l.wants = nil
	for i, w := range wants {
		v, err := c.Next()
		if err == nil && w.fits(v) {
			continue
		}
		t.Fatalf("%s=%d: reply %d, to %s: %v %.300q\nall that was said:\n%s", seedVariable, seed, i, w.command, err, v.Raw, strings.Join(l.story, "\n"))
	}
}
