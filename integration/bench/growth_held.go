package main

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

var overHeld = growth{
	name: "held", title: "More held locks", cause: "held locks",
	sizes: []int{1000, 10_000, 100_000, 1_000_000},
	text:  fmt.Sprintf("Three lock nodes, one proxy; leases of an hour, all taken through the proxy. Memory is what the proxy's heap and stacks, and each node's data set, have more in use for each lock. A page of LOCKCTL LIST looks at 100 keys; the pages are the first %d, CPU that of proxy and nodes. A cycle is LOCK and UNLOCK of further names by %d clients. Given back are those that were taken first. The last column is a GET of /metrics, CPU of the proxy.", listedPages, many),
	costs: []cost{
		{"proxy bytes a lock", "bytes a lock", "proxy", 0},
		{"bytes a lock and node", "bytes a lock", "each lock node", 0},
		{"CPU µs to take one", "CPU µs", "proxy, to take one", 0},
		{"proxy CPU µs a cycle", "CPU µs", "proxy, a cycle", 0},
		{"node CPU µs a cycle", "CPU µs", "nodes, a cycle", 0},
		{"CPU µs to give one back", "CPU µs", "proxy, to give back", 0},
		{"LIST CPU ms a page", "ms", "a page of LIST, CPU", 0},
		{"LIST ms a page", "ms", "a page of LIST", 0},
		{"scrape CPU ms", "ms", "/metrics, CPU", 0},
	},
	measure: func(p plan, sizes []int, add added) error {
		f, err := openWatched(3, "--max-ttl", "1h", "--fence-retention", "2h")
		if err != nil {
			return err
		}
		defer f.close()
		h := holding{watched: f}
		if err := h.begin(p); err != nil {
			return err
		}
		for _, n := range sizes {
			if err := h.grow(p, n, add); err != nil {
				return err
			}
		}
		return nil
	},
}

// listedPages is of how many pages of LIST the time is taken.
const listedPages = 40

// A holding is a proxy through which more and more locks are held.
type holding struct {
	*watched
	n                     int     // held
	proxyBegan, nodeBegan float64 // bytes in use with none
}

func (h *holding) begin(p plan) (err error) {
	if err := h.warm(p, dialOwn); err != nil {
		return err
	}
	if h.proxyBegan, err = h.inUse(); err == nil {
		h.nodeBegan, err = h.dataSet()
	}
	return err
}

// grow has n locks held, and measures what they cost.
func (h *holding) grow(p plan, n int, add added) error {
	before, err := h.work(int64(h.n))
	if err != nil {
		return err
	}
	if err := h.forAll(h.n, n, (*locker).takeForAnHour); err != nil {
		return err
	}
	h.n = n
	took, err := h.work(int64(n))
	if err != nil {
		return err
	}
	proxyBytes, err := h.inUse()
	if err != nil {
		return err
	}
	nodeBytes, err := h.dataSet()
	if err != nil {
		return err
	}
	cycle, err := h.cycle(p)
	if err != nil {
		return err
	}
	back, err := h.giveBack(min(n/2, 3000))
	if err != nil {
		return err
	}
	page, listing, err := h.list()
	if err != nil {
		return err
	}
	scrape, err := h.scrape()
	if err == nil {
		add(n, (proxyBytes-h.proxyBegan)/float64(n), (nodeBytes-h.nodeBegan)/float64(n), took.since(before).proxies,
			cycle.proxies, cycle.nodes, back, (listing.proxies+listing.nodes)/1e3, 1e3*page.Seconds(), scrape/1e3)
	}
	return err
}

