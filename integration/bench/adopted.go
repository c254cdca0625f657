package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

const releaseIfMine = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`

// An adopter takes a lock as existing code does.
type adopter struct {
	locker
	sha string
}

func (a *adopter) acquire() error {
	v, err := a.decided("SET", a.name, a.owner, "NX", "PX", "30000")
	if err == nil && v.String() != "+OK" {
		err = fmt.Errorf("SET: %s", v)
	}
	return err
}

func (a *adopter) release() error {
	undecided := a.undecided
	v, err := a.decided("EVALSHA", a.sha, "1", a.name, a.owner)
	if err == nil && v.Int() != 1 && a.undecided == undecided { // what was not decided may have been done
		err = fmt.Errorf("compare-and-delete: %s", v)
	}
	return err
}

// adopters opens n clients of the proxy.
func (g *ground) adopters(n int) (all []cycler, err error) {
	for i := range n {
		c, err := redistest.Dial(g.proxy.Addr())
		if err != nil {
			return all, err
		}
		a := &adopter{locker: locker{conn: c, name: fmt.Sprint("lock:", i), owner: fmt.Sprint("owner-", i)}}
		all = append(all, a)
		v, err := c.Try("SCRIPT", "LOAD", releaseIfMine)
		if err != nil {
			return all, err
		}
		a.sha = v.Text
	}
	return all, nil
}

// measureAdopted compares adopted locks with LOCK and UNLOCK, and many that poll with one.
func measureAdopted(p plan, page *report) error {
	g, err := openGround(5, "--adopt", "lock:*")
	if err != nil {
		return err
	}
	defer g.close()
	page.linef("\n## Adopted locks\n")
	page.linef("Five masters. A cycle is LOCK then UNLOCK, or SET NX PX then a script that compares and deletes, in %d turns of %v each. Each ratio is the median over the turns, with the least and the greatest. CPU is the proxy's.\n", 8*p.rounds, p.slice/2)
	page.table("clients", "LOCK cycle p50 ms", "adopted p50 ms", "ratio", "LOCK CPU µs a cycle", "adopted CPU µs", "ratio")
	for _, n := range []int{1, 16} {
		if err := g.adoptedBesideVerbs(p, page, n); err != nil {
			return err
		}
	}
	page.linef("\nClients that send SET NX PX every 10 ms for one lock that is held. Commands are those of one master.\n")
	page.table("pollers", "polls/s", "commands/s", "of one poller's")
	one := 0.0
	for _, n := range []int{1, 50} {
		polls, rounds, err := g.poll(p, n)
		if err != nil {
			return err
		}
		if n == 1 {
			one = rounds
		}
		page.row(fmt.Sprint(n), fmt.Sprintf("%.0f", polls), fmt.Sprintf("%.0f", rounds), ratio(rounds, one))
	}
	page.linef("\nWhat a command pays whose keys are no locks, and what the call of a script costs that is known, or seen first:\n")
	return goBenchmarks(p, page, "IsAdopted|Concerns|Call", "./commands", "./commands/adopt")
}

// A turns is what one kind of clients did, turn by turn.
type turns struct {
	clients  []cycler
	p50, cpu []float64 // s, and µs of the proxy's a cycle
}

func (t *turns) take(g *ground, d time.Duration) error {
	_, before, err := g.spent()
	if err != nil {
		return err
	}
	s, err := drive(t.clients, d)
	if err != nil {
		return err
	}
	_, after, err := g.spent()
	t.p50 = append(t.p50, quantile(s.both, 0.5).Seconds())
	t.cpu = append(t.cpu, 1e6*(after-before)/float64(s.cycles))
	return err
}

func (g *ground) adoptedBesideVerbs(p plan, page *report, n int) error {
	verbs, err := g.lockers(n, func(i int) string { return fmt.Sprint("job:", i) })
	defer func() { closeAll(verbs) }()
	if err != nil {
		return err
	}
	existing, err := g.adopters(n)
	defer func() { closeAll(existing) }()
	if err != nil {
		return err
	}
	both := []*turns{{clients: verbs}, {clients: existing}}
	for turn := range 8*p.rounds + 1 {
		for i := range both {
			if err := both[(i+turn)%2].take(g, p.slice/2); err != nil {
				return err
			}
		}
		if turn == 0 { // it warms up
			for _, t := range both {
				t.p50, t.cpu = nil, nil
			}
		}
	}
	v, a := both[0], both[1]
	page.row(fmt.Sprint(n), fmt.Sprintf("%.2f", 1000*median(v.p50)), fmt.Sprintf("%.2f", 1000*median(a.p50)), spread(a.p50, v.p50),
		fmt.Sprintf("%.0f", median(v.cpu)), fmt.Sprintf("%.0f", median(a.cpu)), spread(a.cpu, v.cpu))
	return nil
}

// poll has n clients ask for a lock that is held, and returns how often they did and how many commands a master had,
// per second.
func (g *ground) poll(p plan, n int) (polls, rounds float64, err error) {
	clients, err := g.adopters(n)
	defer func() { closeAll(clients) }()
	if err != nil {
		return 0, 0, err
	}
	holder, ok := clients[0].(*adopter)
	if !ok {
		return 0, 0, errors.New("no adopter")
	}
	if err := holder.acquire(); err != nil {
		return 0, 0, err
	}
	var pollers []cycler
	for _, c := range clients {
		a := c.(*adopter)
		pollers = append(pollers, &poller{conn: a.conn, name: holder.name})
	}
	before, _, err := g.spent()
	if err != nil {
		return 0, 0, err
	}
	s, err := drive(pollers, 2*p.slice)
	if err != nil {
		return 0, 0, err
	}
	after, _, err := g.spent()
	if err != nil {
		return 0, 0, err
	}
	return s.rate(), float64(after-before) / float64(len(g.nodes)) / s.took.Seconds(), holder.release()
}

// A poller asks every 10 ms for a lock that another has.
type poller struct {
	conn *redistest.Conn
	name string
}

func (p *poller) acquire() error {
	time.Sleep(10 * time.Millisecond)
	v, err := p.conn.Try("SET", p.name, "a poller", "NX", "PX", "30000")
	if err == nil && !v.Null {
		err = fmt.Errorf("SET: %s", v)
	}
	return err
}

func (p *poller) release() error { return nil }
func (p *poller) Close() error   { return nil }
