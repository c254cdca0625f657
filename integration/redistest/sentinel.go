package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// MasterSet is the sentinels' name of the master.
const MasterSet = "mymaster"

// A Sentinel is a replicated Redis and its sentinels, which notice within a second
// that the master is gone.
type Sentinel struct {
	Replicated
	Sentinels []*Server
}

// StartSentinel starts a master with replicas, and sentinels, and returns when all
// know each other. args are those of the data servers; everything ends with the test.
func StartSentinel(tb testing.TB, replicas, sentinels int, args ...string) *Sentinel {
	tb.Helper()
	// A replica that lags would otherwise not be chosen for minutes.
	args = append([]string{"--repl-ping-replica-period", "1"}, args...)
	s := &Sentinel{Replicated: *StartReplicated(tb, replicas, args...)}
	s.Sentinels = startAll(tb, sentinels, func() (*Server, error) { return prepareSentinel(s.Servers[0], sentinels/2+1) })
	for _, w := range s.Sentinels {
		hasten(tb, w)
	}
	s.AwaitWatch(tb)
	return s
}

// prepareSentinel makes a sentinel that knows the master alone, without starting it.
func prepareSentinel(master *Server, quorum int) (*Server, error) {
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	s, err := bare(addr)
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(master.Addr())
	_, own, _ := net.SplitHostPort(addr)
	conf := filepath.Join(s.Dir, "sentinel.conf") // which it writes itself from then on
	s.args = []string{conf, "--sentinel"}
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\n"+
		"sentinel monitor %[3]s %s %s %d\n"+
		"sentinel down-after-milliseconds %[3]s 800\n"+
		"sentinel failover-timeout %[3]s 3000\n"+
		"sentinel parallel-syncs %[3]s 8\n", own, s.Dir, MasterSet, host, port, quorum)
	return s, os.WriteFile(conf, []byte(text), 0o600)
}

// hasten shortens a sentinel's intervals for PING, INFO and PUBLISH until it ends.
func hasten(tb testing.TB, s *Server) {
	tb.Helper()
	s.Do(tb, "SENTINEL", "DEBUG", "info-period", "300", "ping-period", "200", "ask-period", "200", "publish-period", "300")
}

// URL has the addresses of all sentinels and the master set.
func (s *Sentinel) URL() string {
	return urlOf(s.Sentinels, "master_set="+MasterSet)
}

// AwaitWatch returns when all running sentinels name the same running master, and
// know all running replicas and sentinels.
func (s *Sentinel) AwaitWatch(tb testing.TB) {
	tb.Helper()
	s.AwaitSync(tb)
	master := s.Replicated.Master(tb)
	await(tb, "the sentinels know each other", func() error {
		watching := 0
		for _, w := range s.Sentinels {
			if w.Running() {
				watching++
			}
		}
		for _, w := range s.Sentinels {
			if !w.Running() {
				continue
			}
			if got := s.masterAt(tb, w); got != master.Addr() {
				return fmt.Errorf("%s takes %s for the master, not %s", w.Addr(), got, master.Addr())
			}
			replicas, others := known(tb, w, "REPLICAS"), known(tb, w, "SENTINELS")
			if replicas != s.running()-1 || others < watching-1 {
				return fmt.Errorf("%s knows %d replicas that are up, and %d other sentinels", w.Addr(), replicas, others)
			}
		}
		return nil
	})
}

// known is the number of entries of a SENTINEL command without a down flag.
func known(tb testing.TB, w *Server, what string) (n int) {
	tb.Helper()
	for _, e := range w.ask(tb, "SENTINEL", what, MasterSet).Elems {
		f := fields(e)
		if !strings.Contains(f["flags"], "down") && !strings.Contains(f["flags"], "disconnected") && (what != "REPLICAS" || f["master-link-status"] == "ok") {
			n++
		}
	}
	return n
}

// fields are the names and values of a flat list.
func fields(v Value) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(v.Elems); i += 2 {
		m[v.Elems[i].Text] = v.Elems[i+1].Text
	}
	return m
}

func (s *Sentinel) masterAt(tb testing.TB, sentinel *Server) string {
	tb.Helper()
	v := sentinel.ask(tb, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterSet)
	if len(v.Elems) != 2 {
		return v.String()
	}
	return net.JoinHostPort(v.Elems[0].Text, v.Elems[1].Text)
}

// Master is the server that the running sentinels name as the master, the first one's
// if they differ. It may be down.
func (s *Sentinel) Master(tb testing.TB) *Server {
	tb.Helper()
	for _, w := range s.Sentinels {
		if !w.Running() {
			continue
		}
		addr := s.masterAt(tb, w)
		for _, d := range s.Servers {
			if d.Addr() == addr {
				return d
			}
		}
	}
	tb.Fatal("no sentinel knows a master")
	return nil
}

// AwaitFailover returns the new master when all running sentinels name another running
// server than old, and that has the role.
func (s *Sentinel) AwaitFailover(tb testing.TB, old *Server) (now *Server) {
	tb.Helper()
	await(tb, "failover from "+old.Addr(), func() error {
		now = s.Master(tb)
		if now == old || !now.Running() || now.Role(tb) != "master" {
			return fmt.Errorf("%s is still the master", now.Addr())
		}
		for _, w := range s.Sentinels {
			if w.Running() && s.masterAt(tb, w) != now.Addr() {
				return fmt.Errorf("%s has not heard of %s", w.Addr(), now.Addr())
			}
		}
		return nil
	})
	return now
}

// Failover asks for a coordinated failover and returns the new master.
func (s *Sentinel) Failover(tb testing.TB) *Server {
	tb.Helper()
	old := s.Master(tb)
	await(tb, "a failover is accepted", func() error {
		c, err := Dial(s.Sentinels[0].Addr())
		if err != nil {
			return err
		}
		defer c.Close()
		v, err := c.Try("SENTINEL", "FAILOVER", MasterSet)
		if err == nil && v.IsError() { // no good replica yet, or one is under way
			err = fmt.Errorf("%v", v)
		}
		return err
	})
	return s.AwaitFailover(tb, old)
}
