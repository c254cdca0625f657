package upstream

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/topology"
)

// ReadFrom says which nodes commands that only read may be sent to.
type ReadFrom uint8

const (
	FromMaster  ReadFrom = iota // the master alone
	FromReplica                 // a replica, or the master if there is none
	FromAny                     // any of them
)

// Options are read once by New.
type Options struct {
	PoolOptions // of the pool of every node; Server is the one to begin with
	ReadFrom    ReadFrom
	// Refresh is called when there is reason to think that nodes have changed their
	// places; it must not block. May be nil.
	Refresh func()
}

// An Upstream is where clients' commands go: one Redis, or several nodes that
// together are one. It keeps a Pool for each of them, and takes over from SetTopology
// where they are. It is safe for concurrent use.
type Upstream struct {
	opt   Options
	meter *meters // of all pools there ever were
	view  atomic.Pointer[View]
	next  atomic.Uint32

	mu     sync.Mutex // held while the view is replaced
	pools  map[node]*Pool
	top    *topology.Topology
	made   *View // of top; Moved may have put another in its place
	closed bool
	wg     sync.WaitGroup // pools that are being closed
	ending chan struct{}  // closed by Close
	news   chan struct{}  // closed when the view is replaced; may be nil
}

// A node is one server in one role. A server that changes its role is another node:
// connections made to a master must not be used for a replica.
type node struct {
	addr    string
	replica bool
}

// A View is which node serves what, at one time. It is immutable.
type View struct {
	shards []shard
	slots  []uint16 // nil: not a Cluster
	read   ReadFrom
}

type shard struct {
	master   *Pool // of a Cluster's shard nil if there is none
	replicas []*Pool
}

var errNoMaster = errors.New("no master is known")

// New makes an Upstream of the one node that opt names; nothing is dialed yet.
func New(opt Options) *Upstream {
	u := &Upstream{opt: opt, meter: newMeters(), pools: map[node]*Pool{}, ending: make(chan struct{})}
	if u.opt.Refresh == nil {
		u.opt.Refresh = func() {}
	}
	u.SetTopology(&topology.Topology{Shards: []topology.Shard{{Master: opt.Server}}})
	return u
}

// DefaultIdentity is the identity of a client that has said nothing: the credentials and
// the database of the upstream's URL, RESP2.
func (u *Upstream) DefaultIdentity() Identity {
	user, secret := u.opt.Server.Credentials()
	return Identity{User: user, Secret: secret, DB: u.opt.Server.DB(), Proto: 2}
}

// Hint gives numbers that spread clients over shared connections evenly.
func (u *Upstream) Hint() uint32 { return u.next.Add(1) }

// View is which node serves what, now.
func (u *Upstream) View() *View { return u.view.Load() }

// Changed is the view, and a channel that is closed once there is another.
func (u *Upstream) Changed() (*View, <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.news == nil {
		u.news = make(chan struct{})
	}
	return u.view.Load(), u.news
}

func (u *Upstream) publishLocked(v *View) {
	u.view.Store(v)
	if u.news != nil {
		close(u.news)
		u.news = nil
	}
}

// Pool is the pool of the node for what belongs to no slot: the master, or one of a
// Cluster's.
func (u *Upstream) Pool() *Pool { return u.view.Load().FirstMaster() }

// Refresh says that nodes may have changed their places.
func (u *Upstream) Refresh() { u.opt.Refresh() }

// SetTopology takes over where the nodes are. The pools of nodes that are gone, or have
// another role, are closed: what waits on them fails. While nothing changes, views
// and pools stay.
func (u *Upstream) SetTopology(t *topology.Topology) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || u.top.Equal(t) && u.view.Load() == u.made {
		return
	}
	before := u.pools
	u.pools, u.top = map[node]*Pool{}, t
	keep := func(s *backends.Server, replica bool) *Pool {
		n := node{addrOf(s), replica}
		p := before[n]
		if p == nil {
			p = u.poolOf(s, replica)
		}
		u.pools[n] = p
		delete(before, n)
		return p
	}
	v := &View{slots: t.Slots, read: u.opt.ReadFrom}
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
	u.made = v
	u.publishLocked(v)
	for _, p := range before {
		if p.drain(); t.Slots == nil {
			u.wg.Go(p.Close)
			continue
		}
		u.wg.Go(func() { // a Cluster's node refuses, itself, what is another's now
			select {
			case <-time.After(leaveTime):
			case <-u.ending:
			}
			p.Close()
		})
	}
}

// leaveTime is how long a node that a Cluster's slots have left may take to answer
// what was sent to it before.
const leaveTime = time.Second

func addrOf(s *backends.Server) string {
	if s == nil {
		return ""
	}
	return s.String()
}

