package redistest

import (
	"os"
	"testing"
	"time"
)

// A Rig is a data Redis, lock nodes of their own, and proxies that share them.
type Rig struct {
	Data    *Server
	Nodes   []*Server
	Proxies []*Proxy
}

// StartRig starts everything with its default settings, until the test ends; args are the proxies'.
func StartRig(tb testing.TB, nodes, proxies int, args ...string) *Rig {
	tb.Helper()
	r := &Rig{Data: Start(tb), Nodes: StartNodes(tb, nodes)}
	for range proxies {
		r.Proxies = append(r.Proxies, StartProxy(tb, r.Data, r.Nodes, args...))
	}
	return r
}

// Addr is that of the first proxy.
func (r *Rig) Addr() string { return r.Proxies[0].Addr() }

// Eventually polls until cond holds, and fails the test if it never does. A machine that has other things to do gets more time
// than within, which says how soon one expects it.
func Eventually(tb testing.TB, within time.Duration, what string, cond func() bool) {
	tb.Helper()
	deadline := time.Now().Add(max(within, 30*time.Second))
	for !cond() {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Main runs the tests of a package, removes what they had built, and ends the process. It is for TestMain.
func Main(m *testing.M) {
	code := m.Run()
	RemoveBinary()
	os.Exit(code)
}

// CompareAndDelete is the script by which programs release a lock.
const CompareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`
