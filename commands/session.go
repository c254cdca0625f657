package commands

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/acl"
	"github.com/lockproxy/lockproxy/commands/adopt"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/pubsub"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
	"github.com/lockproxy/lockproxy/commands/stats"
	"github.com/lockproxy/lockproxy/commands/table"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// Options are read once by New.
type Options struct {
	Upstream *upstream.Upstream // required
	Verbs    lockcmd.Options    // with a Locker
	Adoption *adopt.Adoption    // nil: no key is a lock
	Observer *observe.Observer  // of keys that are used as locks; may be nil

	// Unshared gives every client a connection of its own to an upstream of one
	// server, which it keeps. With several, clients share all the same.
	Unshared bool
	// MaxKept is how many bytes of replies to one client may wait for earlier
	// ones; 0 means 256 MB.
	MaxKept int64
	Info    stats.Info   // Version, Mode and Locks, which may be empty and nil
	Log     *slog.Logger // nil means slog.Default()
}

// A Dispatcher knows what commands mean. It is safe for concurrent use.
type Dispatcher struct {
	opt     Options
	verbs   *lockcmd.Verbs
	clients clients.Registry
	lastID  atomic.Int64 // of all clients
	pause   clients.Pause
	watch   *observe.Observer // opt.Observer, if it looks at ordinary traffic; else nil

	httpLogged atomic.Int64 // when a client that speaks HTTP was last logged, in s since 1970

	rows      table.Table[handlers]
	discovery *spec.Discovery // of the commands beyond these
	acl       *acl.Cache

	counts stats.Counts
	info   stats.Info
}

// New makes a Dispatcher.
func New(opt Options) *Dispatcher {
	opt.MaxKept, opt.Log = cmp.Or(max(opt.MaxKept, 0), 256<<20), cmp.Or(opt.Log, slog.Default())
	d := &Dispatcher{opt: opt, verbs: lockcmd.New(opt.Verbs, opt.Log), rows: table.New(allRows()), discovery: spec.NewDiscovery()}
	d.clients.CommandName = d.commandName
	d.acl = acl.NewCache(d.pause.Active)
	if opt.Observer != nil && opt.Observer.Watches() {
		d.watch = opt.Observer
	}
	d.info = opt.Info
	d.info.Began, d.info.Clients, d.info.Counts, d.info.Upstream = time.Now(), d.clients.Count, &d.counts, opt.Upstream
	return d
}

// Report implements metrics.Reporter.
func (d *Dispatcher) Report(r *metrics.Report) {
	d.counts.Report(r)
	d.opt.Adoption.Report(r)
}

// Drain ends every LOCK that waits, and lets none wait again: the proxy is about to stop, and its clients can wait at
// another one.
func (d *Dispatcher) Drain() { d.verbs.Drain() }

// Wait returns when all goroutines have ended that asked for LOCKs. Every session must have
// ended before.
func (d *Dispatcher) Wait() { d.verbs.Wait() }

// CloseUpstream ends all connections to the upstream, for good: what waits for it fails.
func (d *Dispatcher) CloseUpstream() { d.opt.Upstream.Close() }

// A Session is the state of one client: who it is, its database and protocol, whether it
// is in a transaction, which locks it took. It belongs to one goroutine at a time.
type Session struct {
	// Fixed by NewSession.
	d      *Dispatcher
	out    relay.Output
	client *clients.Client // how CLIENT commands of others see it

	conns // as whom, and on which connections, its commands travel
	tx    tx.State
	pass  passthrough
	locks lockcmd.Client
	feed  pubsub.Feed // its subscriptions, and a MONITOR, in a Cluster

	library      clients.Library
	observed     observe.Client // what the Observer knows of it
	observedLast bool           // the Observer has been told of the last command
	unshown      unshown
	tally        stats.Tally
	changing     bool // the command that Run runs changes what those behind it do
	closing      bool // QUIT came, or what breaks the protocol: no more input
	end          clients.End
	burst        adopt.Burst
	adoptedTx    adopt.Transaction // with an adopted lock
}

// unshown is what CLIENT LIST does not show of a session yet.
type unshown struct {
	command [][]byte // the last one; nil: it is shown
	changed bool     // anything else may have
}

// Why returns in one word why the session ended, as far as is known here; empty: it has not. The first reason counts.
func (s *Session) Why() string { return s.end.Why().String() }

// NewSession returns the session of a client that has sent nothing yet. present ends when the client leaves. CLIENT LIST
// shows the session until End.
func (d *Dispatcher) NewSession(present context.Context, out relay.Output, who Peer) *Session {
	s := &Session{
		d: d, out: out, observed: observe.Client{ID: who.ID},
		conns: conns{
			up: d.opt.Upstream, clientCtx: present, hint: d.opt.Upstream.Hint(),
			id: d.opt.Upstream.DefaultIdentity(),
		},
	}
	s.tally = d.counts.NewTally(who.ID)
	s.replies = relay.NewReplies(out, relay.RepliesOptions{
		Limit: int(d.opt.MaxKept), Overflow: func() { s.end.Because(clients.WhyOutput) }, EndsWith: s.diesWith, Lost: s.connLost,
		Errors: &s.tally.Errors, Took: &s.tally.Took,
	})
	s.client, s.unshown.changed = clients.New(&d.clients, who, clientSession{s}), true
	s.locks, s.feed = d.verbs.NewClient(verbConn{s}), pubsub.NewFeed(s.up, s.replies)
	s.publishInfo()
	d.clients.Add(s.client)
	return s
}

