package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// settleTimeout bounds how long servers may take to agree on their roles.
const settleTimeout = 2 * time.Minute

// Replicated is a master and its replicas. Roles change; the order of Servers does not.
type Replicated struct {
	Servers []*Server // the first was the master at the start
}

// StartReplicated starts a master and replicas, and returns when all are in sync.
// The arguments are those of every server; the servers end with the test.
func StartReplicated(tb testing.TB, replicas int, args ...string) *Replicated {
	tb.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	r := &Replicated{Servers: StartNodes(tb, 1+replicas, args...)}
	for _, s := range r.Servers[1:] {
		s.SetReplicaOf(tb, r.Servers[0])
	}
	r.AwaitSync(tb)
	return r
}

// URL has the addresses of all servers, also of those that are down.
func (r *Replicated) URL() string { return urlOf(r.Servers) }

// Master is the server with the role of the master. The test fails unless there is
// exactly one.
func (r *Replicated) Master(tb testing.TB) *Server {
	tb.Helper()
	var found []*Server
	for _, s := range r.Servers {
		if s.Running() && s.Role(tb) == "master" {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		tb.Fatalf("%d of %d servers say that they are the master", len(found), len(r.Servers))
	}
	return found[0]
}

// Replicas are the running servers with the role of a replica.
func (r *Replicated) Replicas(tb testing.TB) (found []*Server) {
	tb.Helper()
	for _, s := range r.Servers {
		if s.Running() && s.Role(tb) == "slave" {
			found = append(found, s)
		}
	}
	return found
}

// AwaitSync returns when all running servers but one are replicas in sync, and the
// master counts them all.
func (r *Replicated) AwaitSync(tb testing.TB) {
	tb.Helper()
	await(tb, "replication in sync", func() error {
		masters := 0
		for _, s := range r.Servers {
			switch {
			case !s.Running():
			case s.Role(tb) == "master":
				masters++
				if n := strings.Count(s.Info(tb, "replication"), ",state=online,"); n != r.running()-1 {
					return fmt.Errorf("%s has %d replicas that are in sync", s.Addr(), n)
				}
			case !s.InSync(tb):
				return fmt.Errorf("%s is not in sync", s.Addr())
			}
		}
		if masters != 1 {
			return fmt.Errorf("%d masters", masters)
		}
		return nil
	})
}

func (r *Replicated) running() (n int) {
	for _, s := range r.Servers {
		if s.Running() {
			n++
		}
	}
	return n
}

// SetReplicaOf makes s a replica of master, or a master if that is nil.
func (s *Server) SetReplicaOf(tb testing.TB, master *Server) {
	tb.Helper()
	if master == nil {
		s.Do(tb, "REPLICAOF", "NO", "ONE")
		return
	}
	host, port, _ := net.SplitHostPort(master.Addr())
	s.Do(tb, "REPLICAOF", host, port)
}

// Role is the server's role: master, slave or sentinel.
func (s *Server) Role(tb testing.TB) string {
	tb.Helper()
	return s.ask(tb, "ROLE").Elems[0].Text
}

// Info is the text of a section of INFO.
func (s *Server) Info(tb testing.TB, section string) string {
	tb.Helper()
	return s.ask(tb, "INFO", section).Text
}

// ask is Do for commands that only read. It repeats the command when the connection is
// lost, as when a sentinel or a node makes the server a replica.
func (s *Server) ask(tb testing.TB, args ...string) Value {
	tb.Helper()
	for range 20 {
		c, err := Dial(s.addr)
		if err != nil {
			break
		}
		v, err := c.Try(args...)
		_ = c.Close()
		if err == nil && !v.IsError() {
			return v
		}
		time.Sleep(10 * time.Millisecond)
	}
	return s.Do(tb, args...)
}

// InSync reports whether a replica has all of its master's keys and is connected.
func (s *Server) InSync(tb testing.TB) bool {
	tb.Helper()
	return strings.Contains(s.Info(tb, "replication"), "master_link_status:up")
}

// Calls is how often the server has executed a command, of all clients.
func (s *Server) Calls(tb testing.TB, command string) (n int) {
	tb.Helper()
	for line := range strings.Lines(s.Info(tb, "commandstats")) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			fmt.Sscanf(rest, "%d", &n)
		}
	}
	return n
}

// urlOf is a URL with the address of every server, and further parameters.
func urlOf(servers []*Server, parameters ...string) string {
	var all []string
	for _, s := range servers[1:] {
		all = append(all, "addr="+s.Addr())
	}
	if all = append(all, parameters...); len(all) == 0 {
		return servers[0].URL()
	}
	return servers[0].URL() + "?" + strings.Join(all, "&")
}

// await returns when ready gives no error, and fails the test with the last one
// after settleTimeout.
func await(tb testing.TB, what string, ready func() error) {
	tb.Helper()
	deadline := time.Now().Add(settleTimeout)
	for {
		err := ready()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
