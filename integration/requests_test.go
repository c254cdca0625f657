package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// awaitNoLocks fails unless every hold is gone long before its lease is over.
func (r *rig) awaitNoLocks(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); r.lockKeys(t) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			for _, n := range r.nodes {
				t.Error(n.Do(t, "KEYS", "lockproxy:lock:*"))
			}
			return
		}
	}
}

// TestRequestIDs_LocksOfVanishedClients have no REQ: whoever has closed its connection before the
// nodes answer leaves nothing behind.
func TestRequestIDs_LocksOfVanishedClients(t *testing.T) {
	t.Parallel()
	const paused = 400 * time.Millisecond
	r := startRig(t, 3, 1)
	for i, early := 0, 0; early < 8; i++ {
		if i == 100 {
			t.Fatalf("only %d times everybody was gone while the nodes were silent", early)
		}
		began := time.Now()
		for _, n := range r.nodes {
			n.Do(t, "CLIENT", "PAUSE", fmt.Sprint(paused.Milliseconds()), "ALL")
		}
		var gone []*redistest.Conn
		for j := range 5 {
			c, err := redistest.Dial(r.addr())
			if err != nil {
				t.Fatal(err)
			}
			c.Send(t, redistest.Command("LOCK", fmt.Sprint("job", i*j%7), "30s", "WAIT", fmt.Sprint(j*1000)))
			gone = append(gone, c)
		}
		time.Sleep(20 * time.Millisecond) // the nodes are asked
		for _, c := range gone {
			_ = c.Close()
		}
		if time.Since(began) < paused/2 {
			early++
			time.Sleep(paused)
			continue
		}
		r.forceAll(t) // somebody may have had its answer
	}
	r.awaitNoLocks(t)
}

// forceAll takes away what is held, once the nodes answer.
func (r *rig) forceAll(t *testing.T) {
	t.Helper()
	c := redistest.Open(t, r.addr())
	for i := range 7 {
		name := fmt.Sprint("job", i)
		eventually(t, 20*time.Second, name+" can be forced", func() bool {
			return !c.Do(t, "LOCKCTL", "FORCE", name).IsError()
		})
	}
}
