package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

type groupKey struct {
	loginKey
	db    int
	proto int
	class ConnClass
}

func (p *Pool) key(id Identity, class ConnClass) groupKey {
	return groupKey{p.loginKey(id), id.DB, id.Proto, class}
}

// A group is the shared connections of one identity and class, and the spare private
// one of its main class.
type group struct {
	wantsSpare atomic.Bool // a client has had a private connection

	mu      sync.Mutex // held while dialing: concurrent calls wait for the same result
	conns   []*Conn    // by hint; nil: not opened yet
	failed  time.Time  // when the last dial failed
	err     error      // of the last dial
	evicted bool       // from the pool: connections are retired

	spareMu  sync.Mutex // held while the spare is opened
	spare    *Conn      // private, without an owner; may be nil or broken
	noSpares bool       // evicted
}

// group is the group of an identity and class, made if need be.
func (p *Pool) group(id Identity, class ConnClass) (*group, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.draining.Load() {
		return nil, &DownError{errClosed}
	}
	k := p.key(id, class)
	g, ok := p.groups.Get(k)
	if !ok {
		g = &group{conns: make([]*Conn, p.opt.Conns)}
		p.groups.Add(k, g)
	}
	return g, nil
}

// openSpare opens the group's spare connection if there is none.
func (p *Pool) openSpare(id Identity, g *group) {
	g.spareMu.Lock()
	defer g.spareMu.Unlock()
	if g.noSpares || g.spare != nil && g.spare.Alive() {
		return
	}
	if c, err := p.open(context.Background(), id, false); err == nil {
		g.spare = c
	} // else the error is that of the client that needs one
}

// takeSpare takes the spare connection, and has another opened from now on. It waits
// for one that is being opened, which will be there sooner than the next. nil: there
// is none.
func (g *group) takeSpare() (c *Conn) {
	g.wantsSpare.Store(true)
	g.spareMu.Lock()
	defer g.spareMu.Unlock()
	c, g.spare = g.spare, nil
	return c
}

// retire retires the connections of an evicted group. It waits for those that are
// being opened.
func (g *group) retire() {
	g.spareMu.Lock()
	g.noSpares = true
	if g.spare != nil {
		g.spare.Close()
	}
	g.spareMu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.evicted = true
	for _, c := range g.conns {
		if c != nil {
			c.retire()
		}
	}
}
