package integration

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A heldLock is lock code as programs have it. <k> is the key, <v> the value, <ms> the lease, and bars are between commands.
type heldLock struct {
	name    string
	take    string
	granted string // the last reply, if it is granted
	also    string // what the holder sends, too
	release string
	done    string // the last reply, if it was released
}

var heldLocks = []heldLock{
	{"SET NX PX", "SET <k> <v> NX PX <ms>", "+OK", "GET <k>", "EVAL <cad> 1 <k> <v>", ":1"},
	{"hash", "EVAL <enter> 1 <k> <ms> <v>", "$-1", "EXISTS <k>", "EVAL <leave> 2 <k> latch:<v> <ms> <v>", ":1"},
	{"hash entered twice", "EVAL <enter> 1 <k> <ms> <v>", "$-1", "EVAL <enter> 1 <k> <ms> <v>", "EVAL <leave> 2 <k> latch1:<v> <ms> <v>|EVAL <leave> 2 <k> latch2:<v> <ms> <v>", ":1"},
	{"no-expiry=keep", "SETNX <k> <v>|PEXPIRE <k> <ms>", ":1", "TTL <k>", "DEL <k>", ":1"},
	{"MULTI", "MULTI|SET <k> <v> NX PX <ms>|EXEC", "*[+OK]", "WATCH <k>|GET <k>|MULTI|DEL <k>", "EXEC", "*[:1]"},
}

// says sends commands, and returns the last reply.
func (l *heldLock) says(c *redistest.Conn, commands, key, value string, lease time.Duration) (string, error) {
	fill := strings.NewReplacer("<k>", key, "<v>", value, "<ms>", fmt.Sprint(lease.Milliseconds()), "<cad>", compareAndDelete, "<enter>", enterOrLeft, "<leave>", leaveLatched)
	var v redistest.Value
	var err error
	for command := range strings.SplitSeq(commands, "|") {
		args := strings.Fields(command)
		for i := range args {
			args[i] = fill.Replace(args[i])
		}
		for v, err = c.Try(args...); err == nil && args[0] == "PEXPIRE" && v.IsError(); v, err = c.Try(args...) { // it would have no end
		}
		if err != nil || args[0] == "SETNX" && v.String() != ":1" {
			break
		}
	}
	return v.String(), err
}

// A tenure is a grant, as its client saw it.
type tenure struct {
	who              string
	asked, told, end time.Time // end: it has released it, or its lease is over, at the earliest
}

// A succession is one lock that a holder has, and others poll for.
type succession struct {
	*heldLock
	key    string
	lease  time.Duration
	holder *redistest.Conn

	stop    chan struct{}
	polls   atomic.Int64
	mu      sync.Mutex
	tenures []tenure // of all
	waiting sync.WaitGroup
}

// hold takes a lock at the first proxy, and lets others poll for it at all.
func (l *heldLock) hold(t *testing.T, r *rig, lease time.Duration) *succession {
	t.Helper()
	s := &succession{heldLock: l, lease: lease, holder: redistest.Open(t, r.addr()), stop: make(chan struct{})}
	s.key = fmt.Sprintf("lock:%s:%d", strings.ReplaceAll(l.name, " ", "-"), time.Now().UnixNano())
	asked := time.Now()
	for i, commands := range []string{l.take, l.also} {
		if got, err := l.says(s.holder, commands, s.key, "holder", lease); err != nil || i == 0 && got != l.granted {
			t.Fatalf("%s: %s, %v", l.name, got, err)
		}
	}
	s.note("holder", asked)
	for i, p := range r.proxies {
		for j := range 2 {
			s.waiting.Go(func() { s.poll(p.Addr(), fmt.Sprintf("waiter-%d-%d", i, j)) })
		}
	}
	return s
}

func (s *succession) note(who string, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenures = append(s.tenures, tenure{who, asked, time.Now(), asked.Add(s.lease)})
}

