package voters

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/scripts"
)

// An identity is what a server says about itself; zero while unknown, or if it says nothing.
type identity struct {
	runID   string
	cluster bool
}

// ensureConnected makes sure that the node is connected and known, and, with load, has the scripts.
func (n *Node) ensureConnected(ctx context.Context, load bool) error {
	if err := n.ensureMaster(ctx); err != nil {
		return err
	}
	if n.connected && (n.scriptsLoaded || !load) {
		return nil
	}
	if err := n.dial(); err != nil {
		return err
	}
	missing := load && !n.loadedBefore
	err := n.handshake(ctx, missing)
	var answered *rueidis.RedisError
	if err != nil && ctx.Err() == nil && !errors.As(err, &answered) {
		err = n.handshake(ctx, missing) // the first error may be that of the connection before
	}
	if err != nil {
		return err
	}
	err = n.set.checkServers(n)
	n.scriptsLoaded, n.loadedBefore = load, false
	if n.connected = err == nil; n.connected && n.connectionLost {
		n.connectionLost = false
		n.reconnected()
	}
	return err
}

// dial makes the client, which opens its connection by itself, and opens it again when it broke.
func (n *Node) dial() error {
	if n.client != nil {
		return nil
	}
	at, err := n.target()
	if err != nil {
		return err
	}
	c, err := at.Client(n.set.tune)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		c.Close()
		return locks.ErrClosed
	}
	n.client = c
	return nil
}

// Dialled is the client, nil if the worker has made none yet.
func (n *Node) Dialled() rueidis.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.client
}

// handshake asks who the server is and, with load, loads the scripts.
func (n *Node) handshake(ctx context.Context, load bool) error {
	b := n.client.B()
	cmds := []rueidis.Completed{b.Arbitrary("INFO", "server").Build()}
	if load {
		for _, s := range scripts.All() {
			cmds = append(cmds, b.Arbitrary("SCRIPT", "LOAD", s.Source).Build())
		}
	}
	if n.tracker != nil {
		cmds = append(cmds, b.Arbitrary("INFO", "replication").Build())
	}
	res := n.client.DoMulti(ctx, cmds...)
	for _, r := range res[1:] {
		if err := r.Error(); err != nil {
			return err
		}
	}
	if n.tracker != nil {
		said, err := res[len(res)-1].ToString()
		if err = cmp.Or(err, checkRole(said)); err != nil {
			return err
		}
	}
	info, err := res[0].ToString()
	if err != nil && !strings.Contains(err.Error(), "is not supported") { // embedded nodes do not say who they are
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.id = parseIdentity(info)
	return nil
}

// loadOneByOne loads the scripts for the next connection. A server that is too slow for all of them at once, as embedded nodes on a busy
// machine are, has a CallTimeout for each.
func (n *Node) loadOneByOne() {
	for _, s := range scripts.All() {
		ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
		err := n.client.Do(ctx, n.client.B().Arbitrary("SCRIPT", "LOAD", s.Source).Build()).Error()
		cancel()
		if err != nil {
			return
		}
	}
	n.loadedBefore = true
}

func parseIdentity(info string) identity {
	var id identity
	for line := range strings.Lines(info) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch k {
		case "run_id":
			id.runID = v
		case "redis_mode", "server_mode": // Redis's, and Valkey's
			id.cluster = v == "cluster"
		}
	}
	return id
}
