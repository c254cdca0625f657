package proxy

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/netio"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/proxy/request"
)

// A session is one client's connection.
//
// Its reader goroutine reads, and handles what need not wait. When a command has
// to wait, for a majority or for the upstream, a worker goroutine is started; it
// owns the guard and the commands.Session until it has caught up. The reader
// meanwhile keeps what it reads in ahead, and so notices at once when the client
// leaves. Ownership changes hands under mu: it is the worker's while working is
// true, else the reader's. Only the reader sets working, only the worker clears
// it, and only when ahead is empty, so no input is ever left behind.
type session struct {
	srv *Server
	nc  *netio.Conn
	out *output

	requests *request.Parser   // owner's
	cmds     *commands.Session // owner's

	count *counts
	since time.Time

	over   atomic.Bool // no more input is wanted
	ending atomic.Bool // the server is to end: input is wanted until the client is quiet
	leave  func()      // says that the client has left

	mu      sync.Mutex
	change  sync.Cond // ahead has been taken, or the worker has ended
	working bool
	parked  bool   // the worker has no goroutine
	ahead   []byte // read while the worker worked

	idled bool  // reader's: nothing came for the idle timeout
	aside aside // reader's: what it reads into while it does not own the guard
}

const (
	// maxAhead is how much is read ahead of a command that waits. Beyond it the
	// client's leaving is looked for every lookEvery; it shows once the kernel has taken
	// everything that the client sent before.
	maxAhead  = 1 << 20
	lookEvery = 200 * time.Millisecond
	// lingerTime bounds the sending of what a client is still owed when it has
	// closed its sending half, or is to be disconnected.
	lingerTime = 10 * time.Second
	// A client of a server that is to end is let go when nothing has come from it for
	// quietTime: a pipeline that arrives in pieces is then executed as a whole or, if it
	// comes later, not at all, so that it can be sent again. One that is not quiet for so
	// long, or waits for something, is let go after restless, or half of DrainTimeout if
	// that is less: all those at once, so that a client with many connections does not
	// try one after the other.
	quietTime = 50 * time.Millisecond
	restless  = 250 * time.Millisecond
	// goodbyeTime is how long a client that is let go may take to close, too. What it sends
	// meanwhile is thrown away: left unread it would reset the connection, which may
	// cost the client replies that are on their way.
	goodbyeTime = 500 * time.Millisecond
)

func newSession(srv *Server, nc *netio.Conn, id int64, present context.Context) *session {
	count := srv.counts.For(uint64(id))
	s := &session{srv: srv, nc: nc, count: count, since: time.Now(), out: newOutput(nc, count, int(srv.opt.MaxOutput))}
	s.change.L = &s.mu
	s.requests = request.New(request.Limits{Bulk: int(srv.opt.MaxBulk)})
	s.cmds = srv.cmds.NewSession(present, s.out, peerOf(nc, id))
	return s
}

