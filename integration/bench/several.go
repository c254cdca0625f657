package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A severalLocker locks several names at once through the proxy, or one with LOCK.
type severalLocker struct {
	locker
	names []string
}

func (l *severalLocker) acquire() error {
	args := append(append([]string{"LOCKALL", strconv.Itoa(len(l.names))}, l.names...), "30s", "OWNER", l.owner)
	v, err := l.decided(args...)
	if err == nil && v.Null {
		err = fmt.Errorf("LOCKALL of names that nobody has: %s", v)
	}
	return err
}

func (l *severalLocker) release() error {
	_, err := l.decided(append(append([]string{"UNLOCKALL", strconv.Itoa(len(l.names))}, l.names...), l.owner)...)
	return err
}

// measureSeveral compares LOCKALL of more and more names with LOCK of one.
func measureSeveral(p plan, page *report) error {
	page.linef("\n## Several names at once\n")
	page.linef("One client, whose names nobody else wants, in %d turns of %v each. Times in ms, CPU of the proxy and of one master, µs a cycle of LOCKALL and UNLOCKALL. Where there is a round trip, each reply of a master is held up for so long, as by a network. The first row of each is LOCK and UNLOCK of one name, and the ratios are to that, medians over the turns.\n", 2*p.rounds, p.slice/2)
	page.table("masters", "round trip ms", "names", "LOCKALL p50", "of LOCK", "cycle p50", "of LOCK's", "proxy CPU", "CPU of one master", "µs more a name")
	for _, masters := range []int{1, 3, 5} {
		if err := severalOn(masters, 0, p, page); err != nil {
			return err
		}
	}
	return severalOn(3, 500*time.Microsecond, p, page)
}

// severalOn adds the rows of so many masters, so far away.
func severalOn(masters int, roundTrip time.Duration, p plan, page *report) error {
	g, err := openDistantGround(masters, roundTrip)
	if err != nil {
		return err
	}
	defer g.close()
	var all []*severalTurns
	defer func() {
		for _, t := range all {
			_ = t.client.Close()
		}
	}()
	for _, n := range []int{0, 1, 2, 5, 10, 64} {
		c, err := redistest.Dial(g.proxy.Addr())
		if err != nil {
			return err
		}
		one := locker{conn: c, name: fmt.Sprint("one-", n), owner: "me"}
		t := &severalTurns{names: n, client: &one}
		if n > 0 {
			several := &severalLocker{locker: one}
			for i := range n {
				several.names = append(several.names, fmt.Sprintf("of-%d-%d", n, i))
			}
			t.client = several
		}
		all = append(all, t)
	}
	for turn := range 2*p.rounds + 1 {
		for _, t := range all {
			if err := t.take(g, p); err != nil {
				return err
			}
			if turn == 0 { // it warms up
				*t = severalTurns{names: t.names, client: t.client}
			}
		}
	}
	single := all[0]
	for _, t := range all {
		name, more := "LOCK", "–"
		if t.names > 0 {
			name = strconv.Itoa(t.names)
		}
		if t.names > 1 {
			more = fmt.Sprintf("%.1f", (median(t.node)-median(all[1].node))/float64(t.names-1))
		}
		page.row(strconv.Itoa(masters), fmt.Sprint(roundTrip.Seconds()*1000), name, fmt.Sprintf("%.2f", 1000*median(t.first)), fmt.Sprintf("%.2f", median(ratios(t.first, single.first))),
			fmt.Sprintf("%.2f", 1000*median(t.both)), fmt.Sprintf("%.2f", median(ratios(t.both, single.both))), fmt.Sprintf("%.0f", median(t.proxy)), fmt.Sprintf("%.0f", median(t.node)), more)
	}
	return nil
}

// severalTurns are what one client did, turn by turn.
type severalTurns struct {
	names       int
	client      cycler
	first, both []float64 // s, of LOCK, and of LOCK and UNLOCK
	proxy, node []float64 // µs of CPU a cycle
}

func (t *severalTurns) take(g *ground, p plan) error {
	nodes, proxy, err := g.cpuOfBoth()
	if err != nil {
		return err
	}
	s, err := drive([]cycler{t.client}, p.slice/2)
	if err != nil {
		return err
	}
	nodesAfter, proxyAfter, err := g.cpuOfBoth()
	t.first = append(t.first, quantile(s.first, 0.5).Seconds())
	t.both = append(t.both, quantile(s.both, 0.5).Seconds())
	t.proxy = append(t.proxy, 1e6*(proxyAfter-proxy)/float64(s.cycles))
	t.node = append(t.node, 1e6*(nodesAfter-nodes)/float64(s.cycles*len(g.nodes)))
	return err
}

// cpuOfBoth is the CPU time of the masters together, and of the proxy, in seconds.
func (g *ground) cpuOfBoth() (nodes, proxy float64, err error) {
	if nodes, err = runSecondsOf(g.nodes); err != nil {
		return 0, 0, err
	}
	proxy, err = runSeconds(g.proxy.PID())
	return nodes, proxy, err
}
