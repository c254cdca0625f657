// Package admin is an HTTP server for operators.
//
// It answers what an operator may see, and who is one. /healthz, /readyz and /metrics are
// for whoever reaches the port, name no locks, owners or secrets, and cause no request to a
// lock node. Everything else is for operators: clients of a loopback address or a Unix
// socket, or those that have the password.
//
// A [Server] owns the goroutines of its connections, the pinger, which asks the upstream's
// masters for a sign of life, the feed, which produces the events of the page, and the history,
// which samples what it draws. Serve returns when all have ended.
package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
	"github.com/lockproxy/lockproxy/proxy"
)

// Options are read once by New.
type Options struct {
	// Listen is host:port, or the path of a Unix socket; required.
	Listen   string
	Locks    *locks.Service     // required
	Proxy    Clients            // required
	Upstream *upstream.Upstream // required
	// Observer has seen which keys are used as locks; nil: nobody looks.
	Observer *observe.Observer
	// Metrics are served together with the server's own.
	Metrics metrics.Registry
	// TLS is for a TCP listener; nil: plain text. It must not be changed any more.
	TLS *tls.Config
	// Password is an operator's, with any user name. Empty: operators are the clients of a
	// loopback address or a Unix socket; on other addresses there are none.
	Password string
	// Pprof serves profiles of the process to operators.
	Pprof bool
	// Force lets operators take locks away.
	Force bool
	// Certificates are those of the proxy.
	Certificates []Certificate
	// Version is this program's.
	Version string
	// Log gets forced locks, wrong passwords and faults; nil means slog.Default().
	Log *slog.Logger
}

// A Certificate is one of the proxy's.
type Certificate struct {
	Use  string                   // its peers: clients, operators or servers
	Leaf func() *x509.Certificate // the current one; safe for concurrent use
}

// Clients are those of the proxy; *proxy.Server implements it. The methods must not block.
type Clients interface {
	Clients() int   // connected ones
	Draining() bool // no more are accepted
}

// A Server serves one address. Use New.
type Server struct {
	opt          Options
	ln           net.Listener
	loopbackOnly bool // ln is reached from this machine only
	logins       *loginThrottle
	pinger       *pinger
	feed         *feed
	history      *history
	timelines    *timelines
	http         *http.Server
	ending       context.Context // parent of all requests'; done: long ones must end
	end          context.CancelFunc
	conns        *connLimit
}

// Limits for clients of the server. A handler of long responses, such as a stream of events,
// sets its own deadlines with an http.ResponseController.
const (
	maxConns        = 256
	maxHeader       = 16 << 10
	maxBody         = 64 << 10
	headerTimeout   = 5 * time.Second // for a request's header
	readTimeout     = 10 * time.Second
	writeTimeout    = 30 * time.Second
	idleTimeout     = time.Minute
	shutdownTimeout = time.Second // of requests under way when the server ends
)

// New listens. Clients that connect wait until Serve is called.
func New(opt Options) (*Server, error) {
	opt.Log = cmp.Or(opt.Log, slog.Default())
	ln, err := proxy.Listen(opt.Listen)
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, ln: ln, loopbackOnly: isLoopback(ln.Addr()), logins: newLoginThrottle(), pinger: newPinger(opt.Upstream, opt.Log), conns: newConnLimit()}
	s.timelines = newTimelines()
	opt.Locks.Watch(s.timelines.add)
	s.feed, s.history = newFeed(s), &history{registry: metrics.Registry{opt.Locks}}
	s.ending, s.end = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(httpErrors{opt.Log}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return s.ending },
		ConnContext:       s.conns.withConn,
		ConnState:         s.conns.stateChanged,
	}
	return s, nil
}

// httpErrors logs the errors of net/http. Those of clients that violate HTTP or TLS are for
// debugging only.
type httpErrors struct{ log *slog.Logger }

// Write implements io.Writer.
func (c httpErrors) Write(p []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(p, []byte("panic")) {
		level = slog.LevelError
	}
	c.log.Log(context.Background(), level, "admin server", "error", string(bytes.TrimSpace(p)))
	return len(p), nil
}

// isLoopback reports whether only this machine reaches a listener's address.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// routes are all handlers. Those not in open are for operators.
func (s *Server) routes() http.Handler {
	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", s.healthz)
	open.HandleFunc("GET /readyz", s.readyz)
	open.Handle("GET /metrics", s.metrics())

	own := http.NewServeMux()
	s.page(own)
	s.profiles(own)
	open.Handle("/", s.requireOperator(own))
	return withSecurityHeaders(open)
}

// Addr is the listener's address.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Serve serves until ctx is done, gives requests under way shutdownTimeout, and returns when
// all goroutines of the server have ended. Its error is that of the listener, if that failed
// first.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { s.pinger.run(ctx) })
	background.Go(func() { s.feed.run(ctx) })
	background.Go(func() { s.history.run(ctx) })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-ctx.Done()
		s.shutdown()
	}()
	ln := s.ln
	if s.opt.TLS != nil {
		ln = tls.NewListener(ln, s.opt.TLS)
	}
	err := s.http.Serve(ln)
	cancel()
	<-closed
	background.Wait()
	s.conns.running.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close closes a server whose Serve was not called.
func (s *Server) Close() error { return s.ln.Close() }

func (s *Server) shutdown() {
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
}
