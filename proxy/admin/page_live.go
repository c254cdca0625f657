package admin

import (
	"bytes"
	"cmp"
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
	stateEvery  = time.Second            // what the proxy knows is told so often
	stateLeast  = 250 * time.Millisecond // and not sooner when somebody comes
	locksEvery  = 2 * time.Second
	locksShare  = 20               // names and holders each take one part in so many of the time, at most
	locksTime   = 10 * time.Second // and each time no longer than this
	locksLooks  = 300              // at the nodes' keys, a thousand each
	mostRows    = 500              // locks that a viewer is told of
	mostQueues  = 50
	mostHot     = 10
	leastHot    = 50 * time.Millisecond // a minute: less is no waiting
	mostViewers = 16
	maxFilter   = 512              // bytes
	behind      = 4                // events that may wait for a viewer
	ratesOver   = 10 * time.Second // that a rate is the mean of
)

// live tells everybody who looks at the page the same, and does nothing while nobody
// looks. Its methods are safe for concurrent use.
type live struct {
	srv   *Server
	began time.Time
	came  [2]chan struct{} // somebody came, for tell and for read: do not pause for long; each holds one

	mu      sync.Mutex
	some    chan struct{} // closed while somebody looks
	viewers map[*viewer]struct{}
	queued  map[string]locks.Key // by id: names that were told of in the state
	listed  map[string]locks.Key // and among the locks

	tallies []tally // owned by tell: the last ones, the oldest first
}

// A tally is what had been counted at a time.
type tally struct {
	at                         time.Time
	grants, refusals, noQuorum int64
}

// A viewer is one page that is open. Its events are closed when it is too slow to take
// them, or the server ends.
type viewer struct {
	filter string // of names, in lower case
	events chan []byte
}

func newLive(s *Server) *live {
	return &live{
		srv: s, began: time.Now(), some: make(chan struct{}), viewers: map[*viewer]struct{}{},
		came: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)},
	}
}

// errViewers says that no more pages are served.
var errViewers = errors.New("too many pages are open")

// join begins to tell a viewer, who must leave.
func (l *live) join(filter string) (*viewer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.viewers) >= mostViewers {
		return nil, errViewers
	}
	v := &viewer{filter: strings.ToLower(filter), events: make(chan []byte, behind)}
	if l.viewers[v] = struct{}{}; len(l.viewers) == 1 {
		close(l.some)
	}
	for _, c := range l.came {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	return v, nil
}

func (l *live) leave(v *viewer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(v)
}

func (l *live) dropLocked(v *viewer) {
	if _, ok := l.viewers[v]; !ok {
		return
	}
	close(v.events)
	if delete(l.viewers, v); len(l.viewers) == 0 {
		l.some = make(chan struct{})
		l.queued, l.listed = nil, nil
	}
}

// run tells until ctx ends.
func (l *live) run(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() {
		for l.watched(ctx) {
			l.tell()
			nap(ctx, stateLeast, nil)
			nap(ctx, stateEvery-stateLeast, l.came[0])
		}
	})
	both.Go(func() {
		r := &reader{live: l}
		for l.watched(ctx) {
			pause := r.read(ctx)
			nap(ctx, locksEvery, nil)
			nap(ctx, pause-locksEvery, l.came[1])
			if !l.anybody() {
				r = &reader{live: l}
			}
		}
	})
}

// watched waits until somebody looks. It is false when ctx has ended.
func (l *live) watched(ctx context.Context) bool {
	l.mu.Lock()
	some := l.some
	l.mu.Unlock()
	select {
	case <-some:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// anybody says that somebody looks.
func (l *live) anybody() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.viewers) > 0
}

// nap returns after d, when ctx has ended, or when somebody came.
func nap(ctx context.Context, d time.Duration, came chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-came:
	case <-ctx.Done():
	}
}

// send gives an event to those that want it. Who has not taken the last ones is dropped:
// the page connects again, and is told what is then.
func (l *live) send(event string, data any, wanted func(*viewer) bool) {
	text, err := json.Marshal(data)
	if err != nil {
		l.srv.opt.Log.Error("what the page is told cannot be written", "event", event, "error", err)
		return
	}
	message := slices.Concat([]byte("event: "+event+"\ndata: "), bytes.TrimSpace(text), []byte("\n\n"))
	l.mu.Lock()
	defer l.mu.Unlock()
	for v := range l.viewers {
		if !wanted(v) {
			continue
		}
		select {
		case v.events <- message:
		default:
			l.dropLocked(v)
		}
	}
}

// tell sends what this proxy knows.
func (l *live) tell() {
	v, names := l.state()
	l.mu.Lock()
	l.queued = names
	v.Viewers = len(l.viewers)
	l.mu.Unlock()
	l.send("state", v, func(*viewer) bool { return true })
}

// state is what this proxy knows, and the names in it.
func (l *live) state() (v stateView, names map[string]locks.Key) {
	svc := l.srv.opt.Locks
	stats := svc.Stats()
	names = map[string]locks.Key{}
	v = stateView{
		Health: []checkView{}, Proxy: l.proxy(stats), Nodes: []nodeView{}, Queues: []queueView{}, Asked: []hotView{}, Waited: []hotView{},
		Force: l.srv.opt.Force,
	}
	for _, c := range l.srv.readiness() {
		v.Health = append(v.Health, checkView{Of: c.of, Says: shown(c.says), OK: !c.missing})
	}
	for i, n := range svc.Nodes() {
		v.Nodes = append(v.Nodes, viewNode(n, stats.Each[i]))
	}
	v.Needed = len(v.Nodes)/2 + 1
	queues, lines := svc.Queues(mostQueues)
	v.Lines = lines
	for _, q := range queues {
		v.Queues = append(v.Queues, viewQueue(q))
		names[v.Queues[len(v.Queues)-1].ID] = q.Key
	}
	asked, waited := svc.Hot(mostHot)
	hot := func(all []locks.HotName, to *[]hotView) {
		for _, h := range all {
			*to = append(*to, viewHot(h))
			names[(*to)[len(*to)-1].ID] = h.Key
		}
	}
	hot(asked, &v.Asked)
	hot(slices.DeleteFunc(waited, func(h locks.HotName) bool { return h.Waited < leastHot }), &v.Waited)
	return v, names
}

