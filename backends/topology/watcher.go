package topology

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/loglimit"
)

const (
	// maxAge is the longest time between two probes of an upstream that may change.
	maxAge = time.Second
	// maxAgeCluster is maxAge for a Cluster, whose nodes answer a misdirected command
	// with the right address.
	maxAgeCluster = 5 * time.Second
	// minPause is the least time between two probes.
	minPause = 100 * time.Millisecond
	// modePause is the least time between two probes of a standalone server, which may
	// have become a Cluster.
	modePause = time.Second
)

// Options are read once by New.
type Options struct {
	Mode     string // one of the modes; empty means ModeAuto
	Replicas bool   // whether a Topology must name replicas; if false it may have none
	// SentinelUser and SentinelPassword authenticate at sentinels, and the credentials
	// of the URL at the servers that sentinels name. Both empty: no AUTH.
	SentinelUser, SentinelPassword string
	Subject                        string       // what is watched, for the log; empty means "upstream"
	Probing                        func()       // called before each probe, on the goroutine of Run; nil: nothing is
	Log                            *slog.Logger // nil means slog.Default()
}

// A Watcher probes the nodes of one upstream. Run does the work; Mode, Refresh and
// Probed are safe for concurrent use.
type Watcher struct {
	// Fixed by New, and safe for concurrent use.
	seed      *backends.Server
	opt       Options
	refresh   chan struct{} // of capacity 1: a probe is wanted soon
	probed    chan struct{} // closed after the first probe
	published atomic.Value  // mode, for other goroutines

	// Owned by the goroutine in Run.
	mode           string
	modeKnown      bool            // false: mode is a guess from the URL
	failing        bool            // the last probe failed
	failed         bool            // and the log is to say so
	severalMasters bool            // the last probe found several where there may be one
	masters        string          // of the last Topology, as logged
	lastRoles      map[string]role // of each node, by address, as last answered
	targets        []string        // nodes of a Cluster, masters first, or sentinels: to probe next
	incomplete     bool            // some of the targets did not answer
	subscribed     map[string]context.CancelFunc
	probeLines     loglimit.Limit // that probes fail, and work again
	masterLines    loglimit.Limit
	subscriptions  sync.WaitGroup

	mu    sync.Mutex // conns is filled by the goroutines of one probe
	conns map[string]*probeConn
}

// New makes a Watcher of the upstream that seed names; nothing is dialed yet. The
// error is CheckMode's.
func New(seed *backends.Server, opt Options) (*Watcher, error) {
	opt.Mode, opt.Subject, opt.Log = cmp.Or(opt.Mode, ModeAuto), cmp.Or(opt.Subject, "upstream"), cmp.Or(opt.Log, slog.Default())
	w := &Watcher{
		seed: seed, opt: opt, mode: opt.Mode, modeKnown: opt.Mode != ModeAuto,
		refresh: make(chan struct{}, 1), probed: make(chan struct{}),
		conns: map[string]*probeConn{}, subscribed: map[string]context.CancelFunc{}, lastRoles: map[string]role{},
	}
	if opt.Mode == ModeAuto {
		w.mode = modeOfURL(seed)
		w.modeKnown = w.mode == ModeSentinel
	}
	w.published.Store(w.mode)
	w.targets = seed.Addresses()
	return w, CheckMode(seed, opt.Mode)
}

// Initial is the Topology before the first probe: the server of the URL, or no master
// where the URL may name other servers than the master. It must be called before Run.
func (w *Watcher) Initial() *Topology {
	if w.mode == ModeStandalone {
		return &Topology{Shards: []Shard{{Master: w.seed}}}
	}
	return &Topology{Shards: []Shard{{}}}
}

// Mode is one of the modes except ModeAuto: a guess from the URL until the upstream
// has answered.
func (w *Watcher) Mode() string { return w.published.Load().(string) }

// Refresh asks for a probe soon. It does not block and may be called often.
func (w *Watcher) Refresh() {
	select {
	case w.refresh <- struct{}{}:
	default:
	}
}

// Probed is closed after Run's first probe, successful or not.
func (w *Watcher) Probed() <-chan struct{} { return w.probed }

