package main

import (
	"fmt"
	"time"
)

// How many clients cycle where their number is not what grows: at one proxy, and at each of several.
const (
	many = 16
	each = 8
)

// paceCosts are the costs of a cycle, and how they may grow.
func paceCosts(proxies, nodes float64) []cost {
	return []cost{
		{"cycles/s", "cycles/s", "all clients", anything},
		{"proxy CPU µs a cycle", "CPU µs a cycle", "proxies", proxies},
		{"node CPU µs a cycle", "CPU µs a cycle", "all lock nodes", nodes},
	}
}

var overNodes = growth{
	name: "nodes", title: "More lock nodes", cause: "lock nodes",
	sizes:   []int{1, 3, 5, 7, 9},
	text:    fmt.Sprintf("One proxy; %d clients, each with a name of its own. All nodes are asked, so the costs may grow as their number.", many),
	costs:   paceCosts(1, 1),
	measure: paces(func(p plan, n int) (pace, error) { return paceOf(p, n, 1, many, dialOwn) }),
}

var overProxies = growth{
	name: "proxies", title: "More proxies", cause: "proxies",
	sizes:   []int{1, 2, 3, 4},
	text:    fmt.Sprintf("Three lock nodes; %d clients at each proxy, each client with a name of its own.", each),
	costs:   paceCosts(0, 0),
	measure: paces(func(p plan, n int) (pace, error) { return paceOf(p, 3, n, each, dialOwn) }),
}

var overProxiesOneName = growth{
	name: "proxies-one-name", title: "More proxies with one line", cause: "proxies",
	sizes:   []int{1, 2, 3, 4},
	text:    "The same, but all wait in line for one name: each proxy has a line of its own, and every lock node tells each of a release, so the costs may grow as the number of proxies.",
	costs:   paceCosts(1, 1),
	measure: paces(func(p plan, n int) (pace, error) { return paceOf(p, 3, n, each, dialWaiter) }),
}

// dialOwn opens a client with a name of its own.
func dialOwn(addr string, i int) (cycler, error) { return dialLocker(addr, fmt.Sprint("name-", i)) }

// dialWaiter opens a client that stands in line for the same name as all others.
func dialWaiter(addr string, i int) (cycler, error) {
	l, err := dialLocker(addr, "one")
	if err != nil {
		return nil, err
	}
	l.owner = fmt.Sprint("owner-", i)
	return &waiter{*l}, nil
}

// paces measures costs that are those of paceCosts.
func paces(of func(p plan, n int) (pace, error)) func(plan, []int, added) error {
	return bySize(func(p plan, n int, add added) error {
		is, err := of(p, n)
		if err == nil {
			add(n, is.rate, is.proxies, is.nodes)
		}
		return err
	})
}

// paceOf is the pace of some clients at each proxy, which dial makes.
func paceOf(p plan, nodes, proxies, clients int, dial func(addr string, i int) (cycler, error)) (pace, error) {
	f, err := openField(nodes, proxies)
	if err != nil {
		return pace{}, err
	}
	defer f.close()
	return f.paceOf(p, clients*proxies, func(i int) (cycler, error) { return dial(f.proxies[i%proxies].Addr(), i) })
}

// paceOf is the pace of n clients that make makes.
func (f *field) paceOf(p plan, n int, make func(i int) (cycler, error)) (pace, error) {
	all, err := crew(n, make)
	defer func() { closeAll(all) }()
	if err != nil {
		return pace{}, err
	}
	return f.pace(p, all)
}

var overNames = growth{
	name: "names", title: "More names", cause: "names",
	sizes: []int{1, 10, 100, 1000, 10_000}, from: 10,
	text:    "Three lock nodes, one proxy; ten clients, and one where there is one name, that go round their shares of the names. Growth is counted from ten names on: from there on as many clients are at work.",
	costs:   paceCosts(0, 0),
	measure: paces(paceOfNames),
}

// paceOfNames is the pace of clients that go round n names, over a connection each.
func paceOfNames(p plan, n int) (pace, error) {
	f, err := openField(3, 1)
	if err != nil {
		return pace{}, err
	}
	defer f.close()
	clients := min(n, 10)
	return f.paceOf(p, clients, func(i int) (cycler, error) { return f.rota(i, clients, n, false) })
}

// rota is the i-th of some clients that share n names; with apart it has a connection for each.
func (f *field) rota(i, clients, n int, apart bool) (*rota, error) {
	r := &rota{}
	for k := i; k < n; k += clients {
		if len(r.all) > 0 && !apart {
			r.all = append(r.all, &locker{conn: r.all[0].conn, name: fmt.Sprint("name-", k), owner: "the owner"})
			continue
		}
		l, err := dialLocker(f.proxy.Addr(), fmt.Sprint("name-", k))
		if err != nil {
			return r, err
		}
		r.all = append(r.all, l)
	}
	return r, nil
}

var overConnections = growth{
	name: "connections", title: "More connections", cause: "connections",
	sizes: []int{10, 100, 1000, 10_000},
	text:  "Three lock nodes, one proxy; ten clients that go round their shares of the connections, each of which has a name of its own. Memory is what the proxy's heap and stacks have more in use after a collection than before the first connection. The last column is of all connections together when none asks for anything.",
	costs: append(paceCosts(0, 0),
		cost{"proxy KB a connection", "proxy KB a connection", "in use", 0},
		cost{"proxy CPU ms a second, all silent", "", "", 1}),
	measure: bySize(overConnectionsOf),
}

func overConnectionsOf(p plan, n int, add added) error {
	f, err := openWatched(3)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.warm(p, dialOwn); err != nil {
		return err
	}
	before, err := f.inUse()
	if err != nil {
		return err
	}
	all, err := crew(10, func(i int) (cycler, error) { return f.rota(i, 10, n, true) })
	defer func() { closeAll(all) }()
	if err != nil {
		return err
	}
	is, err := f.pace(p, all)
	if err != nil {
		return err
	}
	after, err := f.inUse()
	if err != nil {
		return err
	}
	silent, err := f.silent(p)
	if err != nil {
		return err
	}
	bytes := (after - before) / float64(n)
	if n < few {
		bytes = unknown
	}
	add(n, is.rate, is.proxies, is.nodes, bytes/1e3, silent/1e3)
	return nil
}

// few is how many are too few for the memory and the time of each.
const few = 100

// warm has some clients cycle, so that the proxy has what it needs for the first of them.
func (f *field) warm(p plan, dial func(addr string, i int) (cycler, error)) error {
	all, err := crew(many, func(i int) (cycler, error) { return dial(f.proxy.Addr(), i) })
	defer func() { closeAll(all) }()
	if err == nil {
		_, err = drive(all, p.turn())
	}
	return err
}

// silent is the CPU µs a second of the proxy while nothing is asked of it.
func (f *field) silent(p plan) (float64, error) {
	before, err := f.work(0)
	if err != nil {
		return 0, err
	}
	time.Sleep(p.turn())
	after, err := f.work(0)
	return 1e6 * (after.proxies - before.proxies) / after.when.Sub(before.when).Seconds(), err
}
