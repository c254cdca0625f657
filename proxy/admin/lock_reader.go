package admin

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const (
	locksInterval = 2 * time.Second  // between events of the locks, at least
	locksShare    = 20               // listing names and reading holders may each take 1/locksShare of the time
	locksTimeout  = 10 * time.Second // of one event
	maxScans      = 300              // of a node's keys, a thousand each
	maxRows       = 500              // for one viewer
)

// A lockReader reads from the nodes who holds what. It is owned by one goroutine. With many
// names, listing them takes long and is done less often; the rows that are shown are read
// for each event all the same.
type lockReader struct {
	feed     *feed
	names    []locks.Key // sorted
	complete bool        // these are all
	seen     time.Time   // when names were listed; zero: never
	next     time.Time   // when to list them again
}

// read broadcasts who holds what, and returns how long to pause.
func (r *lockReader) read(ctx context.Context) (pause time.Duration) {
	filters := r.feed.filters()
	parts, listed, pause := r.look(ctx, filters)
	if listed != nil {
		r.feed.mu.Lock()
		r.feed.listedKeys = listed
		r.feed.mu.Unlock()
	}
	for _, filter := range filters {
		r.feed.broadcast("locks", parts[filter], func(w *viewer) bool { return w.filter == filter })
	}
	return pause
}

// look reads what read broadcasts, and the names in it by id; nil: it could not be read, as each part says.
func (r *lockReader) look(ctx context.Context, filters []string) (parts map[string]locksView, listed map[string]locks.Key, pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, locksTimeout)
	defer cancel()
	err := r.listNames(ctx)
	began := time.Now()
	if err == nil {
		parts, listed, err = r.readHoldings(ctx, filters)
	}
	if err != nil {
		parts = map[string]locksView{}
	}
	pause = pauseAfter(time.Since(began))
	for _, filter := range filters {
		v := parts[filter]
		v.Filter, v.Age, v.Every = filter, millis(time.Since(began)), millis(pause)
		if !r.seen.IsZero() {
			v.Seen = millis(time.Since(r.seen))
		}
		if err != nil {
			v.Error = shown(err.Error())
		}
		parts[filter] = v
	}
	return parts, listed, pause
}

// firstTimeout is how long a page that is opened waits for the nodes.
const firstTimeout = 300 * time.Millisecond

// A firstLook reads who holds what for pages that are just opened. It is safe for concurrent use.
type firstLook struct {
	mu   sync.Mutex
	r    lockReader
	view *locksView // the last, nil if it could not be read
	at   time.Time  // when view was read
	next time.Time  // when to read it again
}

// locks returns who holds what, read now unless that was done just before; nil if the nodes do not answer in time.
func (l *firstLook) locks(ctx context.Context) *locksView {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.next) {
		ctx, cancel := context.WithTimeout(ctx, firstTimeout)
		defer cancel()
		parts, listed, pause := l.r.look(ctx, []string{""})
		l.view, l.at, l.next = nil, time.Now(), time.Now().Add(pause)
		if listed != nil {
			v := parts[""]
			l.view = &v
			l.r.feed.mu.Lock()
			l.r.feed.firstKeys = listed
			l.r.feed.mu.Unlock()
		}
	}
	if l.view == nil {
		return nil
	}
	v := *l.view
	v.Age += millis(time.Since(l.at))
	return &v
}

// pauseAfter returns how long to pause after work that took so long, so that the work takes 1/locksShare of the time.
func pauseAfter(took time.Duration) time.Duration { return max(locksInterval, locksShare*took) }

// listNames lists the names, if it is time to.
func (r *lockReader) listNames(ctx context.Context) error {
	began := time.Now()
	if began.Before(r.next) {
		return nil
	}
	all, complete, err := r.feed.srv.opt.Locks.Names(ctx, locks.NamesRequest{DB: locks.AllDBs, Looks: maxScans})
	if err != nil {
		return err
	}
	slices.SortFunc(all, compareNames)
	r.names, r.complete, r.seen = all, complete, began
	r.next = time.Now().Add(pauseAfter(time.Since(began)) - locksInterval/10) // before the next turn, not just after it
	return nil
}

// filters are those of all viewers, each once.
func (f *feed) filters() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for v := range f.viewers {
		all = append(all, v.filter)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// readHoldings reads the rows for all filters at once, and no others, and the names in them by id.
func (r *lockReader) readHoldings(ctx context.Context, filters []string) (map[string]locksView, map[string]locks.Key, error) {
	svc := r.feed.srv.opt.Locks
	some, more := selectNames(r.names, waitedFor(svc), filters)
	held, err := svc.Holdings(ctx, union(some))
	if err != nil {
		return nil, nil, err
	}
	rows, listed := map[locks.Key]lockView{}, map[string]locks.Key{}
	for _, h := range held {
		n := h.Key
		rows[n] = viewLock(h, len(svc.Nodes()))
		listed[rows[n].ID] = n
	}
	parts := map[string]locksView{}
	for _, filter := range filters {
		v := locksView{Rows: []lockView{}, More: more[filter], Names: len(some[filter]) + more[filter], Complete: r.complete}
		for _, n := range some[filter] {
			if row, ok := rows[n]; ok {
				v.Rows = append(v.Rows, row)
			}
		}
		parts[filter] = v
	}
	return parts, listed, nil
}

// waitedFor are the names with the longest queues at this proxy.
func waitedFor(svc *locks.Service) (names []locks.Key) {
	queues, _ := svc.Queues(maxRows)
	for _, q := range queues {
		names = append(names, q.Key)
	}
	return names
}

// selectNames is, for each filter, some names that contain it, in their order, and the number of others: all that are
// waited for, so that a page can tell which are waited for most, and then the first ones.
func selectNames(all, waited []locks.Key, filters []string) (some map[string][]locks.Key, more map[string]int) {
	some, more = map[string][]locks.Key{}, map[string]int{}
	for _, filter := range filters {
		taken := map[locks.Key]struct{}{}
		for _, n := range slices.Concat(waited, all) {
			_, again := taken[n]
			switch {
			case again, filter != "" && !strings.Contains(strings.ToLower(n.Name), filter):
			case len(taken) < maxRows:
				taken[n] = struct{}{}
			default:
				more[filter]++
			}
		}
		some[filter] = slices.SortedFunc(maps.Keys(taken), compareNames)
	}
	return some, more
}

func compareNames(a, b locks.Key) int {
	return cmp.Or(cmp.Compare(a.DB, b.DB), cmp.Compare(a.Name, b.Name))
}

func union(some map[string][]locks.Key) []locks.Key {
	set := map[locks.Key]struct{}{}
	for _, names := range some {
		for _, n := range names {
			set[n] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(set))
}
