package upstream

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/backends"
)

const (
	benchCommand = "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"
	benchReply   = "$5\r\nvalue\r\n"
)

// newBenchUpstream is the pool of a server that answers every benchCommand, and the
// PING of a handshake, without allocating.
func newBenchUpstream(tb testing.TB) *Pool {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go answerBench(nc)
		}
	}()
	s, err := backends.Parse("redis://" + ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	p := NewPool(PoolOptions{Server: s, Log: slog.New(slog.DiscardHandler)})
	tb.Cleanup(func() { p.Close(); ln.Close() })
	return p
}

func answerBench(nc net.Conn) {
	defer nc.Close()
	buf := make([]byte, 64<<10)
	replies := bytes.Repeat([]byte(benchReply), len(buf)/len(benchCommand)+1)
	if _, err := nc.Read(buf); err != nil {
		return
	}
	nc.Write([]byte("+PONG\r\n"))
	for have := 0; ; {
		n, err := nc.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		whole := have / len(benchCommand)
		nc.Write(replies[:whole*len(benchReply)])
		have = copy(buf, buf[whole*len(benchCommand):have])
	}
}

// A countingSink reports when as many replies have ended as are wanted.
type countingSink struct {
	ended atomic.Int64
	want  int64
	done  chan struct{}
}

func (s *countingSink) Deliver(_ *Conn, _ []byte, ended int) {
	if s.ended.Add(int64(ended)) == s.want {
		s.ended.Store(0)
		s.done <- struct{}{}
	}
}

func (s *countingSink) Fail(*Conn, int, bool, error) { close(s.done) }

func newCountingSink(want int) *countingSink {
	return &countingSink{want: int64(want), done: make(chan struct{}, 1)}
}

// BenchmarkConn is one command and its reply on a shared connection: sent and awaited
// one by one or in bursts, by one sender or by several.
func BenchmarkConn(b *testing.B) {
	for _, depth := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("P%d", depth), func(b *testing.B) {
			c, err := newBenchUpstream(b).Shared(b.Context(), Identity{Proto: 2}, MainClass, 0)
			if err != nil {
				b.Fatal(err)
			}
			commands, s := bytes.Repeat([]byte(benchCommand), depth), newCountingSink(depth)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += depth {
				if err := c.Send(commands, depth, s); err != nil {
					b.Fatal(err)
				}
				<-s.done
			}
		})
	}
	b.Run("senders", func(b *testing.B) {
		c, err := newBenchUpstream(b).Shared(b.Context(), Identity{Proto: 2}, MainClass, 0)
		if err != nil {
			b.Fatal(err)
		}
		b.SetParallelism(16)
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			command, s := []byte(benchCommand), newCountingSink(1)
			for pb.Next() {
				if err := c.Send(command, 1, s); err != nil {
					b.Error(err)
					return
				}
				<-s.done
			}
		})
	})
}

func TestConn_SendAndRouteAllocateNothing(t *testing.T) {
	c, err := newBenchUpstream(t).Shared(t.Context(), Identity{Proto: 2}, MainClass, 0)
	if err != nil {
		t.Fatal(err)
	}
	commands, s := bytes.Repeat([]byte(benchCommand), 16), newCountingSink(16)
	allocs := testing.AllocsPerRun(200, func() {
		if err := c.Send(commands, 16, s); err != nil {
			t.Fatal(err)
		}
		<-s.done
	})
	if allocs != 0 {
		t.Errorf("%v allocations for a send and its replies", allocs)
	}
}
