package upstream

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/topology"
)

// drainTime is how long a node that has left a Cluster may answer what was sent to it
// before.
const drainTime = time.Second

var errNoMaster = errors.New("no master is known")

// Options are read once by New.
type Options struct {
	PoolOptions // of every node's pool; Server is the first node
	ReadFrom    ReadFrom
	// Refresh asks for a new topology. It is called when nodes seem to have changed
	// roles, and must not block. May be nil.
	Refresh func()
}

// An Upstream is where clients' commands go: one Redis, or several nodes that
// together are one. It has a Pool for each node of the topology that SetTopology gave
// it last. It is safe for concurrent use.
type Upstream struct {
	opt      Options
	counters *counters // of all pools, also of closed ones
	none     *Pool     // of no node, for views
	view     atomic.Pointer[View]
	hint     atomic.Uint32
	closing  chan struct{} // closed by Close

	mu           sync.Mutex // held while the view is replaced
	pools        map[node]*Pool
	topology     *topology.Topology
	topologyView *View // of topology; differs from view after Moved
	lacksMaster  bool  // one that was down is gone, and no other has come
	closed       bool
	wg           sync.WaitGroup // goroutines that close pools of nodes that are gone
	changed      chan struct{}  // closed when the view is replaced; nil: Changed was not called
}

// A node is one server in one role. A server that changes its role is another node:
// connections to a master must not be used as those to a replica.
type node struct {
	addr    string
	replica bool
}

// New makes an Upstream of the one node that opt names; nothing is dialed yet. The
// caller closes it.
func New(opt Options) *Upstream {
	u := &Upstream{
		opt: opt, counters: newCounters(), none: NewPool(PoolOptions{Log: opt.Log}),
		pools: map[node]*Pool{}, closing: make(chan struct{}),
	}
	if u.opt.Refresh == nil {
		u.opt.Refresh = func() {}
	}
	u.SetTopology(&topology.Topology{Shards: []topology.Shard{{Master: opt.Server}}})
	return u
}

// DefaultIdentity is the identity of a new client: the credentials and the database of
// the upstream's URL, RESP2.
func (u *Upstream) DefaultIdentity() Identity {
	user, secret := u.opt.Server.Credentials()
	return Identity{User: user, Secret: secret, DB: u.opt.Server.DB(), Proto: 2}
}

// Hint returns numbers that spread clients evenly over shared connections and
// replicas.
func (u *Upstream) Hint() uint32 { return u.hint.Add(1) }

// View is the present view.
func (u *Upstream) View() *View { return u.view.Load() }

// Changed is the present view, and a channel that is closed when another replaces it.
func (u *Upstream) Changed() (*View, <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.changed == nil {
		u.changed = make(chan struct{})
	}
	return u.view.Load(), u.changed
}

func (u *Upstream) publishLocked(v *View) {
	u.view.Store(v)
	if u.changed != nil {
		close(u.changed)
		u.changed = nil
	}
}

// Pool is FirstMaster of the present view.
func (u *Upstream) Pool() *Pool { return u.view.Load().FirstMaster() }

// Refresh asks for a new topology. It does not block.
func (u *Upstream) Refresh() { u.opt.Refresh() }