// Restricted reports whether the client must authenticate and has not, as far as known.
func (s *Session) Restricted() bool {
	return s.anonymous() && s.up.Pool().RequiresAuth() && !s.authenticated()
}

// authenticated reports whether the client has a connection that the upstream lets do things.
func (s *Session) authenticated() bool {
	c := s.conn()
	return c != nil && c.Alive() && !c.NeedsAuth()
}

// Closing reports whether the client asked to be disconnected, or has left: no more commands.
func (s *Session) Closing() bool { return s.closing || s.gaveUp || s.end.Ended() }

// Flushes gather what sessions send that one goroutine runs in turn.
type Flushes = upstream.Flushes

// Gather leaves it to f to write what the session sends: then neither Try nor Flush waits for an upstream that does not
// read. With nil, as at first, it is written as it is sent.
func (s *Session) Gather(f *Flushes) { s.replies.Gather(f) }

// Flush sends what Try has gathered. It is false when the client is gone.
func (s *Session) Flush() bool {
	if s.unshown.command != nil || s.unshown.changed {
		s.publishInfo()
		s.unshown.changed = false
	}
	if s.tally.EndBurst() && s.mode != onPassthrough {
		s.replies.TimeBatch(s.client.LastActive(), s.batched)
	}
	s.flushBatches()
	return s.replies.Flush()
}

// Wait is for a client from which nothing more is read. It returns when the client
// has all replies of the upstream, or ctx ends. If the client has left, or leaves, it
// does not wait for a command that blocks upstream, unless that was sent a moment ago
// and may not have to block.
func (s *Session) Wait(ctx context.Context) {
	switch {
	case s.mode == onPassthrough && s.pass.quitSent: // the upstream answers all, and closes
		select {
		case <-s.pinned.Done():
		case <-ctx.Done():
		}
	case s.pass.isReplica: // a replica that has left is to count as gone
	case s.mode == onPassthrough:
		s.await(ctx, s.replies.Answered(), replyGrace)
	case !s.blocking:
		s.replies.WaitIdle(ctx)
	default:
		s.replies.WaitAhead(ctx)
		present, leave := context.WithCancel(ctx)
		defer leave()
		defer context.AfterFunc(s.clientCtx, leave)()
		s.replies.WaitIdle(present)
		soon, cancel := context.WithDeadline(ctx, s.blockedAt.Add(replyGrace))
		defer cancel()
		s.replies.WaitIdle(soon)
	}
}

// Unblock ends what blocks upstream, for a client from which nothing more is read and
// which waits for nothing else. It gets no answer, as if it had never asked, unless
// what it waits for comes at that very moment. Where that cannot be done, as in a
// Cluster, nothing happens.
func (s *Session) Unblock(ctx context.Context) {
	if !s.blocking || s.inCluster() || s.pinned == nil || s.pinned.ID() == 0 || !s.replies.DropReply(s.pinned) {
		return
	}
	at, err := s.pinned.Pool().Shared(ctx, s.id, upstream.MainClass, s.hint)
	if err != nil {
		return
	}
	defer upstream.Return(at)
	// If it fails, as for want of the right to do it, the client waits on.
	_, _ = s.replies.Ask(ctx, at, resp.AppendCommand(nil, "CLIENT", "UNBLOCK", strconv.FormatInt(s.pinned.ID(), 10), "ERROR"))
}

// await returns when answered is closed, the pinned connection has ended, the time is
// over or ctx ends.
func (s *Session) await(ctx context.Context, answered <-chan struct{}, most time.Duration) {
	select {
	case <-answered:
	case <-s.pinned.Done():
	case <-time.After(most):
	case <-ctx.Done():
	}
}

// Busy reports whether the client waits for replies, for messages or for the grant of a LOCK with ASYNC, or has locks with
// SESSION, which would end with its connection while it works.
func (s *Session) Busy() bool {
	return s.mode == onPassthrough || s.feed.Active() || s.replies.Pending() > 0 || s.locks.Waits() || s.locks.HasLocks()
}

// Refuse answers input that breaks the protocol, behind what was asked before, unless the client wants no reply.
func (s *Session) Refuse(text string) {
	s.Flush()
	if s.mode == onPassthrough {
		s.awaitLastReplies()
	}
	if mode := s.pass.replyMode; !mode.Off && !mode.Skip {
		s.replies.Local(resp.AppendError(nil, text))
	}
	s.replies.Flush()
	s.end.Because(clients.WhyProtocol)
	s.closing = true
}

// awaitLastReplies waits for the replies of a connection on which they are not counted, not
// for long.
func (s *Session) awaitLastReplies() {
	const most = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if s.pass.mayNotAnswer {
		s.await(ctx, nil, replyGrace)
	} else {
		s.awaitReplies(ctx)
	}
}

// End gives up everything the session has. Locks it took without SESSION stay until
// their leases end.
func (s *Session) End() {
	s.EndLocks()
	s.observed.Close()
	if s.clientCtx.Err() != nil {
		s.replies.ClientLeft()
	}
	s.d.clients.Remove(s.client)
	s.closePinned()
	s.returnShared()
	s.feed.Close()
	if s.router != nil {
		s.router.End()
	}
}

func (s *Session) anonymous() bool { return s.id.User == "" && s.id.Secret == "" }