// poll asks until it has the lock, is told to stop, or its proxy is no more. Nobody gives back what it got so.
func (s *succession) poll(addr, value string) {
	c, err := redistest.Dial(addr)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	for got := ""; got != s.granted; s.polls.Add(1) {
		select {
		case <-s.stop:
			return
		case <-time.After(15 * time.Millisecond):
		}
		asked := time.Now()
		if got, err = s.says(c, s.take, s.key, value, s.lease); err != nil {
			return
		}
		if got == s.granted {
			s.note(value, asked)
		}
	}
}

// release gives the lock back.
func (s *succession) release(t *testing.T) {
	t.Helper()
	asked := time.Now()
	if got, err := s.says(s.holder, s.heldLock.release, s.key, "holder", s.lease); err != nil || got != s.done {
		t.Fatalf("%s is not given back: %s, %v", s.name, got, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenures[0].end = asked
}

// succeeds waits until another has the lock, and the others have asked for it for a while.
func (s *succession) succeeds(t *testing.T) {
	t.Helper()
	have := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.tenures)
	}
	eventually(t, time.Minute, s.name+": another has it", func() bool { return have() > 1 })
	for polls := s.polls.Load(); s.polls.Load() < polls+20 && have() < 3; {
		time.Sleep(time.Millisecond)
	}
}

// ends stops the clients, and checks that of two grants one was over when the other was told.
func (s *succession) ends(t *testing.T) {
	t.Helper()
	close(s.stop)
	s.waiting.Wait()
	const rounding = 2 * time.Millisecond // nodes count in ms
	for i, next := range s.tenures {
		for _, one := range s.tenures[:i] {
			if next.told.Before(one.end.Add(-rounding)) {
				t.Errorf("%s: %s was told that it has the lock %v before that of %s was over", s.name, next.who, one.end.Sub(next.told), one.who)
			}
		}
	}
}

// holdAll has each of heldLocks held.
func holdAll(t *testing.T, r *rig, lease time.Duration) (all []*succession) {
	t.Helper()
	for i := range heldLocks {
		all = append(all, heldLocks[i].hold(t, r, lease))
	}
	return all
}

// TestAdopt_Killed: who holds a lock is gone, or the proxy that has granted it, or one and then two of five lock nodes, while
// others poll: the lock goes to one of these when its lease is over, and not before.
func TestAdopt_Killed(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 2, "--adopt", "lock:*")
	for _, tt := range []struct {
		name string
		kill func(t *testing.T, all []*succession)
	}{
		{"the holders", func(t *testing.T, all []*succession) {
			for _, s := range all {
				if err := s.holder.Conn.(*net.TCPConn).SetLinger(0); err != nil { // as the kernel ends those of a process with unread data
					t.Fatal(err)
				}
				_ = s.holder.Close()
			}
		}},
		{"the proxy", func(t *testing.T, _ []*succession) {
			r.proxies[0].Kill()
			if err := r.proxies[0].Restart(); err != nil {
				t.Fatal(err)
			}
		}},
		{"a node", func(*testing.T, []*succession) { r.nodes[4].Kill() }},
		{"two nodes", func(*testing.T, []*succession) { r.nodes[2].Kill() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := holdAll(t, r, time.Second)
			tt.kill(t, all)
			for _, s := range all {
				s.succeeds(t)
				s.ends(t)
			}
		})
	}
}

// TestAdopt_NodesStopped: two of five lock nodes stop, and go on later with what they had not done. Meanwhile leases end, and locks
// are given back; no lock is granted twice, neither then nor when the nodes go on.
func TestAdopt_NodesStopped(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 2, "--adopt", "lock:*")
	for name, lease := range map[string]time.Duration{"leases end": time.Second, "locks are given back": 50 * time.Second} {
		t.Run(name, func(t *testing.T) {
			all := holdAll(t, r, lease)
			stopped := []*redistest.Server{r.nodes[1], r.nodes[3]}
			for _, node := range stopped {
				node.Pause()
			}
			for _, s := range all {
				if lease > 10*time.Second {
					s.release(t)
				}
				s.succeeds(t)
			}
			for _, node := range stopped {
				node.Resume()
				node.Do(t, "PING")
			}
			for _, s := range all {
				s.succeeds(t)
				s.ends(t)
			}
		})
	}
}
