package redistest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Link forwards connections to servers, to each in turn. It loses some connections
// after a LOCK or UNLOCK was executed and before its reply has passed, and delays some of
// these replies.
type Link struct {
	net.Listener
	to      []string
	delay   time.Duration
	n       atomic.Int64
	Lost    atomic.Int64 // connections, each with a reply
	Delayed atomic.Int64 // replies
	ended   sync.WaitGroup
}

// StartLink opens a link to servers at these addresses for the length of the test. One in
// eight replies is lost, one in eight is held up for delay.
func StartLink(tb testing.TB, delay time.Duration, to ...string) *Link {
	tb.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Link{Listener: lis, to: to, delay: delay}
	l.ended.Go(l.accept)
	tb.Cleanup(func() {
		_ = lis.Close()
		l.ended.Wait()
	})
	return l
}

func (l *Link) accept() {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", l.to[int(l.n.Add(1))%len(l.to)])
		if err != nil {
			_ = c.Close()
			continue
		}
		l.ended.Go(func() {
			_, _ = io.Copy(s, c)
			_ = s.Close()
		})
		l.ended.Go(func() {
			l.replies(c, s)
			_ = c.Close()
			_ = s.Close()
		})
	}
}

// replies forwards what s sends, or most of it.
func (l *Link) replies(c, s net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		if err != nil {
			return
		}
		if isLockReply(buf[:n]) {
			switch rand.IntN(8) {
			case 0:
				l.Lost.Add(1)
				return
			case 1:
				l.Delayed.Add(1)
				time.Sleep(l.delay)
			}
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// isLockReply reports whether b is a reply to LOCK or UNLOCK, not one to a client's
// first commands.
func isLockReply(b []byte) bool {
	return bytes.HasPrefix(b, []byte(":")) || bytes.HasPrefix(b, []byte("*4\r\n:")) || bytes.HasPrefix(b, []byte("*-1")) || bytes.HasPrefix(b, []byte("_"))
}
