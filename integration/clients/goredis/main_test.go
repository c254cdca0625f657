// Package goredis has programs that use go-redis, with its pools and retries, at real proxies: services that count under a lock, the
// recipes, and clients that go on while proxies are restarted or changed. They lose nothing.
package goredis

import (
	"os"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	redistest.RemoveBinary()
	os.Exit(code)
}

// A rig is a data Redis, lock nodes of their own, and proxies that share them.
type rig struct {
	data    *redistest.Server
	nodes   []*redistest.Server
	proxies []*redistest.Proxy
}

// startRig starts everything with its default settings; args are the proxies'.
func startRig(t *testing.T, nodes, proxies int, args ...string) *rig {
	t.Helper()
	r := &rig{data: redistest.Start(t), nodes: redistest.StartNodes(t, nodes)}
	for range proxies {
		r.proxies = append(r.proxies, redistest.StartProxy(t, r.data, r.nodes, args...))
	}
	return r
}

func (r *rig) addr() string { return r.proxies[0].Addr() }

// eventually fails the test unless cond holds within that time; half a minute is given in any case, to a machine that is busy.
func eventually(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(max(within, 30*time.Second)); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// compareAndDelete is how programs release a lock.
const compareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`