// forAll does something with the locks from one number up to another, by some clients side by side.
func (h *holding) forAll(from, to int, do func(*locker) error) error {
	var g errgroup.Group
	for i := range many {
		g.Go(func() error {
			l, err := dialLocker(h.proxy.Addr(), "")
			if err != nil {
				return err
			}
			defer l.Close()
			for k := from + i; k < to; k += many {
				l.name = fmt.Sprint("held:", k)
				l.owner = fmt.Sprint("owner-", k)
				if err := do(l); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (l *locker) takeForAnHour() error {
	v, err := l.decided("LOCK", l.name, "1h", "OWNER", l.owner)
	if err == nil && v.Null {
		err = fmt.Errorf("LOCK %s: refused", l.name)
	}
	return err
}

// cycle is the pace of clients with other names.
func (h *holding) cycle(p plan) (pace, error) {
	return h.paceOf(p, many, func(i int) (cycler, error) { return dialOwn(h.proxy.Addr(), i) })
}

// giveBack is the proxy's CPU µs for each of n locks that are given back, those taken first. They are taken again.
func (h *holding) giveBack(n int) (float64, error) {
	before, err := h.work(0)
	if err != nil {
		return 0, err
	}
	if err := h.forAll(0, n, (*locker).release); err != nil {
		return 0, err
	}
	after, err := h.work(int64(n))
	if err != nil {
		return 0, err
	}
	return after.since(before).proxies, h.forAll(0, n, (*locker).takeForAnHour)
}

// list is how long a page of LIST takes, and what it costs.
func (h *holding) list() (page time.Duration, costs pace, err error) {
	c, err := redistest.Dial(h.proxy.Addr())
	if err != nil {
		return 0, pace{}, err
	}
	defer c.Close()
	before, err := h.work(0)
	if err != nil {
		return 0, pace{}, err
	}
	var took []time.Duration
	cursor := "0"
	for range listedPages {
		start := time.Now()
		v, err := c.Try("LOCKCTL", "LIST", "CURSOR", cursor, "COUNT", "100")
		if err != nil {
			return 0, pace{}, err
		}
		if len(v.Elems) != 2 {
			return 0, pace{}, fmt.Errorf("LOCKCTL LIST: %v", v)
		}
		took = append(took, time.Since(start))
		if cursor = v.Elems[0].Text; cursor == "0" {
			break // what comes next is the first page again
		}
	}
	after, err := h.work(int64(len(took)))
	return quantile(took, 0.5), after.since(before), err
}

const keptLease = 10 * time.Second

var overKept = growth{
	name: "kept", title: "More SESSION locks", cause: "SESSION locks",
	sizes: []int{100, 1000, 10_000},
	text:  fmt.Sprintf("Three lock nodes, one proxy, a hundred locks on each connection; leases of %v, which the proxy renews and nobody asks for. CPU is for each lock and lease. Memory is what the proxy's heap and stacks have more in use for each lock, a hundredth of a connection included.", keptLease),
	costs: []cost{
		{"proxy CPU µs a lock and lease", "CPU µs a lock and lease", "proxy", 0},
		{"node CPU µs a lock and lease", "CPU µs a lock and lease", "all lock nodes", 0},
		{"proxy KB a lock", "proxy KB a lock", "in use", 0},
	},
	measure: bySize(keepGrowing),
}

// keepGrowing has the proxy keep n locks for a while.
func keepGrowing(_ plan, n int, add added) error {
	f, err := openWatched(3)
	if err != nil {
		return err
	}
	defer f.close()
	before, err := f.inUse()
	if err != nil {
		return err
	}
	conns, err := keepAll(f.proxy.Addr(), n, n/100, keptLease)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	if err != nil {
		return err
	}
	time.Sleep(keptLease / 3) // until renewing is all there is
	start, err := f.work(0)
	if err != nil {
		return err
	}
	time.Sleep(keptLease * 2 / 3)
	end, err := f.work(int64(n))
	if err != nil {
		return err
	}
	after, err := f.inUse()
	if err != nil {
		return err
	}
	leases := end.when.Sub(start.when).Seconds() / keptLease.Seconds()
	spent := end.since(start)
	add(n, spent.proxies/leases, spent.nodes/leases, (after-before)/float64(n)/1e3)
	return nil
}
