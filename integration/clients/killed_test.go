package clients

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// killedLease is that of locks whose holder gives them not back.
const killedLease = 4 * time.Second

// killedClients are names of lockClients, one for each language and way to lock.
var killedClients = []string{"redis-py 8.1.0", "redsync 4.18.1", "rslock 0.7.0", "redlock 5.0.0-beta.2", "Spring Integration 7.1.0 RedisLockRegistry, spinning", "Redisson 4.7.0 RLock, lease time"}

// TestAdopted_Killed: where the process that has a lock is killed, or its proxy, or lock nodes, the next one gets the lock when its lease
// is over and not before, and gives it back.
func TestAdopted_Killed(t *testing.T) {
	if os.Getenv(adoptedSwitch) == "" {
		t.Skipf("fetches lock libraries; set %s=1", adoptedSwitch)
	}
	for _, name := range killedClients {
		i := slices.IndexFunc(lockClients, func(c lockClient) bool { return c.name == name })
		if i < 0 {
			t.Fatalf("no client is called %s", name)
		}
		c := lockClients[i]
		dir, err := c.installed()
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name string
			kill func(s *adoptedSite, holder *updater)
		}{
			{"holder", func(_ *adoptedSite, holder *updater) { holder.kill() }},
			{"its proxy", func(s *adoptedSite, _ *updater) { s.proxies[0].Kill() }},
			{"a node", func(s *adoptedSite, _ *updater) { s.nodes[2].Kill() }},
			{"two nodes", func(s *adoptedSite, _ *updater) { s.nodes[2].Kill(); s.nodes[4].Kill() }},
		} {
			t.Run(c.name+"/"+tt.name, func(t *testing.T) {
				s := newAdoptedSite(t, c.adopt)
				s.data.Do(t, "SET", "counter", "0")
				var both [2]*updater
				for i, addr := range s.addrs() {
					both[i] = startUpdater(t, dir, c.program, addr, 1, "HOLD=1", fmt.Sprint("LEASE=", int(killedLease.Seconds())))
					both[i].mustSay(t, "ready")
				}
				holder, next := both[0], both[1]
				asked := time.Now()
				fmt.Fprintln(holder.in)
				holder.mustSay(t, "held")
				fmt.Fprintln(next.in)
				time.Sleep(killedLease / 8) // it has been refused meanwhile, or has yet to ask
				tt.kill(s, holder)
				next.mustSay(t, "held")
				took := time.Since(asked)
				if took < killedLease-10*time.Millisecond {
					t.Errorf("the next one has it after %v, and the lease is %v", took, killedLease)
				}
				fmt.Fprintln(next.in)
				if next.mustSay(t, "done 1"); s.data.Do(t, "GET", "counter").Int() != 1 {
					t.Error("the next one has not counted")
				}
				t.Logf("the next one has it %v after the lease", (took - killedLease).Round(time.Millisecond))
			})
		}
	}
}

// mustSay reads a line.
func (u *updater) mustSay(t *testing.T, want string) {
	t.Helper()
	if line := u.line(); line != want {
		t.Fatalf("%q, want %q: %.3000s", line, want, u.rest())
	}
}
