package integration

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// The upstream's own limit decides how far a subscriber may lag behind: the proxy
// holds up what comes for a client that does not read, and keeps only little of it.
func TestSubscriber_DoesNotRead(t *testing.T) {
	t.Parallel()
	message := strings.Repeat("m", 1<<20)
	for _, tt := range []struct {
		name, limit string
		publish     int
		killed      bool
	}{
		{"beyond the limit", "pubsub 4mb 0 0", 64, true},
		{"without a limit", "pubsub 0 0 0", 40, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, 1, 1)
			r.data.Do(t, "CONFIG", "SET", "client-output-buffer-limit", tt.limit)
			slow := redistest.Open(t, r.addr())
			slow.Do(t, "SUBSCRIBE", "news")
			publish := func() (lost bool) {
				for range tt.publish {
					lost = lost || r.data.Do(t, "PUBLISH", "news", message).Int() == 0
				}
				return lost
			}
			lost := publish()
			if tt.killed && !lost {
				slow.Close()
				redistest.Open(t, r.data.Addr()).Do(t, "SUBSCRIBE", "news")
				if !publish() {
					t.Skip("this server leaves messages out, and drops nobody") // Valkey 9.1
				}
			}
			if lost != tt.killed {
				t.Fatalf("the upstream has dropped the subscriber: %v, want %v", lost, tt.killed)
			}
			got, err := 0, error(nil)
			for got < tt.publish {
				var v redistest.Value
				if v, err = slow.Next(); err != nil {
					break
				}
				if len(v.Elems) != 3 || v.Elems[2].Text != message {
					t.Fatalf("message %d is not as it was published", got)
				}
				got++
			}
			if tt.killed && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || !tt.killed && err != nil {
				t.Errorf("after %d of %d messages: %v", got, tt.publish, err)
			}
		})
	}
}

// What the upstream sent before it closed reaches a client however slowly it reads.
func TestCloseGrace_ClientDoesNotRead(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	slow := redistest.Open(t, r.addr())
	const n = 24
	r.data.Do(t, "SET", "big", strings.Repeat("b", 1<<20))
	slow.Do(t, "CLIENT", "REPLY", "ON") // from here on the upstream sees QUIT itself
	slow.Send(t, strings.Repeat(redistest.Command("GET", "big"), n)+redistest.Command("QUIT"))
	time.Sleep(3 * time.Second) // longer than the looks at a connection that is not read
	for i := range n {
		if v := slow.Read(t); len(v.Text) != 1<<20 {
			t.Fatalf("value %d: %.60s", i, v)
		}
	}
	if v := slow.Read(t); v.String() != "+OK" {
		t.Errorf("QUIT: %v", v)
	}
	if v, err := slow.Next(); err == nil {
		t.Errorf("after QUIT: %v", v)
	}
}
