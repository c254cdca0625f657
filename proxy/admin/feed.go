package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const (
	stateInterval    = time.Second            // between events of the proxy's own state
	minStateInterval = 250 * time.Millisecond // the same when a viewer joins
	maxQueues        = 50
	maxHot           = 10
	minHotWait       = 50 * time.Millisecond // a minute; less is not shown
	maxViewers       = 16
	maxFilter        = 512 // bytes
	maxPendingEvents = 4   // of one viewer
	rateWindow       = 10 * time.Second
)

// A feed makes the events of the page, once for all viewers, and rests while there are none. It also makes what a page
// shows first when it is opened. Its methods are safe for concurrent use.
type feed struct {
	srv   *Server
	began time.Time

	// Each holds one signal: a viewer has joined, so do not sleep for long.
	wakeState, wakeLocks chan struct{}

	mu         sync.Mutex
	hasViewer  chan struct{} // closed while there are viewers
	viewers    map[*viewer]struct{}
	queuedKeys map[string]locks.Key // of the last state, by id
	listedKeys map[string]locks.Key // of the last rows, by id
	firstKeys  map[string]locks.Key // of what a page that was opened last shows, by id; it may have no viewer yet

	first firstLook

	rates   sync.Mutex   // for samples
	samples []rateSample // the oldest first
}

// A rateSample is the counters at one time.
type rateSample struct {
	at                         time.Time
	grants, refusals, noQuorum int64
}

// A viewer is one open page. Its events are closed when it is too slow to take them.
type viewer struct {
	filter string // of names, in lower case
	events chan []byte
}

func newFeed(s *Server) *feed {
	f := &feed{
		srv: s, began: time.Now(), hasViewer: make(chan struct{}), viewers: map[*viewer]struct{}{},
		wakeState: make(chan struct{}, 1), wakeLocks: make(chan struct{}, 1),
	}
	f.first.r.feed = f
	return f
}

var errTooManyViewers = errors.New("too many pages are open")

// join adds a viewer. The caller must call leave.
func (f *feed) join(filter string) (*viewer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.viewers) >= maxViewers {
		return nil, errTooManyViewers
	}
	v := &viewer{filter: strings.ToLower(filter), events: make(chan []byte, maxPendingEvents)}
	if f.viewers[v] = struct{}{}; len(f.viewers) == 1 {
		close(f.hasViewer)
	}
	for _, c := range []chan struct{}{f.wakeState, f.wakeLocks} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	return v, nil
}

func (f *feed) leave(v *viewer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(v)
}

func (f *feed) dropLocked(v *viewer) {
	if _, ok := f.viewers[v]; !ok {
		return
	}
	close(v.events)
	if delete(f.viewers, v); len(f.viewers) == 0 {
		f.hasViewer = make(chan struct{})
		f.queuedKeys, f.listedKeys = nil, nil
	}
}

// run makes events until ctx ends.
func (f *feed) run(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() {
		for f.waitForViewer(ctx) {
			f.sendState()
			sleep(ctx, minStateInterval, nil)
			sleep(ctx, stateInterval-minStateInterval, f.wakeState)
		}
	})
	both.Go(func() {
		r := &lockReader{feed: f}
		for f.waitForViewer(ctx) {
			pause := r.read(ctx)
			sleep(ctx, locksInterval, nil)
			sleep(ctx, pause-locksInterval, f.wakeLocks)
			if !f.hasViewers() {
				r = &lockReader{feed: f}
			}
		}
	})
}

// waitForViewer waits for a viewer. It is false when ctx has ended.
func (f *feed) waitForViewer(ctx context.Context) bool {
	f.mu.Lock()
	hasViewer := f.hasViewer
	f.mu.Unlock()
	select {
	case <-hasViewer:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (f *feed) hasViewers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.viewers) > 0
}

