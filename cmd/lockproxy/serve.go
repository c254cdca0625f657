package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/backends/loglimit"
	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/topology"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/commands/adopt"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/peers"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/stats"
	"github.com/lockproxy/lockproxy/proxy"
	"github.com/lockproxy/lockproxy/proxy/admin"
)

// startTimeout bounds the checks before serve accepts clients.
const startTimeout = 3 * time.Second

func (p program) serveCommand() *cli.Command {
	cmd := p.command("serve", "serve clients until SIGTERM, then drain", 0, func(c *cli.Context, o options) error {
		setThreads(o.procs)
		defer runtime.KeepAlive(setCollector())
		log := newLogger(p.stderr, o)
		var err error
		if o.listener, err = inheritedListener(); err != nil {
			return err
		}
		return serve(c.Context, o, log, func(_, _ net.Addr) { announce(c.Context, log) })
	})
	cmd.Flags = append(flags(new(options).settings()), configFlag())
	cmd.Description = `Locks decided by the upstream alone, to begin with:
  lockproxy serve --upstream redis://10.0.0.1:6379
Three lock nodes, a Redis Cluster as upstream, and a page for operators:
  lockproxy serve --upstream 'redis://10.0.0.1:6379?addr=10.0.0.2:6379' --admin 127.0.0.1:6381 \
    --lock-node redis://10.0.1.1:6379 --lock-node redis://10.0.1.2:6379 --lock-node redis://10.0.1.3:6379
Existing lock code, at first only watched, then decided by the lock nodes:
  lockproxy serve … --adopt-report
  lockproxy serve … --adopt 'lock:*'`
	return cmd
}

// setThreads sets the number of threads that run Go code at once (docs/decisions/0004).
func setThreads(n int) {
	switch {
	case n > 0:
		runtime.GOMAXPROCS(n)
	case os.Getenv("GOMAXPROCS") == "":
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
}

// setCollector has a process with little in memory collect garbage less often than Go would, and one with much collect it
// more often: locks cost less CPU, and many connections less memory (docs/decisions/0035). That takes memory which is never
// used, as long as it is kept. GOGC has its usual meaning.
func setCollector() (keep []byte) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
		keep = make([]byte, 16<<20)
	}
	return keep
}

func newLogger(w io.Writer, o options) *slog.Logger {
	return loglimit.New(w, o.logJSON, o.logLevel, o.logLimit)
}

