package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/netio"
	"github.com/lockproxy/lockproxy/commands"
)

// Options are read once by New.
type Options struct {
	// Listen is host:port, or the path of a Unix socket; required, but with Listener.
	Listen string
	// Listener, if not nil, takes the place of Listen. The server closes it. Others may
	// have the same socket: who has connected and was not accepted is left to them.
	Listener net.Listener
	// TLS is what clients on a TCP listener must speak; nil: plain text. It is used
	// as it is, and not to be changed any more.
	TLS *tls.Config
	// MaxClients is how many may be connected; 0 means 10000.
	MaxClients int
	// MaxBulk bounds one argument, in bytes; 0 means 512 MB.
	MaxBulk int64
	// MaxOutput is how many bytes of replies may wait for a client that does not
	// read, before it is disconnected; 0 means 256 MB.
	MaxOutput int64
	// IdleTimeout disconnects a client from which nothing came, and which waits for
	// nothing; 0 means never.
	IdleTimeout time.Duration
	// DrainTimeout is how long running commands may take when the server is told to
	// end; 0 means 10 s.
	DrainTimeout time.Duration
	// Log is never told what clients say; nil means slog.Default().
	Log *slog.Logger
}

// A Server serves clients on one address.
type Server struct {
	opt      Options
	cmds     *commands.Dispatcher
	ln       net.Listener
	draining context.Context // done: the server is to end
	drain    context.CancelFunc
	drainBy  atomic.Pointer[time.Time] // when draining ends; nil before it has begun
	quiet    time.Duration             // drainQuiet, except in tests
	clients  atomic.Int64
	sessions sync.WaitGroup

	accepted, refused, unsecured atomic.Int64
	ends                         [len(reasons)]atomic.Int64
	counts                       metrics.Shards[counts]
}

// New listens. Clients that connect wait until Serve is called.
func New(opt Options, cmds *commands.Dispatcher) (*Server, error) {
	if opt.MaxClients <= 0 {
		opt.MaxClients = 10000
	}
	if opt.MaxBulk <= 0 {
		opt.MaxBulk = 512 << 20
	}
	if opt.MaxOutput <= 0 {
		opt.MaxOutput = 256 << 20
	}
	if opt.DrainTimeout <= 0 {
		opt.DrainTimeout = 10 * time.Second
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	ln, err := opt.listen()
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, cmds: cmds, ln: ln, quiet: drainQuiet}
	s.draining, s.drain = context.WithCancel(context.Background())
	return s, nil
}

func (opt Options) listen() (net.Listener, error) {
	_, unix := opt.Listener.(*net.UnixListener)
	switch {
	case opt.TLS != nil && (unix || opt.Listener == nil && isPath(opt.Listen)):
		return nil, errors.New("a Unix socket carries no TLS")
	case opt.Listener != nil:
		return opt.Listener, nil
	}
	return Listen(opt.Listen)
}

// A host that vanished is noticed within keepIdle + keepCount*keepInterval, if
// nothing is on its way to it. What is on its way it must acknowledge within vanishTime
// while its client has locks with SESSION. Others are spared that (TCP_USER_TIMEOUT): it
// ends connections to clients that read nothing for so long, too. It is less than the
// time of the last probe, at which the kernel looks at it instead of keepCount.
const (
	keepIdle     = 5 * time.Second
	keepInterval = 3 * time.Second
	keepCount    = 3
	vanishTime   = 13 * time.Second
)

var probes = net.KeepAliveConfig{Enable: true, Idle: keepIdle, Interval: keepInterval, Count: keepCount}

// Listen listens at host:port, or at the path of a Unix socket, from which it removes a
// socket that nobody listens on any more. Connections have keep-alive probes.
func Listen(addr string) (net.Listener, error) {
	network := "tcp"
	if isPath(addr) {
		network = "unix"
		if err := removeStale(addr); err != nil {
			return nil, err
		}
	}
	lc := net.ListenConfig{KeepAliveConfig: probes}
	return lc.Listen(context.Background(), network, addr)
}

// isPath tells the path of a Unix socket from host:port.
func isPath(addr string) bool { return strings.ContainsRune(addr, '/') }

