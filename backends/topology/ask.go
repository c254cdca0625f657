package topology

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
)

// probeTimeout bounds dialing a node, and waiting for its answer.
const probeTimeout = time.Second

// errNoAnswer means that none of the nodes answered.
var errNoAnswer = errors.New("no node answers")

// A probeConn is the connection to one node. used is set when a probe asks on it, and
// cleared by closeUnused after the probe.
type probeConn struct {
	rueidis.Client
	used bool
}

// askAll calls ask for all addresses at once, each with a connection to the node
// there, and returns when all calls have; addresses without a connection are skipped.
func (w *Watcher) askAll(addrs []string, ask func(i int, c rueidis.Client)) {
	w.askServers(addrs, w.server, ask)
}

// askServers is askAll where server makes the Server of an address.
func (w *Watcher) askServers(addrs []string, server func(string) *backends.Server, ask func(i int, c rueidis.Client)) {
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() {
			if c := w.conn(addr, server); c != nil {
				ask(i, c)
			}
		})
	}
	wg.Wait()
}

// server is the node at addr, reached as the seed is.
func (w *Watcher) server(addr string) *backends.Server {
	if w.seed.Single() && addr == w.seed.String() {
		return w.seed
	}
	return w.seed.At(addr)
}

// conn is the connection to the node at addr, opened if need be; nil if it cannot be.
func (w *Watcher) conn(addr string, server func(string) *backends.Server) rueidis.Client {
	w.mu.Lock()
	c := w.conns[addr]
	w.mu.Unlock()
	if c == nil { // dial outside the lock
		client, err := server(addr).Client(probeOptions)
		if err != nil {
			return nil
		}
		c = &probeConn{Client: client}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if other := w.conns[addr]; other != nil && other != c { // two goroutines dialed the same address
		c.Close()
		c = other
	}
	c.used = true
	w.conns[addr] = c
	return c.Client
}

// probeOptions set short timeouts, as a node that does not answer counts as gone, and
// no database, as no answer depends on it.
func probeOptions(opt *rueidis.ClientOption) {
	opt.Dialer.Timeout = min(opt.Dialer.Timeout, probeTimeout)
	opt.ConnWriteTimeout = probeTimeout
	opt.SelectDB = 0
}

// closeUnused closes the connections that the last probe did not use, and those to a
// standalone server, which is asked rarely.
func (w *Watcher) closeUnused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for addr, c := range w.conns {
		if !c.used || w.mode == ModeStandalone && !w.opt.Replicas {
			c.Close()
			delete(w.conns, addr)
			delete(w.lastRoles, addr)
		}
		c.used = false
	}
}

// do sends one command and waits probeTimeout at most for its reply.
func do(ctx context.Context, c rueidis.Client, args ...string) rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return c.Do(ctx, command(c, args...))
}

func command(c rueidis.Client, args ...string) rueidis.Completed {
	return c.B().Arbitrary(args[0]).Args(args[1:]...).Build()
}