// serve runs the proxy that o describes. After ctx ends it drains, and returns when
// everything it started has ended. listening is called once, when clients can connect, with
// the addresses for clients and operators; nil: there is none for operators.
func serve(ctx context.Context, o options, log *slog.Logger, listening func(clients, operators net.Addr)) error {
	for _, w := range append(o.exposed, o.warnings...) {
		log.Warn(w)
	}
	o = o.withTLS(log)
	defer watchCertificates(ctx, o.ownCertificates(log), log)()
	svc, err := newLocks(o, log)
	if err != nil {
		return err
	}
	watcher, err := newWatcher(o, log)
	if err != nil {
		return errors.Join(err, closeLocks(svc))
	}
	up := newUpstream(o, watcher, log)
	defer up.Close()
	defer runWatcher(ctx, watcher, up)()
	if err := startupChecks(ctx, o, watcher, up, svc, log); err != nil {
		return errors.Join(err, closeLocks(svc))
	}
	if admitsAnonymous(&o, up) {
		log.Warn(anonymousWarning)
	}
	heard := new(idiom.Heard)
	others := newAnnouncer(o, svc, up, heard, log)
	announceOnce(ctx, others)
	adoption, err := newAdoption(o, svc, others, heard, log)
	if err != nil {
		return errors.Join(err, closeLocks(svc))
	}
	observer, err := newObserver(o, heard)
	if err != nil {
		return errors.Join(err, closeLocks(svc))
	}
	table := commands.New(commands.Options{
		Adoption: adoption, Observer: observer,
		Upstream: up, MaxKept: o.maxOutput, Unshared: o.upstreamConns == 0,
		Verbs: lockcmd.Options{
			Locker: svc, Sessions: svc, Inspector: svc, Nodes: svc.Nodes, Reader: svc, Observer: observer,
			Migration: newMigration(o, svc, up, others),
			Proxies:   func() []lockcmd.Proxy { return shownProxies(others) }, KeepOnLoss: o.onLoss == "keep", RequireOwner: o.requireOwner, Publish: publisher(up, log),
			Limits: lockcmd.Limits{MinTTL: o.minTTL, MaxTTL: o.maxTTL, MaxHold: o.maxHold},
		},
		Info: stats.Info{Version: moduleVersion(), Mode: watcher.Mode, Locks: svc.Stats, Adoption: adoption.Info}, Log: log,
	})
	srv, err := proxy.New(proxy.Options{
		Listen: o.listen, Listener: o.listener, TLS: o.listenTLS(log), MaxClients: o.maxClients, MaxBulk: o.maxBulk, MaxOutput: o.maxOutput,
		IdleTimeout: o.idleTimeout, DrainTimeout: o.drainTimeout, Goroutines: o.engine == "goroutines", Log: log,
	}, table)
	if err != nil {
		return errors.Join(err, closeLocks(svc))
	}
	where, stopAdmin, err := startAdmin(ctx, o, admin.Options{
		Locks: svc, Observer: observer, Proxy: srv, Upstream: up, Metrics: metrics.Registry{srv, table, up, svc, others}, Log: log,
	})
	if err != nil {
		return errors.Join(err, closeServer(srv), closeLocks(svc))
	}
	defer stopAdmin()
	log.Info("listening", "address", srv.Addr().String(), "passed_on", o.listener != nil, "tls", o.clientTLS != nil, "upstream", o.upstream.String(), "lock_nodes", cmp.Or(o.store.String(), addresses(o.nodes)))
	listening(srv.Addr(), where)
	return runBoth(ctx, srv, svc, background(context.WithoutCancel(ctx), others.Run), log)
}

// runBoth runs the server and the lock service. The service ends after the last session, so that locks can be unlocked
// while clients are drained. If the service ends early it ends the server. stopAnnouncing is called between the two:
// sessions need to know the other proxies, and these are told through the lock nodes that this one ends.
func runBoth(ctx context.Context, srv *proxy.Server, svc *locks.Service, stopAnnouncing func(), log *slog.Logger) error {
	serveCtx, stopServing := context.WithCancel(ctx)
	defer stopServing()
	locksCtx, stopLocks := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLocks()

	ended := make(chan error, 1)
	go func() {
		defer stopServing()
		ended <- svc.Run(locksCtx)
	}()
	unhook := context.AfterFunc(ctx, func() { log.Info("draining: no new clients") })
	defer unhook()

	err := srv.Serve(serveCtx)
	stopAnnouncing()
	stopLocks()
	return errors.Join(ignoreCanceled(err), ignoreCanceled(<-ended))
}

// closeServer ends a server whose Serve was not called.
func closeServer(srv *proxy.Server) error { return srv.Serve(ended()) }

// closeLocks ends a service whose Run was not called, and waits for its goroutines.
func closeLocks(svc *locks.Service) error { return ignoreCanceled(svc.Run(ended())) }

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// ignoreCanceled drops context.Canceled, the error of a wanted end.
func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func newLocks(o options, log *slog.Logger) (*locks.Service, error) {
	store, err := o.store.New(voterOptions(o, log), o.serverTLS, log)
	if err != nil {
		return nil, err
	}
	return locks.New(store, locks.Options{
		MinTTL: o.minTTL, MaxHold: o.maxHold, SessionGrace: o.sessionGrace, MaxWait: o.maxWait, MaxWaiters: o.maxWaiters,
		RenewEndless: o.adoptsKeys(), Log: log,
	})
}

func voterOptions(o options, log *slog.Logger) voters.Options {
	return voters.Options{
		Nodes:        o.nodes,
		MaxTTL:       o.maxTTL,
		NodeTimeout:  o.nodeTimeout,
		Retention:    o.fenceRetention,
		Prefix:       o.prefix,
		Bootstrap:    o.bootstrap,
		OnDemand:     o.upstreamVotes, // the node record would be among the clients' data
		RestartGrace: o.restartGrace,
		ReplicaAcks:  o.replicaAcks,
		SentinelUser: o.sentinelUser, SentinelPassword: o.sentinelPassword,
		Log: log,
	}
}