// Run probes until ctx ends and calls found with each Topology, unchanged ones too,
// one call after the other. A probe that fails calls nothing. Run returns ctx's error
// when every goroutine that it started has ended; it must be called once.
func (w *Watcher) Run(ctx context.Context, found func(*Topology)) error {
	defer w.close()
	for first := true; ; first = false {
		if w.opt.Probing != nil {
			w.opt.Probing()
		}
		t, err := w.probe(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.logChange(t, err)
		w.published.Store(w.mode)
		if t != nil {
			found(t)
		}
		w.closeUnused()
		if first {
			close(w.probed)
		}
		if !w.awaitNext(ctx) {
			return ctx.Err()
		}
	}
}

// probe asks the nodes once. Both results are nil if there was nothing to ask.
func (w *Watcher) probe(ctx context.Context) (*Topology, error) {
	if w.opt.Mode == ModeAuto && (!w.modeKnown || w.mode == ModeStandalone) {
		if err := w.detectMode(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case w.mode == ModeSentinel:
		return w.probeSentinels(ctx)
	case w.mode == ModeCluster:
		return w.probeCluster(ctx)
	case w.mode == ModeReplicated:
		return w.probeReplicated(ctx)
	case w.opt.Replicas:
		return w.probeStandalone(ctx)
	}
	return nil, nil
}

// awaitNext returns when the next probe is due, or false when ctx has ended.
func (w *Watcher) awaitNext(ctx context.Context) bool {
	least, most := w.interval()
	if !sleep(ctx, least) {
		return false
	}
	var due <-chan time.Time
	if most > 0 {
		due = time.After(most - least)
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.refresh:
	case <-due:
	}
	return true
}

// interval is the least and the most time to the next probe; most is 0 where only
// Refresh asks for one.
func (w *Watcher) interval() (least, most time.Duration) {
	switch {
	case w.mode == ModeStandalone && w.modeKnown && !w.opt.Replicas:
		return modePause, 0
	case w.mode == ModeStandalone && !w.opt.Replicas:
		return modePause, modePause
	case w.mode == ModeCluster && !w.failing && !w.incomplete:
		return minPause, maxAgeCluster
	}
	return minPause, maxAge
}

// logChange logs that probes fail, or work again, and masters that are not those of the Topology before.
func (w *Watcher) logChange(t *Topology, err error) {
	w.failing = err != nil
	failed := w.failing && (w.mode != ModeStandalone || w.opt.Replicas) // else its pool logs that it is down
	if leftOut, due := w.probeLines.State(failed != w.failed, time.Now()); due && failed {
		w.log(slog.LevelWarn, "topology probe failed; the last topology stays in use", leftOut, slog.Any("error", err))
	} else if due {
		w.log(loglimit.Level(leftOut), "topology probe works again", leftOut)
	}
	w.failed = failed
	if t == nil {
		return
	}
	var names []string
	for _, s := range t.Shards {
		if s.Master != nil {
			names = append(names, s.Master.String())
		}
	}
	masters := strings.Join(backends.Distinct(names), " ")
	if leftOut, due := w.masterLines.State(masters != w.masters, time.Now()); due && masters == "" {
		w.log(slog.LevelWarn, "has no master", leftOut)
	} else if due {
		w.log(loglimit.Level(leftOut), "masters found", leftOut, slog.String("mode", w.mode), slog.String("masters", masters))
	}
	w.masters = masters
}

// log logs about the Subject; leftOut changes before had no line.
func (w *Watcher) log(level slog.Level, text string, leftOut int, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String(strings.ReplaceAll(w.opt.Subject, " ", "_"), w.seed.String()))
	w.opt.Log.LogAttrs(context.Background(), level, w.opt.Subject+" "+text, loglimit.With(attrs, leftOut)...)
}

// close ends the subscriptions, waits for their goroutines, and closes connections.
func (w *Watcher) close() {
	for _, cancel := range w.subscribed {
		cancel()
	}
	w.subscriptions.Wait()
	for _, c := range w.conns {
		c.Close()
	}
}

// sleep reports whether d has passed; false: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
