package main

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// requests is how many come at once in a burst.
const requests = 666

// A burst is what every request of it does between LOCK and UNLOCK, and on which name.
type burst struct {
	label string
	name  func(round, i int) string
	view  bool // reads a counter and writes it, as the page-view scenario does
	share bool // readers
	n     int  // how many come at once; 0: requests

	stay  time.Duration // how long each keeps the lock
	times int           // how often each comes; 0: once
	most  int           // not 0: at most so many may have it at the same time; more than 1 are permits
}

// requests is how many acquisitions there are.
func (b burst) requests() int { return cmp.Or(b.n, requests) * max(1, b.times) }

var bursts = []burst{
	{label: "LOCK, UNLOCK of one name", name: func(round, _ int) string { return fmt.Sprint("page-", round) }},
	{label: "LOCK, GET, SET, UNLOCK of one name", name: func(round, _ int) string { return fmt.Sprint("view-", round) }, view: true},
	{label: "LOCK, UNLOCK of 666 names", name: func(round, i int) string { return fmt.Sprintf("page-%d-%d", round, i) }},
}

// measureBurst sends requests that all wait for their turn.
func measureBurst(p plan, page *report) error {
	g, err := openGround(5)
	if err != nil {
		return err
	}
	defer g.close()
	page.linef("\n## A burst of %d requests\n", requests)
	page.linef("Five masters, one proxy, %d connections that are open before. All send LOCK … WAIT at once, and go on when they have it; nobody tries again. %d bursts of each kind, times in ms from the first LOCK to the last reply.\n", requests, p.rounds)
	page.table("each request", "median", "longest", "requests/s", "granted", "NOQUORUM")
	for _, b := range bursts {
		if err := g.burst(b, p.rounds, page); err != nil {
			return fmt.Errorf("%s: %w", b.label, err)
		}
	}
	return nil
}

func (g *ground) burst(b burst, rounds int, page *report) error {
	var all []time.Duration
	granted, undecided := 0, 0
	for round := range rounds + 1 {
		clients, took, err := g.once(b, round)
		if err != nil {
			return err
		}
		if round == 0 { // it warms up
			continue
		}
		all = append(all, took)
		for _, v := range clients {
			undecided += v.undecided
			if v.served {
				granted++
			}
		}
		if b.view {
			if err := g.counted(b.name(round, 0), clients); err != nil {
				return err
			}
		}
	}
	mid := quantile(all, 0.5)
	page.row(b.label, inMillis(mid), inMillis(quantile(all, 1)), fmt.Sprintf("%.0f", requests/mid.Seconds()),
		fmt.Sprintf("%d of %d", granted, rounds*requests), fmt.Sprint(undecided))
	return nil
}

// once is one burst: those who came, and from the first LOCK to the last reply.
func (g *ground) once(b burst, round int) ([]*visitor, time.Duration, error) {
	clients, err := g.visitors(b, round)
	if err != nil {
		return nil, 0, err
	}
	took, err := atOnce(clients)
	closeVisitors(clients)
	return clients, took, err
}

// A visitor is one request of a burst.
type visitor struct {
	conn        *redistest.Conn
	name, owner string
	burst
	in *atomic.Int64 // how many have the lock

	served    bool
	undecided int // LOCK answered NOQUORUM: not served
}

func (g *ground) visitors(b burst, round int) (all []*visitor, err error) {
	in := new(atomic.Int64)
	for i := range cmp.Or(b.n, requests) {
		c, err := redistest.Dial(g.proxy.Addr())
		if err != nil {
			closeVisitors(all)
			return nil, err
		}
		v := &visitor{conn: c, name: b.name(round, i), owner: fmt.Sprint("owner-", i), burst: b, in: in}
		all = append(all, v)
		if _, err := c.Try("PING"); err != nil {
			closeVisitors(all)
			return nil, err
		}
	}
	return all, nil
}

func closeVisitors(all []*visitor) {
	for _, v := range all {
		_ = v.conn.Close()
	}
}

// atOnce lets all visitors go together and returns when the last has been served.
func atOnce(all []*visitor) (time.Duration, error) {
	var ready sync.WaitGroup
	ready.Add(len(all))
	var g errgroup.Group
	begin := make(chan struct{})
	for _, v := range all {
		g.Go(func() error {
			ready.Done()
			<-begin
			for range max(1, v.times) {
				if err := v.visit(); err != nil || !v.served {
					return err
				}
			}
			return nil
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	err := g.Wait()
	return time.Since(start), err
}

func (v *visitor) visit() error {
	lock, unlock := []string{"LOCK", v.name, "30s", "OWNER", v.owner, "WAIT", "10s"}, []string{"UNLOCK", v.name, v.owner}
	if v.share {
		lock, unlock = append(lock, "SHARED"), append(unlock, "SHARED")
	}
	if v.most > 1 {
		lock, unlock = append(lock, "PERMITS", fmt.Sprint(v.most)), append(unlock, "SHARED")
	}
	v.served = false
	grant, err := v.conn.Try(lock...)
	switch {
	case err != nil:
		return err
	case grant.IsError():
		v.undecided++
		return nil
	case grant.Null:
		return nil
	}
	if v.view {
		if err := v.count(); err != nil {
			return err
		}
	}
	if n := v.in.Add(1); v.most > 0 && n > int64(v.most) {
		return fmt.Errorf("%d have the lock, where %d may", n, v.most)
	}
	time.Sleep(v.stay)
	v.in.Add(-1)
	freed, err := v.conn.Try(unlock...)
	if err == nil && freed.Text != "1" {
		err = fmt.Errorf("UNLOCK: %v", freed)
	}
	v.served = err == nil
	return err
}

// count adds 1 to what the name has, in two steps that must not mix with another's.
func (v *visitor) count() error {
	n, err := v.conn.Try("GET", v.name)
	if err != nil {
		return err
	}
	set, err := v.conn.Try("SET", v.name, fmt.Sprint(n.Int()+1))
	if err == nil && set.IsError() {
		err = fmt.Errorf("SET: %v", set)
	}
	return err
}

// counted compares the counter with the visitors who were served.
func (g *ground) counted(name string, all []*visitor) error {
	c, err := redistest.Dial(g.data.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := c.Try("GET", name)
	if err != nil {
		return err
	}
	served := 0
	for _, v := range all {
		if v.served {
			served++
		}
	}
	if n.Int() != int64(served) {
		return fmt.Errorf("%d views of %d were counted", n.Int(), served)
	}
	return nil
}
