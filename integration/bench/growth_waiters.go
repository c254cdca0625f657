package main

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

var overWaiters = growth{
	name: "waiters", title: "More waiters in one line", cause: "waiters",
	sizes: []int{1, 10, 100, 1000, 10_000}, from: 10,
	text: "Three lock nodes, one proxy; one more client than wait, all for one name: who has it gives it back, and stands in line again, where with one waiter there is nobody. Growth is counted from ten on. To stand in line is what each cost until all did. Memory is what the proxy's heap and stacks have more in use for each, its connection included.",
	costs: append(paceCosts(0, 0),
		cost{"CPU µs to stand in line", "CPU µs a cycle", "to stand in line", 0},
		cost{"proxy KB a waiter", "proxy KB a waiter", "in use", 0}),
	measure: bySize(inLine),
}

// inLine has n wait for a name that a further one has, and then take their turns.
func inLine(p plan, n int, add added) error {
	f, err := openWatched(3)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.warm(p, dialWaiter); err != nil {
		return err
	}
	before, err := f.inUse()
	if err != nil {
		return err
	}
	asked, err := redistest.Dial(f.proxy.Addr())
	if err != nil {
		return err
	}
	defer asked.Close()
	clients, err := crew(n+1, func(i int) (cycler, error) { return dialWaiter(f.proxy.Addr(), i) })
	defer func() { closeAll(clients) }()
	if err != nil {
		return err
	}
	if err := clients[0].acquire(); err != nil {
		return err
	}
	start, err := f.work(0)
	if err != nil {
		return err
	}
	for _, c := range clients[1:] {
		w := c.(*waiter)
		if _, err := io.WriteString(w.conn, redistest.Command("LOCK", w.name, "60s", "OWNER", w.owner, "WAIT", "10m")); err != nil {
			return err
		}
	}
	if err := allWait(asked, n); err != nil {
		return err
	}
	stood, err := f.work(int64(n))
	if err != nil {
		return err
	}
	after, err := f.inUse()
	if err != nil {
		return err
	}
	is, err := f.takeTurns(p, clients)
	if err != nil {
		return err
	}
	standing, bytes := stood.since(start).proxies, (after-before)/float64(n+1)
	if n < few {
		standing, bytes = unknown, unknown
	}
	add(n, is.rate, is.proxies, is.nodes, standing, bytes/1e3)
	return nil
}

// takeTurns goes on with clients of which the first has the lock and the others wait. It ends with their connections.
func (f *field) takeTurns(p plan, clients []cycler) (pace, error) {
	var done atomic.Int64
	var ending atomic.Bool
	var g errgroup.Group
	var closing sync.Once
	end := func() { closing.Do(func() { ending.Store(true); closeAll(clients) }) }
	defer end()
	for i, c := range clients {
		g.Go(func() error {
			w := c.(*waiter)
			if i > 0 {
				if _, err := w.conn.Next(); err != nil && !ending.Load() {
					return err
				}
			}
			for !ending.Load() {
				err := w.release()
				if err == nil {
					done.Add(1)
					err = w.acquire()
				}
				if err != nil && !ending.Load() {
					end()
					return err
				}
			}
			return nil
		})
	}
	var all []pace
	time.Sleep(p.turn())
	for range p.rounds {
		before, err := f.work(done.Load())
		if err != nil {
			return pace{}, err
		}
		time.Sleep(p.turn())
		after, err := f.work(done.Load())
		if err != nil {
			return pace{}, err
		}
		all = append(all, after.since(before))
	}
	end()
	return middle(all), g.Wait()
}
