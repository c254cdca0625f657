package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/netio"
	"github.com/lockproxy/lockproxy/backends/workers"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/proxy/request"
)

// Options are read once by New.
type Options struct {
	// Listen is host:port, or the path of a Unix socket; required, except with Listener.
	Listen string
	// Listener, if not nil, takes the place of Listen. The server closes it. Another process
	// may have the same socket: connections not accepted at the end are left to it.
	Listener net.Listener
	// TLS is for clients on a TCP listener; nil means plain text. It must not be changed
	// any more.
	TLS *tls.Config
	// MaxClients bounds the clients connected at once; 0 means 10000.
	MaxClients int
	// MaxBulk bounds one argument, in bytes; 0 means 512 MB.
	MaxBulk int64
	// MaxOutput bounds the bytes of replies that wait for a client which does not read;
	// beyond it the client is disconnected. 0 means 256 MB.
	MaxOutput int64
	// IdleTimeout disconnects a client that sent nothing for so long and waits for nothing;
	// 0 means never.
	IdleTimeout time.Duration
	// DrainTimeout is how long running commands may take once the server drains; 0 means
	// 10 s.
	DrainTimeout time.Duration
	// Goroutines has a goroutine read from each client, in place of event loops, which only Linux has.
	Goroutines bool
	// Log gets nothing that clients sent; nil means slog.Default().
	Log *slog.Logger
}

// A Server serves clients on one address.
type Server struct {
	opt      Options
	cmds     *commands.Dispatcher
	rules    *request.Rules
	ln       net.Listener
	draining context.Context // done: the server drains
	drain    context.CancelFunc
	drainBy  atomic.Pointer[time.Time] // when draining ends; nil before it has begun
	quiet    time.Duration             // drainQuiet, except in tests
	clients  atomic.Int64
	sessions sync.WaitGroup
	workers  *workers.Pool // of sessions

	loopsOnce sync.Once // startLoops
	loops     []*loop

	mu  sync.Mutex
	all map[*session]struct{} // that have not ended

	accepted, refused, unsecured atomic.Int64
	ends                         [len(reasons)]atomic.Int64
	traffic                      metrics.Shards[metrics.Traffic]
}

// New listens. Clients that connect wait until Serve is called.
func New(opt Options, cmds *commands.Dispatcher) (*Server, error) {
	opt.MaxClients = cmp.Or(max(opt.MaxClients, 0), 10000)
	opt.MaxBulk = cmp.Or(max(opt.MaxBulk, 0), 512<<20)
	opt.MaxOutput = cmp.Or(max(opt.MaxOutput, 0), 256<<20)
	opt.DrainTimeout = cmp.Or(max(opt.DrainTimeout, 0), 10*time.Second)
	opt.Log = cmp.Or(opt.Log, slog.Default())
	ln, err := opt.listen()
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, cmds: cmds, ln: ln, rules: request.Limits{Bulk: int(opt.MaxBulk)}.Rules(), quiet: drainQuiet, all: map[*session]struct{}{}}
	warnOfFewFiles(opt.MaxClients, opt.Log)
	s.draining, s.drain = context.WithCancel(context.Background())
	s.workers = workers.New(maxIdleWorkers, s.draining.Done())
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Clients is how many clients are connected.
func (s *Server) Clients() int { return int(s.clients.Load()) }

// Draining reports whether no new clients are accepted any more.
func (s *Server) Draining() bool { return s.draining.Err() != nil }

// Serve accepts clients until ctx is done. It then drains: running commands, but no LOCK
// that waits for another owner, may finish within DrainTimeout. It returns when the last
// session has ended. The error is that of the listener, if it failed first.
//
// Clients that had connected before ctx was done are still served, if only for a moment:
// the kernel resets what it has accepted for a listener when that closes.
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
				s.admitConnected()
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

// acceptLastFor bounds the wait for one client that has connected before the drain, and
// acceptAllLastFor that for all of them.
const (
	acceptLastFor    = 5 * time.Millisecond
	acceptAllLastFor = 100 * time.Millisecond
)

// admitConnected admits the clients that the kernel has accepted for the listener already.
func (s *Server) admitConnected() {
	ln, ok := s.ln.(deadliner)
	for began := time.Now(); ok && time.Since(began) < acceptAllLastFor; {
		ln.SetDeadline(time.Now().Add(acceptLastFor))
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
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, one := range all {
		one.startDrain()
	}
	s.cmds.Drain()
}

// await returns when the last session has ended, and the goroutines of its LOCKs. A session that is writing to
// an upstream which does not read can be ended only by closing the upstream: that is done after DrainTimeout and
// a second.
func (s *Server) await() {
	defer time.AfterFunc(s.opt.DrainTimeout+time.Second, s.cmds.CloseUpstream).Stop()
	s.sessions.Wait()
	s.workers.Wait()
	s.closeLoops()
	s.cmds.Wait()
}

func (s *Server) admit(nc net.Conn) {
	s.accepted.Add(1)
	if s.clients.Add(1) > int64(s.opt.MaxClients) {
		s.clients.Add(-1)
		s.refused.Add(1)
		s.opt.Log.Warn("client refused: max-clients are connected", "client", nc.RemoteAddr().String(), "max", s.opt.MaxClients)
		if s.opt.TLS == nil { // the client could not read it before a handshake
			nc.SetWriteDeadline(time.Now().Add(time.Second))
			nc.Write(redcon.AppendError(nil, "ERR max number of clients reached"))
		}
		nc.Close()
		return
	}
	if tcp, ok := nc.(*net.TCPConn); ok && s.opt.Listener != nil { // which may not set probes
		tcp.SetKeepAliveConfig(probes)
	}
	id := s.cmds.NextID() // here, so that ids are in the order of connecting
	s.sessions.Go(func() {
		if nc, ok := s.secure(nc); ok {
			serve(s, netio.Wrap(nc), id)
		} else {
			s.clients.Add(-1)
		}
	})
}

// addSession has a session drain with the server. It comes before removeSession. (As callbacks of the draining context
// sessions would need 600 bytes more, each.)
func (s *Server) addSession(one *session) {
	s.sessions.Add(1)
	s.mu.Lock()
	s.all[one] = struct{}{}
	s.mu.Unlock()
	if s.Draining() {
		one.startDrain()
	}
}

func (s *Server) removeSession(one *session) {
	s.mu.Lock()
	delete(s.all, one)
	s.mu.Unlock()
	s.clients.Add(-1)
	s.sessions.Done()
}