// proxy is what is told of this proxy.
func (l *live) proxy(now locks.Stats) proxyView {
	v := proxyView{
		Version: l.srv.opt.Version, Uptime: millis(time.Since(l.began)),
		Clients: l.srv.opt.Proxy.Clients(), Draining: l.srv.opt.Proxy.Draining(),
		Waiting: now.Waiting, Sessions: now.Sessions, Kept: now.SessionLocks, Failed: now.NoQuorum,
	}
	at := tally{time.Now(), now.Grants, now.Refusals, now.NoQuorum}
	l.tallies = append(slices.DeleteFunc(l.tallies, func(t tally) bool { return at.at.Sub(t.at) > ratesOver }), at)
	if first := l.tallies[0]; first != at {
		since := at.at.Sub(first.at).Seconds()
		v.Grants = float64(at.grants-first.grants) / since
		v.Refusals = float64(at.refusals-first.refusals) / since
		v.NoQuorum = float64(at.noQuorum-first.noQuorum) / since
	}
	return v
}

// A reader asks the nodes who holds what. It is owned by one goroutine. Going through the
// names can take long where there are many, so it is done less often then, and what is
// shown is read all the same.
type reader struct {
	live     *live
	names    []locks.Key // in order
	complete bool        // these are all
	seen     time.Time   // when they were; zero: they were not
	next     time.Time   // when to go through them again
}

// read tells all viewers who holds what, and says for how long that is good enough for them.
func (r *reader) read(ctx context.Context) (pause time.Duration) {
	within, cancel := context.WithTimeout(ctx, locksTime)
	defer cancel()
	l := r.live
	err := r.look(within)
	began := time.Now()
	filters := l.filters()
	var parts map[string]locksView
	if err == nil {
		parts, err = r.ask(within, filters)
	}
	pause = share(time.Since(began))
	for _, filter := range filters {
		v := parts[filter]
		v.Filter, v.Age, v.Every = filter, millis(time.Since(began)), millis(pause)
		if v.Seen = millis(time.Since(r.seen)); err != nil {
			v.Error = shown(err.Error())
		}
		l.send("locks", v, func(w *viewer) bool { return w.filter == filter })
	}
	return pause
}

// share is how long not to do again what took so long.
func share(took time.Duration) time.Duration { return max(locksEvery, locksShare*took) }

// look goes through the names, if it is time to.
func (r *reader) look(ctx context.Context) error {
	began := time.Now()
	if began.Before(r.next) {
		return nil
	}
	all, complete, err := r.live.srv.opt.Locks.Names(ctx, locks.NamesRequest{DB: locks.AllDBs, Looks: locksLooks})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b locks.Key) int { return cmp.Or(cmp.Compare(a.DB, b.DB), cmp.Compare(a.Name, b.Name)) })
	r.names, r.complete, r.seen = all, complete, began
	r.next = time.Now().Add(share(time.Since(began)) - locksEvery/10) // not just after the next turn
	return nil
}

// filters are those that somebody looks through, each once.
func (l *live) filters() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for v := range l.viewers {
		all = append(all, v.filter)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ask reads once for all filters, and nothing of what is not shown.
func (r *reader) ask(ctx context.Context, filters []string) (map[string]locksView, error) {
	svc := r.live.srv.opt.Locks
	some, more := choose(r.names, filters)
	held, err := svc.Holdings(ctx, union(some))
	if err != nil {
		return nil, err
	}
	rows, listed := map[locks.Key]lockView{}, map[string]locks.Key{}
	for _, h := range held {
		n := h.Key
		rows[n] = viewLock(h, len(svc.Nodes()))
		listed[rows[n].ID] = n
	}
	r.live.mu.Lock()
	r.live.listed = listed
	r.live.mu.Unlock()
	parts := map[string]locksView{}
	for _, filter := range filters {
		v := locksView{Rows: []lockView{}, More: more[filter], Complete: r.complete}
		for _, n := range some[filter] {
			if row, ok := rows[n]; ok {
				v.Rows = append(v.Rows, row)
			}
		}
		parts[filter] = v
	}
	return parts, nil
}

// choose takes for each filter the first names that have it in them, and counts the others.
func choose(all []locks.Key, filters []string) (some map[string][]locks.Key, more map[string]int) {
	some, more = map[string][]locks.Key{}, map[string]int{}
	for _, filter := range filters {
		for _, n := range all {
			switch {
			case filter != "" && !strings.Contains(strings.ToLower(n.Name), filter):
			case len(some[filter]) < mostRows:
				some[filter] = append(some[filter], n)
			default:
				more[filter]++
			}
		}
	}
	return some, more
}

func union(some map[string][]locks.Key) (all []locks.Key) {
	seen := map[locks.Key]bool{}
	for _, names := range some {
		for _, n := range names {
			if !seen[n] {
				seen[n] = true
				all = append(all, n)
			}
		}
	}
	return all
}

// name is the name that an id stands for, if it was told of a moment ago.
func (l *live) name(id string) (n locks.Key, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, ok = l.listed[id]; !ok {
		n, ok = l.queued[id]
	}
	return n, ok
}
