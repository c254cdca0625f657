package proxy

import (
	"cmp"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/netio"
	"github.com/lockproxy/lockproxy/proxy/request"
)

const (
	// maxBacklog is how much is read while a command waits, and after drainDeadline. Beyond it nothing is read, and
	// every hangUpPoll the kernel is asked whether the client has left; it knows once it
	// has taken everything that the client sent before.
	maxBacklog = 1 << 20
	hangUpPoll = 200 * time.Millisecond
	// partSize is how many bytes of a command must have arrived before they are sent ahead of the rest.
	partSize = 64 << 10
)

// read reads once and handles what came. It is false when no more is to be read.
func (s *session) read() bool {
	if working, _ := s.workerOwns(); working {
		return s.readBacklog()
	}
	n, err := s.readOnce(s.requests)
	if err != nil {
		return s.onlyIdle(err, s.cmds.Busy)
	}
	s.requests.Filled(n)
	return s.handleRequests()
}

// readOnce reads within the idle timeout, or within drainQuiet while the server drains. When that ends by drainDeadline it
// reads what has arrived by then, so that no pipeline is cut which has arrived as a whole.
func (s *session) readOnce(into netio.Buffer) (int, error) {
	if idle := s.srv.opt.IdleTimeout; idle > 0 || s.draining.Load() {
		if idle > 0 {
			s.nc.SetReadDeadline(time.Now().Add(idle))
		}
		if s.draining.Load() { // which may have come just before the deadline was set
			s.nc.SetReadDeadline(time.Now().Add(s.srv.quiet))
		}
		if s.stopped.Load() { // this, too
			s.nc.SetReadDeadline(longAgo)
		}
	}
	n, err := s.nc.ReadInto(into)
	lastCall := s.lastCall.Load() && s.arrived <= maxBacklog
	if err != nil && lastCall {
		if n, _, err = s.nc.ReadNow(into); n == 0 {
			err = cmp.Or(err, net.ErrClosed)
		}
		s.arrived += n
	}
	s.traffic.Read(n)
	if s.stopped.Load() && !lastCall { // TLS hands out what it has decrypted, whatever the deadline
		return 0, net.ErrClosed
	}
	if n > 0 {
		s.wasBusy = false
		err = nil // if it lasts, the next read fails too
	}
	return n, err
}

// onlyIdle reports whether a read failed only because nothing came for the idle timeout, from a client that is
// busy, as one that waits for a reply, or was when the last timeout was over: its reply may have come just now. Then
// the session goes on.
func (s *session) onlyIdle(err error, busy func() bool) bool {
	s.idled = errors.Is(err, os.ErrDeadlineExceeded) && !s.stopped.Load()
	if !s.idled {
		return false
	}
	was := s.wasBusy
	s.wasBusy = busy()
	return s.wasBusy || was
}

// handleRequests runs the requests that have arrived in whole, up to the first that may
// have to wait: with that the worker becomes the owner. It is false at the end of the
// session, and on a loop where it would have to wait: then onTakeOver is set.
func (s *session) handleRequests() bool {
	s.cmds.Gather(s.gather)
	req, waits, on := s.tryRequests()
	s.cmds.Gather(nil)
	if waits {
		s.mu.Lock()
		s.working = true
		s.mu.Unlock()
		if s.gather != nil {
			s.loop.started = true
		}
		s.srv.workers.Go(func() { s.work(req.Raw, req.Args) })
	}
	return on
}

// tryRequests runs the requests that need not wait. waits reports that req may have to.
func (s *session) tryRequests() (req request.Request, waits, on bool) {
	for {
		s.requests.Restrict(s.cmds.Restricted())
		req, ok, err := s.requests.Next()
		switch {
		case err != nil && s.gather != nil:
			s.onTakeOver = s.handleRequests
			return req, false, false
		case err != nil:
			s.refuse(err)
			return req, false, false
		case !ok:
			s.sendPart()
			return req, false, s.cmds.Flush()
		case req.Rest:
			s.cmds.Rest(req.Raw)
		case !s.cmds.Try(req.Raw, req.Args):
			return req, true, true
		case s.cmds.Closing():
			return req, false, false
		}
	}
}

// sendPart sends what has arrived of a large command ahead, where that can be done.
func (s *session) sendPart() {
	if name, raw, ok := s.requests.Part(partSize); ok && s.cmds.TryPart(name, raw) {
		s.requests.Take(raw)
	}
}

// Sizes of a readAheadBuffer. Little comes while a client waits, and many may wait: the
// buffer is small until it has been filled once.
const (
	minReadAhead = 512
	maxReadAhead = 4 << 10
)

// A readAheadBuffer takes what comes while a client waits for a reply; it is a netio.Buffer. It has no memory
// while nothing comes.
type readAheadBuffer struct {
	buf  []byte
	full bool // it was filled, the last time
}

// Space implements netio.Buffer.
func (b *readAheadBuffer) Space() []byte {
	if size := minReadAhead; b.buf == nil || b.full && len(b.buf) < maxReadAhead {
		if b.full {
			size = maxReadAhead
		}
		b.buf = make([]byte, size)
	}
	return b.buf
}

// Release implements netio.Buffer.
func (b *readAheadBuffer) Release() { b.buf = nil }

// filled returns the first n bytes, which have been read.
func (b *readAheadBuffer) filled(n int) []byte {
	b.full = n == len(b.buf)
	return b.buf[:n]
}

// readBacklog is read while the worker may be the owner.
func (s *session) readBacklog() bool {
	n, err := s.readOnce(&s.readAhead)
	if err != nil {
		return s.onlyIdle(err, func() bool { return true })
	}
	return s.handleBacklog(s.readAhead.filled(n))
}

// handleBacklog handles data that was read while the worker may have been the owner.
func (s *session) handleBacklog(data []byte) bool {
	s.mu.Lock()
	if s.working && len(s.backlog) > maxBacklog {
		stop := s.watchHangUp()
		for s.working && len(s.backlog) > maxBacklog && !s.stopped.Load() {
			s.changed.Wait()
		}
		stop()
	}
	if s.working {
		s.backlog = append(s.backlog, data...)
		s.unparkLocked()
		s.mu.Unlock()
		return true
	}
	s.mu.Unlock()
	return s.handleReadAhead(data)
}

// workerOwns reports whether the worker is the owner, and whether its backlog is full.
func (s *session) workerOwns() (working, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.working, s.working && len(s.backlog) > maxBacklog
}

// handleReadAhead handles data that was read while the worker was the owner, after that has ended.
func (s *session) handleReadAhead(data []byte) bool {
	for len(data) > 0 {
		if data = s.feed(data); !s.handleRequests() {
			return false
		}
		s.mu.Lock()
		if s.working && len(data) > 0 { // the worker was started just now
			s.backlog = append(s.backlog, data...)
			s.unparkLocked()
			data = nil
		}
		s.mu.Unlock()
	}
	return true
}

// watchHangUp looks from time to time whether the client has left, until stop.
func (s *session) watchHangUp() (stop func()) {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(hangUpPoll)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			if s.nc.HungUp() {
				s.clientLeft()
				return
			}
		}
	})
	return func() { close(done); watching.Wait() }
}
