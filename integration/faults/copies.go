package faults

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A run of copies has a max-ttl of an hour, and leases of up to 30 s, in which several nodes forget one after the other. Nothing but a copy
// lets such a node vote again. It happens all the time, to fewer nodes than a quorum at once, and beside it clients, links and proxies
// fail as in other runs, but for one proxy: through that, sessions keep locks, which they must not lose.

const (
	shortestCopied = 5 * time.Second // lease
	longestCopied  = 30 * time.Second
	keptLease      = 12 * time.Second
	keepers        = 3
	copyWithin     = 10 * time.Second     // on a machine that is not too busy
	copiesEnd      = 2 * time.Minute      // for a node to vote again
	mayLook        = 5 * time.Millisecond // between two looks at a node
	keptNames      = "kept:"
	leftNames      = "left:"
)

// copyKinds are the faults beside. All of them spare the last proxy, and every node. Skew is not among them: a node whose clock is ahead
// may have given a lock a larger fence than the others, and then lacks it until the next LOCK.
var copyKinds = []string{
	"proxy-kill", "proxy-pause", "client-kill", "client-pause", "partition", "half-open", "delay", "cut", "script-flush", "step-back", "force", "drift",
	aimedProxy, aimedCut,
}

// moreNames are of locks beside the others, since leases are long.
var moreNames = []string{mutexNames + "f", mutexNames + "g", updateNames + "h", fencedNames + "i"}

// leastCopied is what must have happened in a minute of a run of copies for it to show anything.
var leastCopied = map[string]int{
	copies: 12, leasesCopied: 9, keptLooks: 120,
	"grants": 60, "renewals": 9, "unlocks": 30, "grants of sessions": 12, "grants of readers": 12, "grants of permits": 3, "grants with others": 3, "faults": 3,
}

// What is counted in such a run.
const (
	copies       = "copies"
	leasesCopied = "leases that outlasted a copy"
	keptLooks    = "looks at locks that somebody has"
)

// least is what must have happened in a minute.
func (r Run) least() map[string]int {
	if r.Copies {
		return leastCopied
	}
	return least
}

// adopting are the arguments by which proxies adopt locks. Not in a run of copies, since max-hold holds for kept locks as well.
func (r Run) adopting() []string {
	if r.Copies {
		return nil
	}
	return adopting
}

// patience is how many times its length a run may take, until enough has happened.
func (r Run) patience() time.Duration {
	if r.Copies {
		return 4 * patience
	}
	return patience
}

// playLong is one turn while nodes forget.
func (w *worker) playLong() {
	if w.chance(4) {
		w.playSeveral()
		return
	}
	w.play()
}

// outlast does nothing for some seconds, in which nodes may forget the lock, and then renews it or listens.
func (w *worker) outlast(c *claim) bool {
	w.sleep(2*time.Second + w.upTo(10*time.Second))
	if c.Session && w.chance(2) {
		return w.keep(c)
	}
	return w.renew(c, w.lease())
}

// beginCopies has nodes forget, in a run of copies, and sessions keep locks meanwhile. done waits until it has ended, soon after stop was closed,
// and reports what could not be done.
func (w *world) beginCopies(r Run, stop <-chan struct{}) (done func() error) {
	if !r.Copies {
		return func() error { return nil }
	}
	w.mu.Lock()
	w.failing[fault{kind: copies}] = now()
	w.mu.Unlock()
	c := &copying{world: w, Rand: w.random(-2), stop: stop}
	var wg sync.WaitGroup
	var undone error
	wg.Go(func() { undone = c.forgetThroughout() })
	for i := range keepers {
		wg.Go(func() { c.repeat(keptNames+strconv.Itoa(i), c.keep) })
		wg.Go(func() { c.repeat(leftNames+strconv.Itoa(i), c.leave) })
	}
	return func() error {
		wg.Wait()
		return undone
	}
}

// freeAll takes away what clients have left behind, which would stay for a minute.
func (w *world) freeAll() {
	all := w.names
	for i := range keepers {
		all = append(all[:len(all):len(all)], keptNames+strconv.Itoa(i), leftNames+strconv.Itoa(i))
	}
	for _, name := range all {
		w.await("FORCE of "+name, func() error {
			v, err := ask(w.proxies[len(w.proxies)-1], "LOCKCTL", "FORCE", name)
			if err == nil && v.IsError() {
				err = errors.New(v.Text)
			}
			return err
		})
	}
}

// A copying is what a run of copies is made of.
type copying struct {
	*world
	*rand.Rand
	stop <-chan struct{}

	mu    sync.Mutex
	hasty []window // in which nodes forgot while others had not all kept locks; the last may have no end
}

