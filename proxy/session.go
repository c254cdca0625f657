package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/netio"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/proxy/request"
)

// A session is one client's connection. The package comment tells reader, worker and owner.
type session struct {
	// Fixed by serve.
	srv        *Server
	nc         *netio.Conn
	out        *output
	traffic    *metrics.Traffic
	since      time.Time
	ctx        context.Context // of all it does
	over       func()          // ends ctx
	clientLeft func()          // ends what the client waits for

	// The owner's.
	requests *request.Parser
	cmds     *commands.Session

	// The reader's.
	readAhead readAheadBuffer // what it reads into while it is not the owner
	idled     bool            // nothing came for the idle timeout
	wasBusy   bool            // when it was over last, and nothing has come since
	arrived   int             // bytes read since lastCall
	onLoop

	// Shared.
	stopped    atomic.Bool // no more input is read, but for lastCall
	lastCall   atomic.Bool // stopped by drainDeadline: what has arrived is read
	draining   atomic.Bool // input is read until the client is quiet
	refused    atomic.Bool // the input breaks the protocol: the client is to be disconnected, and has not left
	mu         sync.Mutex
	changed    sync.Cond   // the backlog was taken, the worker has ended, or the session is stopped
	working    bool        // the worker is the owner
	parked     bool        // the worker has no goroutine
	backlog    []byte      // read while the worker is the owner
	drainTimer *time.Timer // stops a session that is not quiet; nil: none is needed
}

const (
	// closeGrace bounds the sending of replies to a client that has closed its sending
	// half, or is to be disconnected.
	closeGrace = 10 * time.Second
	// A client of a draining server is stopped when nothing has come from it for
	// drainQuiet: a pipeline that arrives in pieces is then executed as a whole or, if it
	// comes later, not at all, so that it can be sent again. One that is not quiet for so
	// long, or waits for something, is stopped after drainDeadline, or half of DrainTimeout
	// if that is less: all those at once, so that a client with many connections does not
	// try one after the other.
	drainQuiet    = 50 * time.Millisecond
	drainDeadline = 250 * time.Millisecond
	// hangUpGrace is how long a client of a draining server has to close its side. What it
	// sends meanwhile is thrown away: left unread it would reset the connection, which may
	// cost the client replies that are on their way.
	hangUpGrace = 500 * time.Millisecond
)

// newSession begins a session. Two contexts bound it: present, which the commands get, ends when the client has left; ctx,
// for everything else, outlives it by closeGrace, since a client that closed its sending half still wants its replies. A
// drain leaves both DrainTimeout from its beginning.
func newSession(srv *Server, nc *netio.Conn, id int64) *session {
	traffic := srv.traffic.For(uint64(id))
	s := &session{srv: srv, nc: nc, traffic: traffic, since: time.Now(), out: newOutput(nc, traffic, int(srv.opt.MaxOutput))}
	s.changed.L = &s.mu
	s.out.dying = s.leaveLoop
	s.requests = request.New(srv.rules)
	// Not the one's child: a context that has one costs 350 bytes more.
	ctx, over := context.WithCancel(context.Background())
	present, leave := context.WithCancel(context.Background())
	s.cmds = srv.cmds.NewSession(present, s.out, peerOf(nc, id))
	s.ctx, s.over = ctx, func() { leave(); over() }
	s.clientLeft = func() { leave(); s.cmds.EndLocks() }
	return s
}

// peerOf describes the other end of nc. Both ends of a Unix socket have its path.
func peerOf(nc *netio.Conn, id int64) commands.Peer {
	local := nc.LocalAddr().String()
	if IsSocketPath(local) {
		return commands.Peer{ID: id, Addr: local + ":0", LocalAddr: local + ":0", HungUp: nc.HungUp}
	}
	return commands.Peer{ID: id, Addr: nc.RemoteAddr().String(), LocalAddr: local, HungUp: nc.HungUp, Watch: func(on bool) {
		if on {
			nc.SetUserTimeout(vanishTime)
		} else {
			nc.SetUserTimeout(0)
		}
	}}
}

// serve begins a session, whose reader is a loop or this goroutine. Exactly one call of end ends it.
func serve(srv *Server, nc *netio.Conn, id int64) {
	s := newSession(srv, nc, id)
	srv.addSession(s)
	if !s.joinLoop(id) {
		s.readOn()
	}
}

// end ends a session from which nothing more is to be read: the client has left or is disconnected. It returns when
// everything the session had is given up.
func (s *session) end() {
	srv := s.srv
	defer srv.removeSession(s)
	defer s.over()
	defer s.closed()
	grace := closeGrace
	drained := srv.draining.Err() != nil
	stopWatching := func() {}
	switch {
	case drained:
		s.cmds.AbandonLocks()
		grace = srv.drainLeft()
	case s.refused.Load():
		s.cmds.EndLocks()
		stopWatching = s.watchHangUp()
	default:
		s.clientLeft()
	}
	defer time.AfterFunc(grace, s.over).Stop()
	s.endInput()
	s.awaitWorker()
	s.cmds.Flush()
	if !s.out.Dead() {
		if drained {
			s.cmds.Unblock(s.ctx)
		}
		s.cmds.Wait(s.ctx)
	}
	stopWatching()
	s.cmds.End()
	if drained {
		grace = srv.drainLeft() + hangUpGrace
		s.out.CloseHalf()
	} else {
		s.out.Close()
	}
	defer time.AfterFunc(grace, s.out.Abort).Stop()
	if s.out.Wait(); drained {
		s.awaitHangUp()
	}
	if s.watch != nil { // until it was closed, what came for this one would have been another one's
		s.watch.Stop()
	}
}

// refuse answers input that breaks the protocol, behind what was asked before.
func (s *session) refuse(err error) {
	s.refused.Store(true)
	s.cmds.Refuse("ERR " + err.Error())
}

// startDrain lets the client finish what it is sending, and no more.
func (s *session) startDrain() {
	if s.draining.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Load() {
		return // from now on the deadline is for the client to hang up
	}
	s.leaveLoop()
	s.nc.SetReadDeadline(time.Now().Add(s.srv.quiet))
	s.drainTimer = time.AfterFunc(min(drainDeadline, s.srv.opt.DrainTimeout/2), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.stopped.Load() {
			s.lastCall.Store(true)
			s.stopLocked()
		}
	})
}

// stop makes the reader return, for good, whatever has arrived.
func (s *session) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastCall.Store(false)
	s.stopLocked()
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

func (s *session) stopLocked() {
	s.stopped.Store(true)
	s.leaveLoop()
	s.nc.SetReadDeadline(longAgo)
	s.changed.Broadcast()
}

// endInput notes that the reader has returned, so that nothing needs to stop it.
func (s *session) endInput() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped.Store(true)
	if s.drainTimer != nil {
		s.drainTimer.Stop()
	}
	if s.idle != nil {
		s.idle.Stop()
	}
}

func (s *session) awaitWorker() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.working {
		s.changed.Wait()
	}
}

// awaitHangUp closes the connection when the client has, or has taken too long.
func (s *session) awaitHangUp() {
	s.nc.SetReadDeadline(time.Now().Add(hangUpGrace))
	for {
		if _, err := s.nc.ReadInto(&s.readAhead); err != nil {
			s.out.Abort()
			return
		}
	}
}
