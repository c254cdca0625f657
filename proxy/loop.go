package proxy

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/netio"
	"github.com/lockproxy/lockproxy/commands"
)

// maxTurnReads bounds how often a session is read in one turn of its loop.
const maxTurnReads = 8

// A loop is the reader of many sessions.
type loop struct {
	*netio.Loop
	flushes commands.Flushes // of the commands that came in one turn
	started bool             // a worker has begun in this turn
}

// endTurn sends what came in a turn. Workers that began in it send first: a program that sends a command which blocks, and then
// another one on another connection, mostly finds them done in that order by a Redis.
func (l *loop) endTurn() {
	if l.started {
		l.started = false
		runtime.Gosched()
	}
	l.flushes.Flush()
}

// startLoops starts a loop for each goroutine that can run at once, if the system has such.
func (s *Server) startLoops() {
	if s.opt.Goroutines {
		return
	}
	for range runtime.GOMAXPROCS(0) {
		l := &loop{}
		var err error
		if l.Loop, err = netio.NewLoop(l.endTurn); err != nil {
			s.opt.Log.Debug("goroutines read from clients, since there is no event loop", "error", err)
			return
		}
		s.loops = append(s.loops, l)
	}
}

func (s *Server) closeLoops() {
	for _, l := range s.loops {
		l.Close()
	}
}

// loopOf is the loop for a new session; nil: there is none.
func (s *Server) loopOf(id int64) *loop {
	s.loopsOnce.Do(s.startLoops)
	if len(s.loops) == 0 {
		return nil
	}
	return s.loops[id%int64(len(s.loops))]
}

// Who the reader of a session is.
const (
	byGoroutine = iota // a goroutine, if it has not returned
	byLoop             // the loop, when something comes
	inTurn             // the loop, which is in the session's turn
	leaving            // the same, and a goroutine afterwards
)

// onLoop is how a session is read by a loop.
type onLoop struct {
	loop   *loop // nil: a goroutine reads all the time
	watch  *netio.Watch
	reader atomic.Int32 // who it is

	gather *commands.Flushes // the loop's, in the session's turn; else nil

	idle   *time.Timer  // calls checkIdle; nil without an idle timeout
	readAt atomic.Int64 // when something came last, in ns after since; only with an idle timeout

	onTakeOver func() bool // what a goroutine does before it reads that takes over; false: the session is at its end. nil: nothing
}

// joinLoop makes a loop the session's reader. It is false if a goroutine must be.
func (s *session) joinLoop(id int64) bool {
	if !s.nc.CanTryWrite() {
		return false
	}
	if s.loop = s.srv.loopOf(id); s.loop == nil {
		return false
	}
	s.watch = s.loop.NewWatch(s)
	if d := s.srv.opt.IdleTimeout; d > 0 {
		s.mu.Lock()
		s.idle = time.AfterFunc(d, s.checkIdle)
		s.mu.Unlock()
	}
	return s.toLoop(s.watch.Start)
}

// rejoinLoop is joinLoop for a goroutine that has taken over, and has handled all it has read.
func (s *session) rejoinLoop() bool {
	if s.loop == nil || s.mustLeaveLoop() {
		return false
	}
	if _, full := s.workerOwns(); full {
		return false
	}
	s.release()
	if s.idle != nil {
		s.noteRead()
		s.idle.Reset(s.srv.opt.IdleTimeout)
	}
	return s.toLoop(s.watch.Again)
}

// toLoop makes the loop the reader, which watch tells of the socket.
func (s *session) toLoop(watch func(*netio.Conn) error) bool {
	s.reader.Store(byLoop)
	if err := watch(s.nc); err != nil || s.mustLeaveLoop() {
		return !s.reader.CompareAndSwap(byLoop, byGoroutine) // else another one has done that
	}
	return true
}

// mustLeaveLoop reports whether only a goroutine can read the session. Who makes that true calls leaveLoop then.
func (s *session) mustLeaveLoop() bool {
	return s.stopped.Load() || s.draining.Load() || s.out.Dead()
}