func (c *copying) over() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// forgetThroughout has all nodes forget, in a new order each time, as many at once as may. Those of the next turn forget as soon as these
// vote again; every other time around, and with even seeds the first time, when they have the kept locks, too. Where one has not, such a lock may lack a quorum.
func (c *copying) forgetThroughout() error {
	c.awaitKept()
	for round := 0; ; round++ {
		careful := round%2 == int(c.seed%2)
		if !careful {
			c.haste(true)
		}
		for order := c.Perm(len(c.nodes)); len(order) > 0; {
			some := order[:min((len(c.nodes)-1)/2, len(order))]
			order = order[len(some):]
			if err := c.forgetAtOnce(some); err != nil {
				return err
			}
			if careful {
				c.awaitKept()
			}
			if c.over() {
				return nil
			}
		}
	}
}

// forgetAtOnce has some nodes forget, and waits until they vote.
func (c *copying) forgetAtOnce(some []int) error {
	errs := make(chan error, len(some))
	for _, n := range some {
		way, lasts := ways[c.IntN(len(ways))], time.Second+c.upTo(2*time.Second)
		go func() { errs <- c.forgetOnce(n, way, lasts) }()
	}
	var all error
	for range some {
		all = errors.Join(all, <-errs)
	}
	return all
}

func (c *copying) upTo(d time.Duration) time.Duration { return time.Duration(c.Int64N(int64(d)) + 1) }

// Ways of a node to forget.
const (
	wayFlush   = "nodes flushed"
	wayStopped = "nodes flushed when they were stopped" // what it was sent meanwhile it executes before or after that
	wayEmpty   = "nodes that came back empty"
	wayOlder   = "older snapshots"
)

var ways = []string{wayFlush, wayStopped, wayEmpty, wayOlder}

// forgetOnce has a node forget, and waits until it votes.
func (c *copying) forgetOnce(n int, way string, lasts time.Duration) error {
	defer c.only(fault{kind: "node-kill", a: n}.target())()
	before, from := c.generation(n), now()
	if err := c.lose(c.nodes[n], way, lasts); err != nil {
		return err
	}
	if !c.within(copiesEnd, func() bool { return c.votes(n) }) {
		return fmt.Errorf("node %d does not vote %v after it forgot (%s)", n, copiesEnd, way)
	}
	if gen := c.generation(n); gen == "" || gen == before {
		c.accuse("node %d votes after it forgot (%s), and has made no copy: its loss is %q, and was %q before", n, way, gen, before)
	}
	c.count(copies)
	c.count(way)
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.copied = append(c.copied, window{from, now()})
	return nil
}

// generation names the last loss of memory of a node that votes since a copy.
func (c *copying) generation(n int) string {
	v, err := askServer(c.nodes[n].Addr(), "HMGET", nodeRecord, "gen", "copied")
	if err != nil || len(v.Elems) < 2 || v.Elems[1].Null {
		return ""
	}
	return v.Elems[0].Text
}

// lose has a node lose its memory. The node of an older snapshot keeps what it had some time ago.
func (c *copying) lose(n *node, way string, lasts time.Duration) error {
	dump := filepath.Join(n.Dir, "dump.rdb")
	switch way {
	case wayFlush:
		return tell(n.Addr(), "FLUSHALL")
	case wayStopped:
		l, err := redistest.Dial(n.Addr())
		if err != nil {
			return err
		}
		defer l.Close()
		n.Pause()
		time.Sleep(lasts / 2)
		_, err = io.WriteString(l, redistest.Command("FLUSHALL"))
		time.Sleep(lasts / 2)
		n.Resume()
		_, answer := l.Next()
		return errors.Join(err, answer)
	case wayEmpty:
		n.Kill()
		if err := os.Remove(dump); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	default:
		if err := tell(n.Addr(), "SAVE"); err != nil {
			return err
		}
		time.Sleep(lasts)
		n.Kill()
	}
	return again(func() error { return n.Restart() })
}

// within waits until something is so. It reports whether it came to be in time.
func (c *copying) within(limit time.Duration, is func() bool) bool {
	for end := time.Now().Add(limit); !is(); time.Sleep(mayLook) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// awaitKept waits until every node has the kept locks, for two leases of them.
func (c *copying) awaitKept() {
	all := c.within(2*keptLease, func() bool { return c.over() || c.allHave() })
	if c.haste(!all); all {
		c.count("times that all nodes had the kept locks")
	}
}

// allHave reports whether every node has every kept lock, under one fence.
func (c *copying) allHave() bool {
	for i := range keepers {
		var fence string
		for _, n := range c.nodes {
			v, err := askServer(n.Addr(), "HGET", "lockproxy:lock:0:"+keptNames+strconv.Itoa(i), "f")
			if err != nil || v.Null || fence != "" && v.Text != fence {
				return false
			}
			fence = v.Text
		}
	}
	return true
}

// nodesHave is what each node has of a name.
func (c *copying) nodesHave(name string) string {
	const script = `return {'record', redis.call('HGETALL', KEYS[1]), 'ms left', redis.call('PTTL', KEYS[1]), 'fences', redis.call('HGETALL', KEYS[2]),
'doubt', redis.call('HGETALL', KEYS[3]), 'ms left', redis.call('PTTL', KEYS[3])}`
	var all []string
	for i, n := range c.nodes {
		v, err := askServer(n.Addr(), "EVAL", script, "3", "lockproxy:lock:0:"+name, "lockproxy:fence:0:"+name, "lockproxy:doubt:0:"+name)
		all = append(all, fmt.Sprintf("node %d: %v %v", i, v, err))
	}
	return strings.Join(all, "; ")
}

// haste notes whether nodes may forget from now on while others have not all kept locks.
func (c *copying) haste(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.hasty) - 1
	switch open := last >= 0 && c.hasty[last].until == 0; {
	case is && !open:
		c.hasty = append(c.hasty, window{from: now()})
	case !is && open:
		c.hasty[last].until = now()
	}
}