// peerOf is who is at the other end of nc. Both ends of a Unix socket have its path.
func peerOf(nc *netio.Conn, id int64) commands.Peer {
	local := nc.LocalAddr().String()
	if isPath(local) {
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

// serve runs a session. It returns when the client has left or is disconnected,
// and everything the session had is given up.
//
// Two contexts bound what it does: present ends when the client has left; ctx,
// which the rest runs under, outlives it by lingerTime, since a client that closed
// its sending half still wants its replies. A drain leaves both DrainTimeout from its
// beginning.
func serve(srv *Server, nc *netio.Conn, id int64) {
	// Not the one's child: a context that has one costs 350 bytes more.
	ctx, over := context.WithCancel(context.Background())
	present, leave := context.WithCancel(context.Background())
	cancel := func() { leave(); over() }
	defer cancel()
	s := newSession(srv, nc, id, present)
	defer s.closed()
	s.leave = func() { leave(); s.cmds.EndLocks() }
	defer context.AfterFunc(srv.draining, s.windDown)()

	for s.read(ctx) {
	}
	linger := lingerTime
	drained := srv.draining.Err() != nil
	if drained {
		s.cmds.AbandonLocks()
		linger = srv.drainLeft()
	} else {
		s.leave()
	}
	defer time.AfterFunc(linger, cancel).Stop()
	s.over.Store(true)
	s.awaitWorker()
	s.cmds.Flush()
	if !s.out.Dead() {
		if drained {
			s.cmds.Unblock(ctx)
		}
		s.cmds.Wait(ctx)
	}
	s.cmds.End()
	if drained {
		linger = srv.drainLeft() + goodbyeTime
		s.out.CloseHalf()
	} else {
		s.out.Close()
	}
	defer time.AfterFunc(linger, s.out.Abort).Stop()
	if s.out.Wait(); drained {
		s.awaitGoodbye()
	}
}

// windDown lets the client finish what it is sending, and no more.
func (s *session) windDown() {
	s.ending.Store(true)
	s.nc.SetReadDeadline(time.Now().Add(s.srv.quiet))
	time.AfterFunc(min(restless, s.srv.opt.DrainTimeout/2), func() {
		if !s.over.Load() { // later on, the deadline is for the client's goodbye
			s.stop()
		}
	})
}

// awaitGoodbye closes the connection when the client has, or has taken too long.
func (s *session) awaitGoodbye() {
	s.nc.SetReadDeadline(time.Now().Add(goodbyeTime))
	for {
		if _, err := s.nc.ReadInto(&s.aside); err != nil {
			s.out.Abort()
			return
		}
	}
}

// stop makes the reader return, for good.
func (s *session) stop() {
	s.over.Store(true)
	s.nc.SetReadDeadline(time.Unix(1, 0))
	s.mu.Lock()
	s.change.Broadcast()
	s.mu.Unlock()
}

func (s *session) awaitWorker() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.working {
		s.change.Wait()
	}
}

// read reads once and sees to what came. It is false when no more is to be read.
func (s *session) read(ctx context.Context) bool {
	s.mu.Lock()
	working := s.working
	s.mu.Unlock()
	if working {
		return s.readAside(ctx)
	}
	n, err := s.readOnce(s.requests)
	if err != nil {
		return s.idledOnly(err, s.cmds.Busy)
	}
	s.requests.Filled(n)
	return s.handle(ctx)
}

// readOnce reads within the idle timeout, or the time in which a client of an ending
// server must be heard of.
func (s *session) readOnce(into netio.Buffer) (int, error) {
	if idle := s.srv.opt.IdleTimeout; idle > 0 || s.ending.Load() {
		if idle > 0 {
			s.nc.SetReadDeadline(time.Now().Add(idle))
		}
		if s.ending.Load() { // which may have come just before the deadline was set
			s.nc.SetReadDeadline(time.Now().Add(s.srv.quiet))
		}
		if s.over.Load() { // this, too
			s.stop()
		}
	}
	n, err := s.nc.ReadInto(into)
	s.count.read(n)
	if s.over.Load() { // TLS hands out what it has decrypted, whatever the deadline
		return 0, net.ErrClosed
	}
	if n > 0 {
		err = nil // if it lasts, the next read says so
	}
	return n, err
}

// idledOnly says that a read failed only because nothing came for the idle
// timeout, while the client waits for us.
func (s *session) idledOnly(err error, busy func() bool) bool {
	s.idled = errors.Is(err, os.ErrDeadlineExceeded) && !s.over.Load()
	return s.idled && busy()
}

// handle runs the complete commands in the guard, up to the first that may have
// to wait: that and all that follows is a worker's. It is false at the end of the
// session.
func (s *session) handle(ctx context.Context) bool {
	for {
		s.requests.Restrict(s.cmds.Restricted())
		cmd, ok, err := s.requests.Next()
		switch {
		case err != nil:
			s.cmds.Refuse("ERR " + err.Error())
			return false
		case !ok:
			s.sendPart()
			return s.cmds.Flush()
		case cmd.Rest:
			s.cmds.Rest(cmd.Raw)
		case !s.cmds.Try(cmd.Raw, cmd.Args):
			s.mu.Lock()
			s.working = true
			s.mu.Unlock()
			go s.work(ctx, cmd.Raw, cmd.Args)
			return true
		case s.cmds.Closing():
			return false
		}
	}
}

// partSize is how much must have arrived of a command that has not in whole to be
// sent ahead.
const partSize = 64 << 10

// sendPart sends what has arrived of a large command ahead, where that can be done.
func (s *session) sendPart() {
	if name, raw, ok := s.requests.Part(partSize); ok && s.cmds.TryPart(name, raw) {
		s.requests.Take(raw)
	}
}

// Buffers for what comes while a client waits for a reply. That is little, and many may
// wait: it is small until it has been filled once.
const (
	asideMin = 512
	asideMax = 4 << 10
)

// An aside is a buffer of that kind. It has no memory while nothing comes.
type aside struct {
	buf  []byte
	full bool // it was filled, the last time
}

// Space implements netio.Buffer.
func (a *aside) Space() []byte {
	if size := asideMin; a.buf == nil || a.full && len(a.buf) < asideMax {
		if a.full {
			size = asideMax
		}
		a.buf = make([]byte, size)
	}
	return a.buf
}

// Release implements netio.Buffer.
func (a *aside) Release() { a.buf = nil }

// filled is the first n bytes, which have been read.
func (a *aside) filled(n int) []byte {
	a.full = n == len(a.buf)
	return a.buf[:n]
}

// readAside reads while a worker may have the guard.
func (s *session) readAside(ctx context.Context) bool {
	n, err := s.readOnce(&s.aside)
	if err != nil {
		return s.idledOnly(err, func() bool { return true })
	}
	data := s.aside.filled(n)
	s.mu.Lock()
	if s.working && len(s.ahead) > maxAhead {
		stop := s.watch()
		for s.working && len(s.ahead) > maxAhead && !s.over.Load() {
			s.change.Wait()
		}
		stop()
	}
	if s.working {
		s.ahead = append(s.ahead, data...)
		s.unparkLocked(ctx)
		s.mu.Unlock()
		return true
	}
	s.mu.Unlock()
	return s.feed(ctx, data)
}

// watch looks from time to time whether the client has left, while nothing is read
// from it. stop ends it.
func (s *session) watch() (stop func()) {
	var t *time.Timer
	done := false // under watching
	var watching sync.Mutex
	look := func() {
		watching.Lock()
		defer watching.Unlock()
		switch {
		case done:
		case s.nc.HungUp():
			s.leave()
		default:
			t.Reset(lookEvery)
		}
	}
	watching.Lock()
	defer watching.Unlock()
	t = time.AfterFunc(lookEvery, look)
	return func() {
		watching.Lock()
		defer watching.Unlock()
		done = true
		t.Stop()
	}
}

// feed handles data that the reader read aside, now that it owns the guard again.
func (s *session) feed(ctx context.Context, data []byte) bool {
	for len(data) > 0 {
		n := copy(s.requests.Space(), data)
		s.requests.Filled(n)
		data = data[n:]
		if !s.handle(ctx) {
			return false
		}
		s.mu.Lock()
		if s.working && len(data) > 0 { // started just now, on what was fed
			s.ahead = append(s.ahead, data...)
			s.unparkLocked(ctx)
			data = nil
		}
		s.mu.Unlock()
	}
	return true
}

// work runs a command that may wait, and then everything that came meanwhile.
func (s *session) work(ctx context.Context, raw []byte, args [][]byte) {
	s.cmds.Run(ctx, raw, args)
	s.catchUp(ctx)
	s.goOn(ctx)
}

// goOn runs what was read ahead, until the worker has caught up or is parked.
func (s *session) goOn(ctx context.Context) {
	for data := s.more(ctx); data != nil; data = s.more(ctx) {
		for len(data) > 0 && !s.cmds.Closing() {
			n := copy(s.requests.Space(), data)
			s.requests.Filled(n)
			data = data[n:]
			s.catchUp(ctx)
		}
	}
}

// more is what was read ahead. It is nil when the worker has caught up: then all is the
// reader's. It is nil, too, when a LOCK waits and nothing else is to be done: then the
// worker is parked, which is to say that it still owns everything and has no goroutine,
// until unpark.
func (s *session) more(ctx context.Context) (data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		answered := s.cmds.Pending()
		switch {
		case len(s.ahead) > 0 && !s.cmds.Closing():
			data, s.ahead = s.ahead, nil
			s.change.Broadcast()
			return data
		case answered == nil:
			s.requests.Release() // the reader reads aside until something comes
			s.working = false
			s.ahead = nil
			s.change.Broadcast()
			return nil
		}
		s.requests.Release()
		if s.parked = s.cmds.NotifyAnswer(func() { s.unpark(ctx) }); s.parked {
			return nil
		}
		s.mu.Unlock()
		s.cmds.Resume(ctx)
		s.mu.Lock()
	}
}