func newWatcher(o options, log *slog.Logger) (*topology.Watcher, error) {
	return topology.New(o.upstream, topology.Options{
		Mode: o.mode, Replicas: o.readFrom != "master",
		SentinelUser: o.sentinelUser, SentinelPassword: o.sentinelPassword, Log: log,
	})
}

// newUpstream makes the upstream of the nodes that the watcher knows before its first probe.
func newUpstream(o options, watcher *topology.Watcher, log *slog.Logger) *upstream.Upstream {
	up := upstream.New(upstream.Options{
		PoolOptions: upstream.PoolOptions{Server: o.upstream, Conns: o.upstreamConns, MaxIdentities: o.maxIdentities, Log: log},
		ReadFrom:    map[string]upstream.ReadFrom{"replica": upstream.FromReplica, "any": upstream.FromAny}[o.readFrom],
		Refresh:     watcher.Refresh,
	})
	up.SetTopology(watcher.Initial())
	return up
}

// runWatcher runs the watcher until stop is called, which waits for its end. Draining
// clients still need to know where the nodes are, so it outlives ctx.
func runWatcher(ctx context.Context, watcher *topology.Watcher, up *upstream.Upstream) (stop func()) {
	return background(context.WithoutCancel(ctx), func(ctx context.Context) {
		_ = watcher.Run(ctx, up.SetTopology) // ends with ctx
	})
}

// background runs f until stop is called, which waits for its end.
func background(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() { cancel(); running.Wait() }
}

// startupChecks asks the upstream and the lock nodes for their identity. One that is down is
// logged, since it may come back; lock nodes that must not be used together, or at all, are
// an error.
func startupChecks(ctx context.Context, o options, watcher *topology.Watcher, up *upstream.Upstream, svc *locks.Service, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	reached := make(chan error, 1)
	go func() {
		err := probeUpstream(ctx, watcher, up)
		if o.upstreamConns == 0 { // nobody shares it
			up.Forget(up.DefaultIdentity())
		}
		reached <- err
	}()
	err := svc.Check(ctx)
	if fault := <-reached; fault != nil && !errors.Is(fault, context.Canceled) {
		log.Warn("the upstream cannot be used yet; serving anyway", "error", fault)
	}
	if o.upstreamVotes && up.View().Cluster() {
		return errUnsafeLockNode
	}
	return err
}

// probeUpstream waits until the watcher has probed once, and opens a first connection.
func probeUpstream(ctx context.Context, watcher *topology.Watcher, up *upstream.Upstream) error {
	select {
	case <-watcher.Probed():
	case <-ctx.Done():
	}
	return up.Pool().Connect(ctx, up.DefaultIdentity())
}

func addresses(nodes []*backends.Server) string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.String()
	}
	return strings.Join(names, " ")
}

// initTimeout bounds lockproxy init, which needs the answer of every lock node.
const initTimeout = 10 * time.Second

func (p program) initCommand() *cli.Command {
	const usage = "declare that the lock nodes are new, so that they vote at once (with --bootstrap strict)"
	return p.command("init", usage, 0, func(c *cli.Context, o options) error {
		ctx, cancel := context.WithTimeout(c.Context, initTimeout)
		defer cancel()
		log := newLogger(p.stderr, o)
		svc, err := newLocks(o.withTLS(log), log)
		if err != nil {
			return err
		}
		if err := errors.Join(svc.Init(ctx), closeLocks(svc)); err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "%s: voting\n", addresses(o.nodes))
		return err
	})
}

// newAdoption returns nil if no key is a lock.
func newAdoption(o options, svc *locks.Service, others *peers.Announcer, heard *idiom.Heard, log *slog.Logger) (*adopt.Adoption, error) {
	if len(o.adopt) == 0 {
		return nil, nil
	}
	logAdoption(log, o.adopt)
	return adopt.New(o.adopt, adopt.Options{Engine: svc, Inspector: svc, MinTTL: o.minTTL, MaxTTL: o.maxTTL, Peers: others, Dialect: heard.Dialect, Log: log})
}