// mayLose reports whether a lease that ended now may have lacked a quorum.
func (c *copying) mayLose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.hasty {
		if w.until == 0 || w.until.add(keptLease) > now() {
			return true
		}
	}
	return false
}

func (c *copying) count(what string) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.counted[what]++
}

func (c *copying) accuse(format string, args ...any) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

// repeat does something with a lock again and again, until the end or until it finds something wrong.
func (c *copying) repeat(name string, do func(name string) error) {
	for !c.over() {
		if err := do(name); err != nil {
			c.accuse("%s: %v", name, err)
			return
		}
	}
}

// leave takes a lock for as long as any, and does nothing until it has ended. Whoever else asks for it through any proxy is refused.
func (c *copying) leave(name string) error {
	began := time.Now()
	v, err := ask(c.proxies[len(c.proxies)-1], "LOCK", name, inMillis(longestCopied), "WAIT", inMillis(longestCopied))
	if err != nil {
		return err
	}
	if len(v.Elems) != 4 || v.Elems[0].Int() == 0 { // nodes are in doubt about it
		time.Sleep(100 * time.Millisecond)
		return nil
	}
	for ends := began.Add(time.Duration(v.Elems[2].Int()) * time.Millisecond); time.Now().Before(ends) && !c.over(); time.Sleep(50 * time.Millisecond) {
		if c.lookAt(name) && time.Now().Before(ends) {
			return fmt.Errorf("somebody else was granted it %v before fence %d ends", time.Until(ends), v.Elems[0].Int())
		}
	}
	return nil
}

// keep has a session keep a lock through the proxy that is spared, until it is lost. Whoever else asks for it through any proxy is refused.
func (c *copying) keep(name string) error {
	l, err := redistest.Dial(c.proxies[len(c.proxies)-1].Addr())
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := l.Try("HELLO", "3"); err != nil {
		return err
	}
	v, err := l.Try("LOCK", name, inMillis(keptLease), "WAIT", inMillis(2*keptLease), "SESSION", "ONLOSS", "PUSH")
	if err != nil || len(v.Elems) != 4 || v.Elems[0].Int() == 0 {
		if c.mayLose() { // what was lost may be in the way for its lease
			time.Sleep(100 * time.Millisecond)
			return err
		}
		return fmt.Errorf("LOCK answered %v %w", v, err)
	}
	for l.Timeout = 100 * time.Millisecond; !c.over(); {
		switch push, err := l.Next(); {
		case timedOut(err):
		case err != nil:
			return err
		case c.mayLose():
			return nil
		default:
			return fmt.Errorf("the session that keeps fence %d was told %v, while no more than a minority did not vote; %s", v.Elems[0].Int(), push, c.nodesHave(name))
		}
		if c.lookAt(name) {
			l.Timeout = copiesEnd
			if push, err := l.Next(); err != nil {
				return fmt.Errorf("somebody else was granted it, and the session was not told: %v %w", push, err)
			}
			if c.mayLose() {
				return nil
			}
			return errors.New("somebody else was granted it, while no more than a minority did not vote")
		}
	}
	l.Timeout = 0
	if v, err := l.Try("UNLOCK", name, v.Elems[1].Text); err != nil || v.IsError() && !strings.HasPrefix(v.Text, "NOQUORUM") {
		return fmt.Errorf("UNLOCK answered %v %w", v, err)
	}
	return nil
}

// lookAt asks for a kept lock as somebody else, through any proxy. It reports whether it was granted.
func (c *copying) lookAt(name string) (granted bool) {
	l, err := redistest.Dial(c.proxies[rand.IntN(len(c.proxies))].Addr())
	if err != nil {
		return false
	}
	defer l.Close()
	l.Timeout = time.Second
	v, err := l.Try("LOCK", name, "1s")
	if err != nil || v.IsError() {
		return false
	}
	c.count(keptLooks)
	return len(v.Elems) == 4 && v.Elems[0].Int() != 0
}

// outlasting is how many leases were counted on before a node forgot, and still when it voted again.
func (j *judge) outlasting(copied []window) (n int) {
	for _, all := range j.beliefs {
		for _, b := range all {
			if slices.ContainsFunc(copied, func(w window) bool { return b.from < w.from && b.until > w.until }) {
				n++
			}
		}
	}
	return n
}
