package netio

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents is how many sockets one turn serves.
const maxEvents = 128

// A Loop serves many sockets on one goroutine: it calls Ready of each that can be read. A
// socket that is watched needs no goroutine of its own, and a turn wakes one goroutine
// instead of one for each socket.
//
// Sockets are watched edge-triggered. The loop waits in the poller of the Go runtime, as
// epoll descriptors can be polled themselves, and after every turn: so whoever else is ready
// to run is not kept waiting.
type Loop struct {
	afterTurn func()
	epoll     *os.File
	raw       syscall.RawConn
	fd        int
	ended     chan struct{}

	mu      sync.Mutex
	watched []*Watch // by slot
	free    []int32  // slots

	// The loop's goroutine's.
	events [maxEvents]unix.EpollEvent
	turn   []*Watch
	again  []*Watch // are to be served again, though nothing new may come
}

// A Watch is one socket at a Loop.
type Watch struct {
	loop   *Loop
	reader Reader
	slot   int32

	// The loop's goroutine's.
	hungUp bool
	again  bool // it is in loop.again
}

// NewLoop starts a loop. afterTurn is called on its goroutine when all sockets that were ready
// have been served. Close ends it.
func NewLoop(afterTurn func()) (*Loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that os makes use of the runtime's poller
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	l := &Loop{afterTurn: afterTurn, fd: fd, epoll: os.NewFile(uintptr(fd), "epoll"), ended: make(chan struct{})}
	if l.raw, err = l.epoll.SyscallConn(); err != nil {
		l.epoll.Close()
		return nil, err
	}
	go l.run()
	return l, nil
}

// Close ends the loop, and returns when its goroutine has ended. Nothing is served any more.
func (l *Loop) Close() {
	l.epoll.Close()
	<-l.ended
}

// run is the loop's goroutine. Read calls turns after every wait, and returns when the loop is closed. What makes the epoll
// descriptor readable while turns runs ends the next wait at once. (It would be lost if turns reported true, since
// the next Read would begin by forgetting it.)
func (l *Loop) run() {
	defer close(l.ended)
	l.raw.Read(func(fd uintptr) bool { l.turns(int(fd)); return false })
}

// turns serves whoever is ready.
func (l *Loop) turns(fd int) {
	for more := true; more; {
		n := l.poll(fd)
		l.serve(n)
		l.afterTurn()
		if more = n == maxEvents || len(l.again) > 0; more { // of these the poller of the runtime knows nothing
			runtime.Gosched()
		}
	}
}

// poll takes the events that have come.
func (l *Loop) poll(fd int) int {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(&l.events)), maxEvents, 0, 0, 0)
		switch errno {
		case 0:
			return int(n)
		case syscall.EINTR:
		default:
			return 0
		}
	}
}

// serve calls those of n events, and those that wanted another turn.
func (l *Loop) serve(n int) {
	l.turn = append(l.turn[:0], l.again...)
	clear(l.again)
	l.again = l.again[:0]
	l.mu.Lock()
	for _, e := range l.events[:n] {
		w := l.watched[e.Fd]
		if w == nil {
			continue
		}
		w.hungUp = w.hungUp || e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
		if !w.again { // else it is in turn already
			l.turn = append(l.turn, w)
		}
	}
	l.mu.Unlock()
	for i, w := range l.turn {
		l.turn[i] = nil
		if w.again = w.reader.Ready(w.hungUp); w.again {
			l.again = append(l.again, w)
		}
	}
}

// NewWatch makes a Watch that is not started.
func (l *Loop) NewWatch(r Reader) *Watch {
	w := &Watch{loop: l, reader: r}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		w.slot, l.free = l.free[n-1], l.free[:n-1]
		l.watched[w.slot] = w
	} else {
		w.slot = int32(len(l.watched))
		l.watched = append(l.watched, w)
	}
	return w
}

// Start has the loop serve the socket of c, of which CanTryWrite is true.
func (w *Watch) Start(c *Conn) error { return w.control(c, unix.EPOLL_CTL_ADD) }

// Again has the loop call Ready if there is something to read now, as if it had just come.
func (w *Watch) Again(c *Conn) error { return w.control(c, unix.EPOLL_CTL_MOD) }

func (w *Watch) control(c *Conn, op int) (err error) {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: w.slot}
	if failed := c.raw.Control(func(fd uintptr) { err = unix.EpollCtl(w.loop.fd, op, int(fd), &e) }); failed != nil {
		return failed
	}
	return os.NewSyscallError("epoll_ctl", err)
}

// Stop makes the loop forget the socket, which is closed. Before that its events would go to the next Watch.
func (w *Watch) Stop() {
	l := w.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched[w.slot] = nil
	l.free = append(l.free, w.slot)
}