// SetTopology makes a view of t. Pools of nodes that are gone, or have another role,
// are closed, which fails what waits for them; those of a Cluster after drainTime. If t
// changes nothing, the view and the pools stay.
func (u *Upstream) SetTopology(t *topology.Topology) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || u.topology.Equal(t) && u.view.Load() == u.topologyView {
		return
	}
	before, made := u.pools, []*Pool(nil) // those made are of masters
	u.pools, u.topology = map[node]*Pool{}, t
	keep := func(s *backends.Server, replica bool) *Pool {
		n := node{addrOf(s), replica}
		p := before[n]
		if p == nil {
			p = u.newPool(s, replica)
			if !replica {
				made = append(made, p)
			}
		}
		u.pools[n] = p
		delete(before, n)
		return p
	}
	v := &View{slots: t.Slots, read: u.opt.ReadFrom, none: u.none}
	for _, s := range t.Shards {
		var sh shard
		if s.Master != nil || t.Slots == nil {
			sh.master = keep(s.Master, false)
		}
		if u.opt.ReadFrom != FromMaster {
			for _, r := range s.Replicas {
				sh.replicas = append(sh.replicas, keep(r, true))
			}
		}
		v.shards = append(v.shards, sh)
	}
	u.topologyView = v
	u.noteReplacedLocked(before, made)
	u.publishLocked(v)
	for _, p := range before {
		p.drain()
		u.wg.Go(func() { u.closePool(p, t.Slots != nil) })
	}
}

// noteReplacedLocked has the masters that took the place of one that is down log when they are reached: its own pool, which logged that
// it is down, is closed.
func (u *Upstream) noteReplacedLocked(gone map[node]*Pool, made []*Pool) {
	for n, p := range gone {
		u.lacksMaster = u.lacksMaster || !n.replica && (p.downSince.Load() != 0 || p.replaces.Load())
	}
	for _, p := range made {
		p.replaces.Store(u.lacksMaster)
	}
	u.lacksMaster = u.lacksMaster && len(made) == 0
}

// closePool closes the pool of a node that is gone; late: after drainTime, as a
// Cluster's node itself refuses commands for slots that it no longer serves.
func (u *Upstream) closePool(p *Pool, late bool) {
	if late {
		select {
		case <-time.After(drainTime):
		case <-u.closing:
		}
	}
	p.Close()
}

func addrOf(s *backends.Server) string {
	if s == nil {
		return ""
	}
	return s.String()
}

func (u *Upstream) newPool(s *backends.Server, replica bool) *Pool {
	opt := u.opt.PoolOptions
	opt.Server = s
	opt.counters = u.counters
	opt.refresh, opt.readOnly = u.opt.Refresh, replica
	return NewPool(opt)
}

// Moved notes that a slot of a Cluster is served by the master at addr, as a MOVED
// error tells, until the next SetTopology, and asks for that. It returns the pool of
// that master; nil after Close.
func (u *Upstream) Moved(slot int, addr string) *Pool {
	defer u.opt.Refresh()
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.masterAtLocked(addr)
	v := u.view.Load()
	if p == nil || v.slots == nil || v.Master(slot) == p {
		return p
	}
	u.publishLocked(v.withMaster(slot, p))
	return p
}

// MasterAt is the pool of the master at addr, made if need be; nil after Close.
func (u *Upstream) MasterAt(addr string) *Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.masterAtLocked(addr)
}

// KnownMaster is the pool of the master at addr; nil if there is none yet.
func (u *Upstream) KnownMaster(addr string) *Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pools[node{addr: addr}]
}

func (u *Upstream) masterAtLocked(addr string) *Pool {
	n := node{addr: addr}
	p := u.pools[n]
	if p == nil && !u.closed {
		p = u.newPool(u.opt.Server.At(addr), false)
		u.pools[n] = p
	}
	return p
}

// Forget is [Pool.Forget] for every node.
func (u *Upstream) Forget(id Identity) {
	for _, p := range u.all() {
		p.Forget(id)
	}
}

// Revalidate is [Pool.Revalidate] for every node.
func (u *Upstream) Revalidate() {
	for _, p := range u.all() {
		p.Revalidate()
	}
}

func (u *Upstream) all() []*Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Values(u.pools))
}

// Close ends all connections and returns when all goroutines of the Upstream and its
// pools have ended.
func (u *Upstream) Close() {
	u.mu.Lock()
	if !u.closed {
		close(u.closing)
	}
	u.closed = true
	u.mu.Unlock()
	for _, p := range u.all() {
		p.Close()
	}
	u.wg.Wait()
}
