package voters

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/topology"
)

// confirmFor is how long an answer of the sentinels counts, from when they were asked: what follows, as asking the server for
// its role, may take long, and the machine may sleep meanwhile. Afterwards the node does not vote: another server may have
// taken over, and vote for other proxies.
const confirmFor = 5 * time.Second

var (
	errNoMaster    = errors.New("its sentinels name no master")
	errUnconfirmed = errors.New("its sentinels do not answer")
	errMoved       = errors.New("another server has become its master")
	errReplica     = errors.New("is a replica")
)

// A masterTracker knows the master of a node whose master sentinels choose. It is guarded by the node's mu. A node
// that is one server, and stays the same, has none.
type masterTracker struct {
	watcher    *topology.Watcher
	found      chan struct{} // closed when the sentinels have first answered
	hasFound   bool          // found is closed
	master     *backends.Server
	answeredAt time.Duration // when the sentinels were asked to what they last answered
	moved      bool          // master is not the server that the worker is connected to

	askedAt time.Duration // when the sentinels were last asked; the watcher's
}

// newNode makes a node of a server, or of the master that sentinels name.
func (s *Set) newNode(i int, srv *backends.Server) (*Node, error) {
	n := &Node{index: i, Server: srv, set: s, wake: make(chan struct{}, 1)}
	n.worker = n.work
	if srv.MasterSet() == "" {
		return n, nil
	}
	t := &masterTracker{found: make(chan struct{})}
	w, err := topology.New(srv, topology.Options{
		Mode: topology.ModeSentinel, Subject: "lock node", Probing: func() { t.askedAt = s.Clock() },
		SentinelUser: s.Opts.SentinelUser, SentinelPassword: s.Opts.SentinelPassword, Log: s.Opts.Log,
	})
	t.watcher, n.tracker = w, t
	return n, err
}

// startTracking asks the sentinels of the nodes that have some, until the Set is closed.
func (s *Set) startTracking() {
	s.trackOnce.Do(func() {
		ctx, stop := context.WithCancel(context.Background())
		s.stopTrackers = stop
		for _, n := range s.Members {
			if n.tracker == nil {
				continue
			}
			s.workers.Go(func() { _ = n.tracker.watcher.Run(ctx, n.onTopology) }) // its error is that of ctx
		}
	})
}

// stopTracking ends what startTracking started, and keeps it from starting.
func (s *Set) stopTracking() {
	s.trackOnce.Do(func() { s.stopTrackers = func() {} })
	s.stopTrackers()
}

// onTopology notes which server the sentinels name.
func (n *Node) onTopology(t *topology.Topology) {
	n.mu.Lock()
	defer n.mu.Unlock()
	tracker := n.tracker
	tracker.answeredAt = tracker.askedAt
	if !tracker.hasFound {
		tracker.hasFound = true
		close(tracker.found)
	}
	master := t.Shards[0].Master
	if master != nil && (tracker.master == nil || master.String() != tracker.master.String()) {
		tracker.moved = true
		n.retryAt, n.failures, n.lastErr = 0, 0, nil
	}
	tracker.master = master
}

// masterErrLocked is why answers of the connected server must not count, nil if they may. The caller holds
// n.mu.
func (n *Node) masterErrLocked() error {
	switch t := n.tracker; {
	case t == nil || !t.hasFound: // ensureMaster waits for the sentinels
		return nil
	case t.master == nil:
		return errNoMaster
	case n.set.Clock()-t.answeredAt > confirmFor:
		return errUnconfirmed
	}
	return nil
}

// ensureMaster makes sure that the worker is connected to no other server than the master that the sentinels
// name. It waits for their first answer.
func (n *Node) ensureMaster(ctx context.Context) error {
	t := n.tracker
	if t == nil {
		return nil
	}
	select {
	case <-t.found:
	case <-ctx.Done():
		return errUnconfirmed
	case <-n.set.stop:
		return locks.ErrClosed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.masterErrLocked(); err != nil || !t.moved {
		return err
	}
	t.moved, n.connected = false, false
	if old := n.client; old != nil {
		n.client = nil
		n.set.workers.Go(old.Close) // which may hang
	}
	return nil
}

// target is the server to connect to.
func (n *Node) target() (*backends.Server, error) {
	if n.tracker == nil {
		return n.Server, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tracker.master == nil { // the sentinels named one a moment ago
		return nil, errNoMaster
	}
	return n.tracker.master, nil
}

// refreshMaster has the sentinels asked at once.
func (n *Node) refreshMaster() {
	if n.tracker != nil {
		n.tracker.watcher.Refresh()
	}
}

// addressLocked is how the node is shown: its own address, or that of its master and behind it the sentinels' name
// for the master. The caller holds n.mu.
func (n *Node) addressLocked() string {
	if n.tracker == nil || n.tracker.master == nil {
		return n.Server.String()
	}
	return n.tracker.master.String() + ", " + n.Server.String()
}

// noLongerMaster is why the answers that have just come must not count, nil if they may.
func (n *Node) noLongerMaster() error {
	if n.tracker == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tracker.moved {
		return errMoved
	}
	return n.masterErrLocked()
}

// checkRole is an error if a server is a replica; text is of INFO.
func checkRole(text string) error {
	if strings.Contains(text, "role:slave") {
		return errReplica
	}
	return nil
}