func (u *Upstream) poolOf(s *backends.Server, replica bool) *Pool {
	opt := u.opt.PoolOptions
	opt.Server = s
	opt.meter = u.meter
	opt.hurry, opt.readOnly = u.opt.Refresh, replica
	return NewPool(opt)
}

// Moved takes over that a slot of a Cluster is served by the master at addr, as a
// node said, until SetTopology says more. The pool of that master is returned.
func (u *Upstream) Moved(slot int, addr string) *Pool {
	defer u.opt.Refresh()
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.atLocked(addr)
	v := u.view.Load()
	if p == nil || v.slots == nil || v.Master(slot) == p {
		return p
	}
	w := &View{shards: v.shards, slots: slices.Clone(v.slots), read: v.read}
	i := slices.IndexFunc(w.shards, func(s shard) bool { return s.master == p })
	if i < 0 {
		i = len(w.shards)
		w.shards = append(slices.Clone(w.shards), shard{master: p})
	}
	w.slots[slot] = uint16(i)
	u.publishLocked(w)
	return p
}

// MasterAt is the pool of the master at addr, which a node has named. It is nil once the
// upstream is closed.
func (u *Upstream) MasterAt(addr string) *Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.atLocked(addr)
}

// KnownMaster is MasterAt for a master that SetTopology, Moved or MasterAt have heard of; else nil.
func (u *Upstream) KnownMaster(addr string) *Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pools[node{addr: addr}]
}

func (u *Upstream) atLocked(addr string) *Pool {
	n := node{addr: addr}
	p := u.pools[n]
	if p == nil && !u.closed {
		p = u.poolOf(u.opt.Server.At(addr), false)
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
	var all []*Pool
	for _, p := range u.pools {
		all = append(all, p)
	}
	return all
}

// Close ends all connections and returns when their goroutines have ended.
func (u *Upstream) Close() {
	u.mu.Lock()
	if !u.closed {
		close(u.ending)
	}
	u.closed = true
	u.mu.Unlock()
	for _, p := range u.all() {
		p.Close()
	}
	u.wg.Wait()
}

// Cluster says that keys belong to slots.
func (v *View) Cluster() bool { return v.slots != nil }

// FirstMaster is the pool of the node for what belongs to no slot. It is never nil.
func (v *View) FirstMaster() *Pool {
	for _, s := range v.shards {
		if s.master != nil {
			return s.master
		}
	}
	return missing
}

// missing is the pool of a node that is not known.
var missing = NewPool(PoolOptions{})

// Master is the pool of the master that serves a slot; nil if none does.
func (v *View) Master(slot int) *Pool {
	if s := v.serving(slot); s != nil {
		return s.master
	}
	return nil
}

// Reader is the pool of the node that a command which only reads the slot may be
// sent to; nil if none serves it. A client that always gives the same hint keeps to
// the same node while nothing changes.
func (v *View) Reader(slot int, hint uint32) *Pool {
	s := v.serving(slot)
	if s == nil {
		return nil
	}
	n := uint32(len(s.replicas))
	if v.read == FromAny && hint%(n+1) == n {
		return s.master
	}
	for i := range n {
		if p := s.replicas[(hint+i)%n]; p.Up() {
			return p
		}
	}
	return s.master
}

func (v *View) serving(slot int) *shard {
	i := 0
	if v.slots != nil {
		i = int(v.slots[slot])
	}
	if i >= len(v.shards) {
		return nil
	}
	return &v.shards[i]
}

// ReadsReplicas says that Reader may name others than the master.
func (v *View) ReadsReplicas() bool { return v.read != FromMaster }

// Masters are the pools of all masters that are known, in the order of their first
// slots.
func (v *View) Masters() []*Pool {
	var all []*Pool
	for _, s := range v.shards {
		if s.master != nil && !slices.Contains(all, s.master) {
			all = append(all, s.master)
		}
	}
	return all
}

// Addr is where the pool's node is; empty if that is not known.
func (p *Pool) Addr() string { return addrOf(p.opt.Server) }

// FirstSlots are the first slots of all masters that serve some, in order.
func (v *View) FirstSlots() (slots []int) {
	seen := make([]bool, len(v.shards))
	for slot, i := range v.slots {
		if i != topology.NoShard && !seen[i] {
			seen[i] = true
			slots = append(slots, slot)
		}
	}
	return slots
}

// retryDown is for how long a node that could not be reached is passed over.
const retryDown = time.Second

// Up is false while the node was not reachable when last tried, not long ago.
func (p *Pool) Up() bool {
	at := p.downAt.Load()
	return at == 0 || time.Since(time.UnixMilli(at)) > retryDown
}
