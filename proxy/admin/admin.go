// Package admin lets an operator see the proxy, over HTTP.
//
// It answers what an operator may see, and who is one. /healthz, /readyz and /metrics
// are for whoever reaches the port, and name no locks, owners or secrets. Everything
// else is for the operator: whoever reaches a loopback address or a Unix socket, or has
// the password. It reads package locks and never asks the lock nodes for the sake of
// what is open to all.
//
// A [Server] owns the goroutines of its connections and those that ask the upstream
// whether it is there; Serve returns when all have ended.
package admin

import (
	"bytes"
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
	"github.com/lockproxy/lockproxy/proxy"
)

// Options are read once by New.
type Options struct {
	// Listen is host:port, or the path of a Unix socket; required.
	Listen   string
	Locks    *locks.Service     // required
	Proxy    Clients            // required
	Upstream *upstream.Upstream // required
	// Metrics are served together with the server's own.
	Metrics metrics.Registry
	// TLS is what an operator on a TCP listener must speak; nil: plain text. It is used as it
	// is, and not to be changed any more.
	TLS *tls.Config
	// Password lets an operator in, with any user name. Empty: whoever reaches a loopback
	// address or a Unix socket is one, and nobody else.
	Password string
	// Pprof serves profiles of the process to operators.
	Pprof bool
	// Force lets operators take locks away.
	Force bool
	// Certificates are those that the proxy shows.
	Certificates []Certificate
	// Version is of this program.
	Version string
	// Log is told who took locks away and what goes wrong; nil means slog.Default().
	Log *slog.Logger
}

// A Certificate is one that the proxy shows.
type Certificate struct {
	Use  string                   // whom it is shown to: clients, operators or servers
	Leaf func() *x509.Certificate // the one that is shown now; it may be called at any time
}

// Clients are those of the proxy; *proxy.Server has them. It must not wait for any.
type Clients interface {
	Clients() int   // how many are connected
	Draining() bool // no more are let in
}

// A Server serves one address. It is made by New.
type Server struct {
	opt    Options
	ln     net.Listener
	local  bool // only this machine reaches it
	wrong  *guesses
	watch  *watch
	live   *live
	http   *http.Server
	ending context.Context // of all requests; done: those that last must end
	end    context.CancelFunc
	seats  *seats
}

// Bounds on what a client of the server may take. A handler whose answer lasts, such as
// a stream of events, sets its own deadline with an http.ResponseController.
const (
	maxConns     = 256
	maxHeader    = 16 << 10
	maxBody      = 64 << 10
	headTimeout  = 5 * time.Second // for a request's header
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	keepIdle     = time.Minute
	endTime      = time.Second // for requests under way when the server is to end
)

// New listens. Clients that connect wait until Serve is called.
func New(opt Options) (*Server, error) {
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	ln, err := proxy.Listen(opt.Listen)
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, ln: ln, local: isLocal(ln.Addr()), wrong: newGuesses(), watch: newWatch(opt.Upstream), seats: newSeats()}
	s.live = newLive(s)
	s.ending, s.end = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       keepIdle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(complaints{opt.Log}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return s.ending },
		ConnContext:       s.seats.with,
		ConnState:         s.seats.follow,
	}
	return s, nil
}

// complaints are what net/http has to say. Of clients that do not keep to HTTP or TLS
// that is of little interest, and they could say it without end.
type complaints struct{ log *slog.Logger }

// Write implements io.Writer.
func (c complaints) Write(p []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(p, []byte("panic")) {
		level = slog.LevelError
	}
	c.log.Log(context.Background(), level, "admin server", "error", string(bytes.TrimSpace(p)))
	return len(p), nil
}

// isLocal says that only this machine reaches what listens at an address.
func isLocal(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// routes are all that can be asked for. What is not in open is the operator's.
func (s *Server) routes() http.Handler {
	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", s.healthz)
	open.HandleFunc("GET /readyz", s.readyz)
	open.Handle("GET /metrics", s.metrics())

	own := http.NewServeMux()
	s.page(own)
	s.profiles(own)
	open.Handle("/", s.guard(own))
	return secured(open)
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Serve answers until ctx is done, gives requests under way a moment, and returns when
// every goroutine of the server has ended. The error is that of the listener, if it
// failed first.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { s.watch.run(ctx) })
	background.Go(func() { s.live.run(ctx) })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-ctx.Done()
		s.shut()
	}()
	ln := s.ln
	if s.opt.TLS != nil {
		ln = tls.NewListener(ln, s.opt.TLS)
	}
	err := s.http.Serve(ln)
	cancel()
	<-closed
	background.Wait()
	s.seats.all.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends a server that Serve was not called for.
func (s *Server) Close() error { return s.ln.Close() }

func (s *Server) shut() {
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
}