// removeStale removes a socket that nobody listens on any more.
func removeStale(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return err // a file that is no socket: Listen says so
	}
	if nc, err := net.Dial("unix", path); err == nil {
		nc.Close()
		return nil // in use: Listen says so
	}
	return os.Remove(path)
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Clients is how many clients are connected.
func (s *Server) Clients() int { return int(s.clients.Load()) }

// Draining says that no new clients are accepted any more.
func (s *Server) Draining() bool { return s.draining.Err() != nil }

// Serve accepts clients until ctx is done, then lets running commands finish, for
// DrainTimeout at most, but a LOCK that waits for another owner not, and returns when the last session has ended. The error is
// that of the listener, if it failed first.
//
// Clients that had connected before ctx was done are still served, if only for a moment:
// what the kernel has accepted for a listener is reset when that closes.
func (s *Server) Serve(ctx context.Context) error {
	defer s.await()
	defer s.ln.Close()
	defer s.beginDrain()
	defer context.AfterFunc(ctx, func() { s.endAccept(); s.beginDrain() })()
	for wait := time.Duration(0); ; {
		nc, err := s.ln.Accept()
		switch {
		case err == nil:
			wait = 0
			s.admit(nc)
		case ctx.Err() != nil:
			if s.opt.Listener == nil {
				s.admitRest()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // out of file descriptors, most likely: it passes
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			s.opt.Log.Warn("cannot accept a client", "error", err, "retry_in", wait)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
	}
}

// lastTime is how long a client that has connected is waited for, and lastTimes that
// all together.
const (
	lastTime  = 5 * time.Millisecond
	lastTimes = 100 * time.Millisecond
)

// admitRest admits the clients that the kernel has accepted for the listener already.
func (s *Server) admitRest() {
	ln, ok := s.ln.(deadliner)
	for began := time.Now(); ok && time.Since(began) < lastTimes; {
		ln.SetDeadline(time.Now().Add(lastTime))
		nc, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.admit(nc)
	}
}

// A deadliner is a listener whose Accept can be ended without closing it.
type deadliner interface{ SetDeadline(time.Time) error }

// endAccept makes Accept fail.
func (s *Server) endAccept() {
	if ln, ok := s.ln.(deadliner); !ok || ln.SetDeadline(time.Unix(1, 0)) != nil {
		s.ln.Close()
	}
}

// drainLeft is how much of DrainTimeout is left.
func (s *Server) drainLeft() time.Duration {
	if by := s.drainBy.Load(); by != nil {
		return time.Until(*by)
	}
	return s.opt.DrainTimeout
}

func (s *Server) beginDrain() {
	by := time.Now().Add(s.opt.DrainTimeout)
	s.drainBy.CompareAndSwap(nil, &by)
	s.drain()
	s.cmds.Drain()
}

// await returns when the last session has ended. One that writes to an upstream
// which does not read hears of nothing else: after the time for draining the
// upstream is given up.
func (s *Server) await() {
	defer time.AfterFunc(s.opt.DrainTimeout+time.Second, s.cmds.CloseUpstream).Stop()
	s.sessions.Wait()
}

func (s *Server) admit(nc net.Conn) {
	s.accepted.Add(1)
	if s.clients.Add(1) > int64(s.opt.MaxClients) {
		s.clients.Add(-1)
		s.refused.Add(1)
		s.opt.Log.Warn("client refused: there are too many", "client", nc.RemoteAddr().String(), "max", s.opt.MaxClients)
		if s.opt.TLS == nil { // else it could not be read: there was no handshake
			nc.SetWriteDeadline(time.Now().Add(time.Second))
			nc.Write([]byte("-ERR max number of clients reached\r\n"))
		}
		nc.Close()
		return
	}
	if tcp, ok := nc.(*net.TCPConn); ok && s.opt.Listener != nil { // which may not set probes
		tcp.SetKeepAliveConfig(probes)
	}
	id := s.cmds.NextID() // here, so that they are in the order in which clients came
	s.sessions.Go(func() {
		defer s.clients.Add(-1)
		if nc, ok := s.secure(nc); ok {
			serve(s, netio.Wrap(nc), id)
		}
	})
}
