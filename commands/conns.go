package commands

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// mode is on which connections a session's commands travel.
type mode uint8

const (
	onShared      mode = iota // on connections shared with others
	onPinned                  // on the session's own, each command with one reply
	onPassthrough             // on its own, for good: replies are not counted
)

// conns are a session's connections to the upstream, and what is about to be sent on them.
// They belong to the session's goroutine, but for stateful.
//
// Commands travel in one mode at a time, and change it only when all earlier ones have
// been answered, so that none overtakes another.
type conns struct {
	// Fixed by NewSession.
	up        *upstream.Upstream
	replies   *relay.Replies
	clientCtx context.Context // ends when the client has left
	hint      uint32

	// How commands travel now.
	id   upstream.Identity // as whom commands are sent
	name []byte            // CLIENT SETNAME, of the pinned connection
	mode mode

	// Shared.
	shared    [upstream.ConnClasses]*upstream.Conn // borrowed from the pool; may be nil or broken
	connClass upstream.ConnClass                   // of shared that commands travel on
	router    *cluster.Router                      // of an upstream of several nodes; else nil
	// undiscoverable is a connection on which the upstream does not tell its commands; may be nil.
	undiscoverable *upstream.Conn

	// The session's own.
	pinned        *upstream.Conn      // private; may be nil or broken
	pinnedPool    *upstream.Pool      // of pinned
	pinnedForLife bool                // pinned has state that lasts: never back to shared
	mayTrack      bool                // it has asked for CLIENT TRACKING; noted only while keys may be locks
	watching      bool                // it WATCHes something
	txNode        cluster.Transaction // where its transaction is, in a Cluster
	stateful      tx.Stateful         // whether the client's state is lost with pinned; read when an upstream connection ends

	// What is on its way.
	batch     []byte // adjacent commands that will be sent together
	batched   int
	tap       *observe.Tap // of the command that is about to be sent; nil: its reply is of no interest
	blocking  bool         // a command that may block upstream is on its way
	blockedAt time.Time
	gaveUp    bool // a command will get no reply: the client left while it was to wait
}

// conn is the connection the next ordinary command travels on; it may be nil.
func (cs *conns) conn() *upstream.Conn {
	if cs.mode == onShared {
		return cs.shared[cs.connClass]
	}
	return cs.pinned
}

// inCluster reports whether a command goes to the node of its keys.
func (cs *conns) inCluster() bool { return cs.up.View().Cluster() }

// perCommandNode reports whether the upstream has several nodes, of which a command
// goes to one or to some.
func (cs *conns) perCommandNode() bool {
	v := cs.up.View()
	return v.Cluster() || v.ReadsReplicas()
}

// blockedInCluster reports whether a command may be blocked at one node of a Cluster while later ones, which must not
// overtake it, would go to another.
func (cs *conns) blockedInCluster() bool { return cs.blocking && cs.inCluster() }

func (cs *conns) tryForward(raw []byte) bool {
	c := cs.conn()
	return c != nil && c.Alive() && cs.enqueue(raw)
}

// tryScript sends a script on the class of connections where it holds up only other
// scripts: other clients are then answered BUSY by the upstream itself.
func (cs *conns) tryScript(raw []byte) bool {
	if cs.mode == onShared && cs.connClass != upstream.ScriptClass {
		c := cs.shared[upstream.ScriptClass]
		if c == nil || !c.Alive() {
			return false
		}
		if cs.flushBatches(); cs.replies.Pending() > 0 {
			return false
		}
		cs.connClass = upstream.ScriptClass
	}
	return cs.tryForward(raw)
}

// enqueue gathers a command for the current connection. Commands that lie next to each other in the read buffer become
// one write. It always returns true.
func (cs *conns) enqueue(raw []byte) bool {
	if cs.tap != nil {
		cs.enqueueTapped(raw)
		return true
	}
	if cs.mode == onPinned && cs.inCluster() {
		cs.sendNoRedirect(raw, nil)
		return true
	}
	if n := len(cs.batch); n > 0 && cap(cs.batch)-n >= len(raw) && &cs.batch[:n+1][n] == &raw[0] {
		cs.batch = cs.batch[:n+len(raw)]
	} else {
		cs.flushBatches()
		cs.batch = raw
	}
	cs.batched++
	return true
}

func (cs *conns) enqueueBlocking(raw []byte) bool {
	cs.markBlocking()
	return cs.enqueue(raw)
}

