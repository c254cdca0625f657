package main

import (
	"io"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A distance stands between a proxy and a lock node, and holds up each reply for a round trip, as a network between them would.
type distance struct {
	net.Listener
	node      *redistest.Server
	roundTrip time.Duration
}

func openDistance(node *redistest.Server, roundTrip time.Duration) (*distance, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &distance{l, node, roundTrip}
	go d.accept()
	return d, nil
}

func (d *distance) accept() {
	for {
		proxy, err := d.Accept()
		if err != nil {
			return
		}
		node, err := net.Dial("tcp", d.node.Addr())
		if err != nil {
			_ = proxy.Close()
			continue
		}
		go func() {
			_, _ = io.Copy(node, proxy)
			_ = node.Close()
		}()
		go func() {
			d.replies(proxy, node)
			_ = proxy.Close()
		}()
	}
}

// A late reply is passed on when it is due.
type late struct {
	due   time.Time
	bytes []byte
}

// replies passes on what the node says, in its order, each a round trip later.
func (d *distance) replies(proxy io.Writer, node io.Reader) {
	said := make(chan late, 1000)
	defer close(said)
	go func() {
		runtime.LockOSThread() // for a sleep of the kernel's, which is exact to 0.1 ms; the runtime's may take a millisecond more
		for r := range said {
			for rest := time.Until(r.due); rest > 0; rest = time.Until(r.due) { // a signal wakes it too early
				ts := unix.NsecToTimespec(int64(rest))
				_ = unix.Nanosleep(&ts, nil)
			}
			_, _ = proxy.Write(r.bytes) // if the proxy is gone, so is the node's connection
		}
	}()
	for {
		b := make([]byte, 16<<10)
		n, err := node.Read(b)
		if err != nil {
			return
		}
		said <- late{time.Now().Add(d.roundTrip), b[:n]}
	}
}