// leaveLoop makes a goroutine the reader, if there is none.
func (s *session) leaveLoop() {
	if s.reader.CompareAndSwap(byLoop, byGoroutine) {
		s.srv.sessions.Go(s.readOn)
	} else {
		s.reader.CompareAndSwap(inTurn, leaving)
	}
}

// Ready implements netio.Reader.
func (s *session) Ready(hungUp bool) (more bool) {
	if !s.reader.CompareAndSwap(byLoop, inTurn) {
		return false
	}
	stay, more := s.turn(hungUp)
	if stay && s.reader.CompareAndSwap(inTurn, byLoop) {
		return more
	}
	s.reader.Store(byGoroutine)
	s.srv.sessions.Go(s.readOn)
	return false
}

// turn reads and handles what has come. A read that does not fill its buffer is the last one: the loop hears of what comes
// later. stay is false if a goroutine is to take over.
func (s *session) turn(hungUp bool) (stay, more bool) {
	for range maxTurnReads {
		working, full := s.workerOwns()
		if full || s.stopped.Load() || s.draining.Load() {
			return false, false
		}
		var into netio.Buffer = s.requests
		if working {
			into = &s.readAhead
		}
		n, filled, err := s.nc.ReadNow(into)
		if err != nil {
			s.onTakeOver = noMoreInput
			return false, false
		}
		if n == 0 {
			return true, false
		}
		s.traffic.Read(n)
		if s.idle != nil {
			s.noteRead()
			s.wasBusy = false
		}
		if !s.handle(n, working) {
			if s.onTakeOver == nil {
				s.onTakeOver = noMoreInput
			}
			return false, false
		}
		if wait := s.loop.flushes.TakeCongested(); wait != nil {
			s.onTakeOver = func() bool { wait(); return true }
			return false, false
		}
		if !filled && !hungUp { // what comes behind the end is an error: it is read for
			s.release()
			return true, false
		}
	}
	return true, true
}

func noMoreInput() bool { return false }

// handle handles n bytes that were read; working tells where to.
func (s *session) handle(n int, working bool) bool {
	s.gather = &s.loop.flushes
	defer func() { s.gather = nil }()
	if working {
		return s.handleBacklog(s.readAhead.filled(n))
	}
	s.requests.Filled(n)
	return s.handleRequests()
}

// release gives up the memory for reading, as nothing can be read.
func (s *session) release() {
	s.readAhead.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.working {
		s.requests.Release()
	}
}

func (s *session) noteRead() { s.readAt.Store(int64(time.Since(s.since))) }

// checkIdle has a goroutine look at a session from which nothing came for the idle timeout, if the loop reads it. A goroutine
// that does has deadlines of its own, or keeps the session from being read.
func (s *session) checkIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.srv.opt.IdleTimeout - (time.Since(s.since) - time.Duration(s.readAt.Load()))
	switch {
	case s.stopped.Load():
	case left > 0:
		s.idle.Reset(left)
	case s.reader.CompareAndSwap(byLoop, byGoroutine):
		s.onTakeOver = s.mayBeIdle
		s.srv.sessions.Go(s.readOn)
	default:
		s.idle.Reset(s.srv.opt.IdleTimeout)
	}
}

// mayBeIdle reports whether the session goes on though nothing came for the idle timeout.
func (s *session) mayBeIdle() bool {
	return s.onlyIdle(os.ErrDeadlineExceeded, s.busy)
}

// busy reports whether the client waits for something, as for a reply.
func (s *session) busy() bool {
	working, _ := s.workerOwns()
	return working || s.cmds.Busy()
}

// readOn is the reader's goroutine: it reads until the loop does again, or the session has ended.
func (s *session) readOn() {
	on := true
	if s.onTakeOver != nil {
		on = s.onTakeOver()
		s.onTakeOver = nil
	}
	for ; on; on = s.read() {
		if s.rejoinLoop() {
			return
		}
	}
	s.end()
}