// markBlocking notes that the next command may block upstream.
func (cs *conns) markBlocking() {
	if !cs.blocking {
		cs.blocking, cs.blockedAt = true, time.Now()
		cs.replies.MarkBlocking(cs.batched)
	}
}

func (cs *conns) flushBatches() {
	cs.flushBatch()
	if cs.router != nil {
		cs.router.Flush()
	}
}

// flushBatch sends what was gathered for the connection that the session is on. What
// was gathered for the nodes before goes first.
func (cs *conns) flushBatch() {
	if cs.batched == 0 {
		return
	}
	if cs.router != nil {
		cs.router.Flush()
	}
	run, n, c := cs.batch, cs.batched, cs.conn()
	cs.batch, cs.batched = nil, 0
	if cs.mode == onPassthrough {
		cs.replies.ExpectUncounted()
		cs.replies.SendUncounted(c, run)
		return
	}
	cs.replies.Expect(c, n)
	cs.replies.Send(c, run, n)
}

// idle waits until all earlier commands have been answered. Behind one that blocks
// upstream it gives up when the client leaves: then no later command may run either.
func (cs *conns) idle(ctx context.Context) (err error) {
	defer func() { cs.gaveUp = cs.gaveUp || err != nil }()
	if cs.blocking {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(cs.clientCtx, cancel)()
	}
	return cs.replies.WaitIdle(ctx)
}

// tryPin moves the session to its pinned connection if that needs no waiting.
func (cs *conns) tryPin() bool {
	if cs.pinned == nil || !cs.pinned.Alive() {
		return false
	}
	if cs.mode == onShared {
		cs.flushBatches()
		if cs.replies.Pending() > 0 {
			return false
		}
		cs.mode = onPinned
	}
	return true
}

// pinPool is the node of the pinned connection, or of one that is opened next.
func (cs *conns) pinPool() *upstream.Pool {
	if cs.pinned != nil && cs.pinned.Alive() {
		return cs.pinnedPool
	}
	return cs.up.Pool()
}

func (cs *conns) returnShared() {
	if cs.router != nil {
		cs.router.DropAll(cs.id.Proto)
	}
	for class := range cs.shared {
		cs.returnClass(upstream.ConnClass(class))
	}
	cs.connClass = upstream.MainClass
}

func (cs *conns) returnClass(class upstream.ConnClass) {
	if cs.shared[class] != nil {
		upstream.Return(cs.shared[class])
		cs.shared[class] = nil
	}
}

// sendNoRedirect sends a command on the pinned connection, and does not follow a redirect to another node. heard, if not
// nil, gets the beginning of its reply.
func (cs *conns) sendNoRedirect(raw []byte, heard func([]byte)) {
	c := &relay.Request{Raw: raw, Slot: relay.NoSlot, Pool: cs.pinnedPool, NoRedirect: true}
	if heard != nil {
		c.Observer = &relay.Observer{Observe: heard}
	}
	cs.sendPinned(c)
}

// sendPinned sends a request on the pinned connection.
func (cs *conns) sendPinned(c *relay.Request) {
	cs.flushBatches()
	cs.replies.SendRequest(cs.pinned, c)
}

// sender returns the identity and the connection class with which commands are sent now.
func (cs *conns) sender() relay.Sender {
	return relay.Sender{ID: cs.id, Class: cs.connClass, Hint: cs.hint}
}

func (cs *conns) openRouter() *cluster.Router {
	if cs.router == nil {
		cs.router = cluster.New(cs.up, cs.replies, cs.hint)
	}
	return cs.router
}

// sameView reports whether no pending command was routed by an older view of the nodes. Such a one may still be
// redirected, and a new command would overtake it.
func (cs *conns) sameView() bool {
	rt := cs.openRouter()
	if rt.View() == cs.up.View() {
		return true
	}
	if cs.replies.Pending() > 0 {
		return false
	}
	rt.Renew()
	for class, c := range cs.shared {
		if c != nil && c.Draining() {
			cs.returnClass(upstream.ConnClass(class))
		}
	}
	return true
}

// awaitSameView is sameView, but waits for pending replies first. It returns false if the client is gone.
func (cs *conns) awaitSameView(ctx context.Context) bool {
	return cs.sameView() || cs.idle(ctx) == nil && cs.sameView()
}
