package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands"
)

const (
	benchCommand = "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"
	benchReply   = "$5\r\nvalue\r\n"
)

// answerAll is an upstream that knows one command, and allocates nothing for it.
func answerAll(nc net.Conn) {
	buf := make([]byte, 64<<10)
	replies := []byte(bytes.Repeat([]byte(benchReply), len(buf)/len(benchCommand)+1))
	hello := true
	for have := 0; ; {
		n, err := nc.Read(buf[have:])
		if err != nil {
			return
		}
		if hello { // the greeting is a PING
			hello = false
			nc.Write([]byte("+PONG\r\n"))
			continue
		}
		have += n
		whole := have / len(benchCommand)
		nc.Write(replies[:whole*len(benchReply)])
		have = copy(buf, buf[whole*len(benchCommand):have])
	}
}

// BenchmarkRelay is a GET from a client's socket through a Server to an upstream's
// socket and back; ns and allocations are of all three, for one command.
func BenchmarkRelay(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go answerAll(nc)
		}
	}()
	up, err := backends.Parse("redis://" + ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	pool := upstream.New(upstream.Options{PoolOptions: upstream.PoolOptions{Server: up, Log: log}})
	defer pool.Close()
	srv, err := New(Options{Listen: "127.0.0.1:0", Log: log}, commands.New(commands.Options{Upstream: pool, Log: log}))
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- srv.Serve(ctx) }()
	defer func() { stop(); <-ended }()

	for _, depth := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("P%d", depth), func(b *testing.B) {
			nc, err := net.Dial("tcp", srv.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			out := bytes.Repeat([]byte(benchCommand), depth)
			in := make([]byte, depth*len(benchReply))
			b.ReportAllocs()
			for n := 0; n < b.N; n += depth {
				if _, err := nc.Write(out); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(nc, in); err != nil {
					b.Fatal(err)
				}
			}
			if !bytes.HasPrefix(in, []byte(benchReply)) || !bytes.HasSuffix(in, []byte(benchReply)) {
				b.Fatalf("got %.60q", in)
			}
		})
	}
}