// unpark has a parked worker go on: there is more ahead, or the answer to the LOCK.
func (s *session) unpark(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unparkLocked(ctx)
}

func (s *session) unparkLocked(ctx context.Context) {
	if s.parked {
		s.parked = false
		go s.goOn(ctx)
	}
}

// catchUp runs the complete commands in the guard, waiting where it must.
func (s *session) catchUp(ctx context.Context) {
	for !s.cmds.Closing() {
		s.requests.Restrict(s.cmds.Restricted())
		cmd, ok, err := s.requests.Next()
		if s.cmds.Pending() != nil && (ok || err != nil) {
			if ok && s.cmds.QueueBehind(ctx, cmd.Raw, cmd.Args) {
				continue
			}
			if s.awaitLocks(ctx); s.cmds.Closing() {
				break
			}
		}
		if err != nil {
			s.cmds.Refuse("ERR " + err.Error())
			break
		}
		switch {
		case !ok:
			if s.cmds.Pending() == nil {
				s.sendPart()
			}
			s.cmds.Flush()
			return
		case cmd.Rest:
			s.cmds.Rest(cmd.Raw)
		case !s.cmds.Try(cmd.Raw, cmd.Args):
			s.cmds.Run(ctx, cmd.Raw, cmd.Args)
		}
	}
	s.cmds.Flush()
	s.stop()
}

// awaitLocks returns when no LOCK waits any more.
func (s *session) awaitLocks(ctx context.Context) {
	for answered := s.cmds.Pending(); answered != nil; answered = s.cmds.Pending() {
		<-answered
		s.cmds.Resume(ctx)
	}
}
