package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A cost is a column of a growth, with one figure for each size.
type cost struct {
	label string  // of its column
	unit  string  // of the axis; costs of the same unit share a panel; empty: it is not in the picture
	curve string  // its name there
	most  float64 // the exponent with which it may grow, as far as it is known; anything shows only
}

// anything is the exponent of what is no cost, such as a rate.
var anything = math.Inf(1)

// A growth is how costs grow with the size of their cause.
type growth struct {
	name, title string // of the picture, and of the section
	cause       string
	sizes       []int
	text        string // what was done
	costs       []cost
	measure     func(p plan, sizes []int, add added) error
	from        int // the exponent is counted from this size on
}

// added takes the costs of one size.
type added = func(size int, costs ...float64)

// bySize measures one size after the other.
func bySize(one func(p plan, n int, add added) error) func(plan, []int, added) error {
	return func(p plan, sizes []int, add added) error {
		for _, n := range sizes {
			if err := one(p, n, add); err != nil {
				return err
			}
		}
		return nil
	}
}

var growths = []growth{overNodes, overProxies, overProxiesOneName, overNames, overWaiters, overHeld, overKept, overConnections}

// measureGrowth has each cause grow, and shows what it costs.
func measureGrowth(p plan, page *report) error {
	page.linef("\n## Growth\n")
	page.linef("What one cycle of LOCK and UNLOCK, one lock, one connection costs, as their number grows. Growth is the exponent between the ends: the cost is as the cause to the power of it, 0 if each costs the same however many there are. Beside it the same from the middle of the sizes on, and the most that is right; what is more than that by over %.2g is in bold. CPU is user and system time of the proxies, and of all lock nodes together, medians of %d turns of %v; the rest is idle, or the clients'.\n", unsure, p.rounds, p.turn())
	for _, g := range growths {
		if err := g.report(p, page); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	return nil
}

// partsOfGrowth are the growths as parts of their own, to measure one again.
func partsOfGrowth() (all []part) {
	for _, g := range growths {
		all = append(all, part{"growth-" + g.name, g.report})
	}
	return all
}

// turn is how long one turn of a growth takes.
func (p plan) turn() time.Duration { return p.slice / 2 }

// report measures, and makes the section and its picture.
func (g growth) report(p plan, page *report) error {
	raiseFiles(25_000)
	curves := make([][]point, len(g.costs))
	page.linef("\n### %s\n", g.title)
	page.linef("%s\n", g.text)
	page.linef("![%s](%s)\n", g.title, g.file())
	columns := []string{g.cause}
	for _, c := range g.costs {
		columns = append(columns, c.label)
	}
	page.table(columns...)
	err := g.measure(p, scaled(g.sizes, p.scale), func(size int, costs ...float64) {
		row := []string{fmt.Sprint(size)}
		for i, y := range costs {
			row = append(row, figures(y))
			if !math.IsNaN(y) {
				curves[i] = append(curves[i], point{float64(size), y})
			}
		}
		page.row(row...)
	})
	if err != nil {
		return err
	}
	g.exponents(page, curves)
	page.picture(g.file(), plot(g.title, g.cause, g.panels(curves)))
	return nil
}

func (g growth) file() string { return "growth-" + g.name + ".svg" }

// scaled are the sizes up to a share of the largest, two at least.
func scaled(sizes []int, scale float64) []int {
	most := int(scale * float64(sizes[len(sizes)-1]))
	n := 2
	for n < len(sizes) && sizes[n] <= most {
		n++
	}
	return sizes[:min(n, len(sizes))]
}

// exponents are the last rows of the table. What has grown by more than it may is in bold.
func (g growth) exponents(page *report, curves [][]point) {
	all, upper, most := []string{"growth"}, []string{"from the middle on"}, []string{"right up to"}
	for i, c := range g.costs {
		counted := slices.DeleteFunc(slices.Clone(curves[i]), func(at point) bool { return at.x < float64(g.from) })
		all = append(all, exponent(slope(counted), c.most))
		upper = append(upper, exponent(slope(upperHalf(counted)), c.most))
		most = append(most, exponent(c.most, anything))
	}
	for _, row := range [][]string{all, upper, most} {
		page.row(row...)
	}
}

// unsure is how much an exponent may be off on a busy machine.
const unsure = 0.15

func exponent(is, most float64) string {
	switch {
	case math.IsNaN(is) || math.IsInf(is, 0):
		return "–"
	case is > most+unsure:
		return fmt.Sprintf("**%.2f**", is)
	}
	return fmt.Sprintf("%.2f", is)
}

// panels sorts the curves by unit.
func (g growth) panels(curves [][]point) (all []panel) {
	for i, c := range g.costs {
		shown := slices.DeleteFunc(curves[i], func(at point) bool { return at.y <= 0 })
		if c.unit == "" || len(shown) == 0 {
			continue
		}
		at := slices.IndexFunc(all, func(p panel) bool { return p.unit == c.unit })
		if at < 0 {
			at = len(all)
			all = append(all, panel{unit: c.unit})
		}
		all[at].curves = append(all[at].curves, curve{c.curve, shown})
	}
	return all
}

// unknown is what was too little to be measured.
var unknown = math.NaN()

// figures shows three of a number's.
func figures(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// A field is a ground with further proxies.
type field struct {
	*ground
	proxies []*redistest.Proxy
}

// openField starts nodes and proxies. Votes may take as long as a busy machine makes them.
func openField(nodes, proxies int, args ...string) (*field, error) {
	args = append([]string{"--node-timeout", "2s", "--max-clients", "20000", "--log-level", "error"}, args...)
	g, err := openGround(nodes, args...)
	if err != nil {
		return nil, err
	}
	f := &field{g, []*redistest.Proxy{g.proxy}}
	for len(f.proxies) < proxies {
		more, err := redistest.LaunchProxy(g.data, g.nodes, args...)
		if err != nil {
			f.close()
			return nil, err
		}
		f.proxies = append(f.proxies, more)
	}
	return f, nil
}

func (f *field) close() {
	for _, p := range f.proxies[1:] {
		p.Kill()
	}
	f.ground.close()
}

// A work is what was done until now, and what it took.
type work struct {
	when           time.Time
	done           int64   // cycles
	proxies, nodes float64 // CPU seconds
}

func (f *field) work(done int64) (w work, err error) {
	w = work{when: time.Now(), done: done}
	for _, p := range f.proxies {
		s, err := runSeconds(p.PID())
		if err != nil {
			return w, err
		}
		w.proxies += s
	}
	w.nodes, err = runSecondsOf(f.nodes)
	return w, err
}

// runSecondsOf is runSeconds of all these servers together.
func runSecondsOf(all []*redistest.Server) (sum float64, err error) {
	for _, n := range all {
		s, err := runSeconds(n.PID())
		if err != nil {
			return 0, err
		}
		sum += s
	}
	return sum, nil
}

// A pace is the rate of work, and the CPU µs of each piece of it.
type pace struct{ rate, proxies, nodes float64 }

// since is the pace since before.
func (w work) since(before work) pace {
	n := float64(max(1, w.done-before.done))
	return pace{n / w.when.Sub(before.when).Seconds(), 1e6 * (w.proxies - before.proxies) / n, 1e6 * (w.nodes - before.nodes) / n}
}

// middle is the median of each figure.
func middle(all []pace) pace {
	var rates, proxies, nodes []float64
	for _, p := range all {
		rates, proxies, nodes = append(rates, p.rate), append(proxies, p.proxies), append(nodes, p.nodes)
	}
	return pace{median(rates), median(proxies), median(nodes)}
}

// pace lets clients cycle, some turns after one that warms up.
func (f *field) pace(p plan, clients []cycler) (pace, error) {
	var all []pace
	done := int64(0)
	for turn := range p.rounds + 1 {
		before, err := f.work(done)
		if err != nil {
			return pace{}, err
		}
		s, err := drive(clients, p.turn())
		if err != nil {
			return pace{}, err
		}
		done += int64(s.cycles)
		after, err := f.work(done)
		if err != nil {
			return pace{}, err
		}
		if turn > 0 {
			all = append(all, after.since(before))
		}
	}
	return middle(all), nil
}

// crew opens n clients; make makes the i-th.
func crew(n int, make func(i int) (cycler, error)) (all []cycler, err error) {
	for i := range n {
		c, err := make(i)
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	return all, nil
}

// dialLocker is a client of the proxy at addr.
func dialLocker(addr, name string) (*locker, error) {
	c, err := redistest.Dial(addr)
	if err != nil {
		return nil, err
	}
	return &locker{conn: c, name: name, owner: "owner of " + name}, nil
}

// A rota is a client that takes its turns as one of several.
type rota struct {
	all []*locker
	at  int
}

func (r *rota) acquire() error {
	r.at = (r.at + 1) % len(r.all)
	return r.all[r.at].acquire()
}

func (r *rota) release() error { return r.all[r.at].release() }

func (r *rota) Close() (err error) {
	for _, l := range r.all {
		err = errors.Join(err, l.Close())
	}
	return err
}

// A waiter stands in line for its lock.
type waiter struct{ locker }

func (w *waiter) acquire() error {
	v, err := w.decided("LOCK", w.name, "60s", "OWNER", w.owner, "WAIT", "10m")
	if err == nil && v.Null {
		err = errors.New("nothing after ten minutes in line")
	}
	return err
}
