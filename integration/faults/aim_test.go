package faults

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestTap_HitsAtTheCall: what is not the call passes; the call is not sent, not answered, or
// answered before the aim is hit.
func TestTap_HitsAtTheCall(t *testing.T) {
	for _, when := range []string{unsent, unanswered, answered} {
		t.Run(when, func(t *testing.T) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer lis.Close()
			heard := make(chan string, 2)
			go func() {
				c, err := lis.Accept()
				if err != nil {
					return
				}
				buf := make([]byte, 100)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					heard <- string(buf[:n])
					_, _ = io.WriteString(c, "ok")
				}
			}()
			tap, err := openTap(lis.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer tap.Close()
			a := &aim{calls: [][]byte{[]byte("the call")}, when: when, hit: make(chan struct{})}
			tap.armed.Store(a)
			c, err := net.Dial("tcp", tap.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ask := func(what string) bool {
				_, _ = io.WriteString(c, what)
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				n, _ := c.Read(make([]byte, 10))
				return n > 0
			}
			if !ask("something else") || <-heard != "something else" {
				t.Error("what is no call does not pass")
			}
			select {
			case <-a.hit:
				t.Error("hit by something else")
			default:
			}
			if got := ask("this is the call"); got != (when == answered) {
				t.Errorf("the call is answered: %v", got)
			}
			<-a.hit
			if when != unsent && <-heard != "this is the call" || len(heard) > 0 {
				t.Error("the node has heard something else")
			}
		})
	}
}