// sleep returns after d, or earlier when ctx ends or wake receives.
func sleep(ctx context.Context, d time.Duration, wake chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// broadcast gives an event to the viewers that want it. One that has not taken the last ones
// is dropped; its page connects again.
func (f *feed) broadcast(event string, data any, wanted func(*viewer) bool) {
	text, err := json.Marshal(data)
	if err != nil {
		f.srv.opt.Log.Error("event of the page cannot be encoded", "event", event, "error", err)
		return
	}
	message := slices.Concat([]byte("event: "+event+"\ndata: "), bytes.TrimSpace(text), []byte("\n\n"))
	f.mu.Lock()
	defer f.mu.Unlock()
	for v := range f.viewers {
		if !wanted(v) {
			continue
		}
		select {
		case v.events <- message:
		default:
			f.dropLocked(v)
		}
	}
}

// sendState broadcasts the proxy's own state.
func (f *feed) sendState() {
	v, names := f.state()
	f.mu.Lock()
	f.queuedKeys = names
	v.Viewers = len(f.viewers)
	f.mu.Unlock()
	f.broadcast("state", v, func(*viewer) bool { return true })
}

// state is the proxy's own state, and the names in it by id.
func (f *feed) state() (v stateView, names map[string]locks.Key) {
	svc := f.srv.opt.Locks
	stats := svc.Stats()
	names = map[string]locks.Key{}
	v = stateView{
		Health: []checkView{}, Proxy: f.viewProxy(stats), Nodes: []nodeView{}, Queues: []queueView{}, Asked: []hotView{}, Waited: []hotView{},
		Force: f.srv.opt.Force,
	}
	for _, c := range f.srv.readiness() {
		v.Health = append(v.Health, checkView{Of: c.name, Says: shown(c.detail), OK: !c.failed})
	}
	for i, n := range svc.Nodes() {
		v.Nodes = append(v.Nodes, viewNode(n, stats.Each[i]))
	}
	v.Needed = len(v.Nodes)/2 + 1
	v.Summary = summarize(v)
	queues, lines := svc.Queues(maxQueues)
	v.Lines = lines
	for _, q := range queues {
		v.Queues = append(v.Queues, viewQueue(q))
		names[v.Queues[len(v.Queues)-1].ID] = q.Key
	}
	asked, waited := svc.Hot(maxHot)
	hot := func(all []locks.HotName, to *[]hotView) {
		for _, h := range all {
			*to = append(*to, viewHot(h))
			names[(*to)[len(*to)-1].ID] = h.Key
		}
	}
	hot(asked, &v.Asked)
	hot(slices.DeleteFunc(waited, func(h locks.HotName) bool { return h.Waited < minHotWait }), &v.Waited)
	return v, names
}

// viewProxy is the state of the proxy but for nodes and locks.
func (f *feed) viewProxy(now locks.Stats) proxyView {
	v := proxyView{
		Version: f.srv.opt.Version, Uptime: millis(time.Since(f.began)),
		Clients: f.srv.opt.Proxy.Clients(), Draining: f.srv.opt.Proxy.Draining(),
		Waiting: now.Waiting, Sessions: now.Sessions, Kept: now.SessionLocks, Failed: now.NoQuorum,
	}
	f.rates.Lock()
	defer f.rates.Unlock()
	at := rateSample{time.Now(), now.Grants, now.Refusals, now.NoQuorum}
	f.samples = append(slices.DeleteFunc(f.samples, func(s rateSample) bool { return at.at.Sub(s.at) > rateWindow }), at)
	if first := f.samples[0]; first != at {
		since := at.at.Sub(first.at).Seconds()
		v.Grants = float64(at.grants-first.grants) / since
		v.Refusals = float64(at.refusals-first.refusals) / since
		v.NoQuorum = float64(at.noQuorum-first.noQuorum) / since
	}
	return v
}

// keyOf is the name of an id, if it was in the last events, or on the page that was opened last.
func (f *feed) keyOf(id string) (n locks.Key, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, shown := range []map[string]locks.Key{f.listedKeys, f.queuedKeys, f.firstKeys} {
		if n, ok = shown[id]; ok {
			break
		}
	}
	return n, ok
}
