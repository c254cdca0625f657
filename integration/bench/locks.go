package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A ground is where locks are measured: masters, a data Redis, a proxy.
type ground struct {
	data    *redistest.Server
	nodes   []*redistest.Server
	between []*distance // of the proxy to each of the nodes, if there is any
	proxy   *redistest.Proxy
}

// openGround starts one; args are the proxy's.
func openGround(nodes int, args ...string) (*ground, error) {
	return openDistantGround(nodes, 0, args...)
}

// openDistantGround starts one whose lock nodes answer the proxy later by a round trip, if that is not 0.
func openDistantGround(nodes int, roundTrip time.Duration, args ...string) (g *ground, err error) {
	g = &ground{}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if g.data, err = redistest.Launch(); err != nil {
		return g, err
	}
	if g.nodes, err = redistest.LaunchNodes(nodes); err != nil {
		return g, err
	}
	args = append([]string{"--log-level", "error"}, args...)
	if roundTrip == 0 {
		g.proxy, err = redistest.LaunchProxy(g.data, g.nodes, args...)
		return g, err
	}
	for _, n := range g.nodes {
		d, err := openDistance(n, roundTrip)
		if err != nil {
			return g, err
		}
		g.between = append(g.between, d)
		args = append(args, "--lock-node", "redis://"+d.Addr().String())
	}
	g.proxy, err = redistest.LaunchProxy(g.data, nil, args...)
	return g, err
}

func (g *ground) close() {
	if g.proxy != nil {
		g.proxy.Kill()
	}
	for _, d := range g.between {
		_ = d.Close()
	}
	for _, s := range append(g.nodes, g.data) {
		if s != nil {
			s.Close()
		}
	}
}

// A sample is what some clients did in some time.
type sample struct {
	took   time.Duration
	cycles int
	first  []time.Duration // each acquisition, until it was granted
	both   []time.Duration // each acquisition with its release
}

func (s *sample) add(o sample) {
	s.took += o.took
	s.cycles += o.cycles
	s.first = append(s.first, o.first...)
	s.both = append(s.both, o.both...)
}

func (s *sample) rate() float64 { return float64(s.cycles) / s.took.Seconds() }

// A cycler is one client: it acquires, then releases.
type cycler interface {
	acquire() error
	release() error
	io.Closer
}

// drive runs the clients side by side for d.
func drive(clients []cycler, d time.Duration) (sample, error) {
	parts := make([]sample, len(clients))
	var g errgroup.Group
	start := time.Now()
	for i, c := range clients {
		g.Go(func() error { return cycle(c, start.Add(d), &parts[i]) })
	}
	err := g.Wait()
	all := sample{}
	for _, p := range parts {
		all.add(p)
	}
	all.took = time.Since(start)
	return all, err
}

func cycle(c cycler, until time.Time, s *sample) error {
	for time.Now().Before(until) {
		start := time.Now()
		if err := c.acquire(); err != nil {
			return err
		}
		s.first = append(s.first, time.Since(start))
		if err := c.release(); err != nil {
			return err
		}
		s.both = append(s.both, time.Since(start))
		s.cycles++
	}
	return nil
}

// A locker locks one name through the proxy, again and again until it is granted.
type locker struct {
	conn        *redistest.Conn
	name, owner string
	retries     int // LOCK answered null
	undecided   int // LOCK or UNLOCK answered NOQUORUM
}

func (l *locker) acquire() error {
	for {
		v, err := l.decided("LOCK", l.name, "30s", "OWNER", l.owner)
		if err != nil || !v.Null {
			return err
		}
		l.retries++
		time.Sleep(time.Millisecond + rand.N(9*time.Millisecond))
	}
}

func (l *locker) release() error {
	_, err := l.decided("UNLOCK", l.name, l.owner, "ALL")
	return err
}

// maxUndecided is how often in a row a client of the bench tries again after
// NOQUORUM, which a machine this busy makes of any short stall.
const maxUndecided = 20

// decided sends a command until the masters have decided. An error reply other
// than NOQUORUM is an error.
func (l *locker) decided(args ...string) (redistest.Value, error) {
	for range maxUndecided {
		v, err := l.conn.Try(args...)
		if err != nil || !v.IsError() {
			return v, err
		}
		if !strings.HasPrefix(v.Text, "NOQUORUM ") {
			return v, errors.New(v.Text)
		}
		l.undecided++
	}
	return redistest.Value{}, fmt.Errorf("%s: NOQUORUM %d times in a row", args[0], maxUndecided)
}

func (l *locker) Close() error { return l.conn.Close() }

// lockers opens n clients of the proxy; name makes the name of the i-th one's lock.
func (g *ground) lockers(n int, name func(i int) string) ([]cycler, error) {
	var all []cycler
	for i := range n {
		c, err := redistest.Dial(g.proxy.Addr())
		if err != nil {
			return all, err
		}
		all = append(all, &locker{conn: c, name: name(i), owner: fmt.Sprint("owner-", i)})
	}
	return all, nil
}

// A bare client sends one script to all masters at once, each on a connection of
// its own, and waits until all have answered: what a client library without a
// proxy does at the least.
type bare struct {
	conns                  []*redistest.Conn
	acquireSHA, releaseSHA string
	keys                   [3]string // the lock, its fences, the node's record
	owner                  string
}

// bareHead is what every script of the proxy begins with: the clock, the node's
// incarnation and its record.
const bareHead = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local rec = redis.call('HMGET', KEYS[3], 'id', 'until', 'sync', 'g', 'floor', 'ttl', 'word', 'm60000 2 safe 0')
local h = redis.call('HMGET', KEYS[1], 'o', 'e', 'f', 'a', 'l', 's', 'p', ARGV[2])
local c = tonumber(redis.call('HMGET', KEYS[2], 'c', 'o')[1] or '0')
local function int(n) return string.format('%.0f', n) end
`

// bareAcquire and bareRelease make the same number of calls as the proxy's own
// acquire and release, on records of the same shape, and decide nothing.
const bareAcquire = bareHead + `
if h[1] and h[1] ~= ARGV[1] then return {0, h[1]} end
local e = now + ARGV[3]
redis.call('GET', KEYS[3] .. ':H' .. ARGV[2])
redis.call('HSET', KEYS[1], 'o', ARGV[1], 'e', int(e), 'f', int(c + 1), 'a', ARGV[2], 'l', id, 's', '0', 'i', '', 'g', int(now),
  'p', '0 0', ARGV[2], int(e))
redis.call('PEXPIREAT', KEYS[1], int(e))
redis.call('HSET', KEYS[2], 'c', int(c + 1))
redis.call('PEXPIRE', KEYS[2], 600000)
redis.call('HSET', KEYS[3], 'g', int(c + 1))
return {1, c + 1}`

const bareRelease = bareHead + `
if not h[8] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[1], '')
redis.call('HSET', KEYS[2], 'c', int(c + 1), 'o', ARGV[1], 'a', ARGV[2], 'f', int(c), 'n', '0')
return 1`

// bares opens n bare clients of the masters.
func (g *ground) bares(n int) ([]cycler, error) {
	var all []cycler
	for i := range n {
		b := &bare{keys: [3]string{fmt.Sprint("bare:lock:", i), fmt.Sprint("bare:fence:", i), "bare:node"}, owner: fmt.Sprint("owner-", i)}
		all = append(all, b)
		for _, s := range g.nodes {
			if err := b.open(s.Addr()); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

func (b *bare) open(addr string) error {
	c, err := redistest.Dial(addr)
	if err != nil {
		return err
	}
	b.conns = append(b.conns, c)
	for script, sha := range map[string]*string{bareAcquire: &b.acquireSHA, bareRelease: &b.releaseSHA} {
		v, err := c.Try("SCRIPT", "LOAD", script)
		if err != nil || v.IsError() {
			return fmt.Errorf("SCRIPT LOAD: %v, %w", v, err)
		}
		*sha = v.Text
	}
	return nil
}

func (b *bare) acquire() error { return b.all(b.acquireSHA, "30000") }
func (b *bare) release() error { return b.all(b.releaseSHA) }

func (b *bare) all(sha string, more ...string) error {
	command := redistest.Command(append([]string{"EVALSHA", sha, "3", b.keys[0], b.keys[1], b.keys[2], b.owner, "0123456789abcdef"}, more...)...)
	for _, c := range b.conns {
		if _, err := io.WriteString(c, command); err != nil {
			return err
		}
	}
	for _, c := range b.conns {
		v, err := c.Next()
		if err != nil {
			return err
		}
		if !strings.Contains(v.Raw, ":1\r\n") {
			return fmt.Errorf("EVALSHA: %v", v)
		}
	}
	return nil
}

func (b *bare) Close() error {
	for _, c := range b.conns {
		_ = c.Close()
	}
	return nil
}

func measureLocks(p plan, page *report) error {
	page.linef("\n## LOCK and UNLOCK\n")
	page.linef("A cycle is LOCK then UNLOCK. Beside it, in turns of %v, a bare client that sends a script of the same work to the same masters in parallel and awaits all of them. Times in ms.\n", p.slice)
	page.table("masters, clients", "cycles/s", "LOCK p50", "LOCK p99", "cycle p50", "cycle p99", "NOQUORUM", "bare cycles/s", "EVALSHA p50", "EVALSHA p99", "LOCK p99 / EVALSHA p99")
	var contended []string
	for _, masters := range []int{1, 3, 5} {
		row, err := measureMasters(p, page, masters)
		if err != nil {
			return fmt.Errorf("%d masters: %w", masters, err)
		}
		contended = append(contended, row)
	}
	page.linef("\n50 clients on one name; a client that gets null tries again after 1–10 ms at random.\n")
	page.table("masters", "cycles/s", "wait p50", "wait p99", "LOCKs a grant", "NOQUORUM")
	page.linef("%s", strings.Join(contended, "\n"))
	return nil
}

// measureMasters fills the uncontended rows of the page and returns the contended.
func measureMasters(p plan, page *report, masters int) (contended string, err error) {
	g, err := openGround(masters)
	if err != nil {
		return "", err
	}
	defer g.close()
	for _, clients := range []int{1, 16} {
		if err := g.uncontended(p, page, clients); err != nil {
			return "", err
		}
	}
	return g.contended(p, 50)
}

// uncontended measures clients with a name each, in turns with bare clients.
func (g *ground) uncontended(p plan, page *report, clients int) error {
	through, err := g.lockers(clients, func(i int) string { return fmt.Sprint("name-", i) })
	defer closeAll(through)
	if err != nil {
		return err
	}
	beside, err := g.bares(clients)
	defer closeAll(beside)
	if err != nil {
		return err
	}
	var ours, theirs sample
	for round := range p.rounds + 1 {
		a, err := drive(through, p.slice)
		if err != nil {
			return err
		}
		b, err := drive(beside, p.slice)
		if err != nil {
			return err
		}
		if round > 0 { // the first one warms up
			ours.add(a)
			theirs.add(b)
		}
	}
	lock99, eval99 := quantile(ours.first, 0.99), quantile(theirs.first, 0.99)
	page.row(fmt.Sprintf("%d, %d", len(g.nodes), clients), fmt.Sprintf("%.0f", ours.rate()),
		inMillis(quantile(ours.first, 0.5)), inMillis(lock99), inMillis(quantile(ours.both, 0.5)), inMillis(quantile(ours.both, 0.99)),
		fmt.Sprint(undecided(through)), fmt.Sprintf("%.0f", theirs.rate()), inMillis(quantile(theirs.first, 0.5)), inMillis(eval99), ratio(float64(lock99), float64(eval99)))
	return nil
}

// contended measures clients that all want one name.
func (g *ground) contended(p plan, clients int) (row string, err error) {
	all, err := g.lockers(clients, func(int) string { return "one" })
	defer closeAll(all)
	if err != nil {
		return "", err
	}
	s, err := drive(all, time.Duration(p.rounds)*p.slice)
	if err != nil {
		return "", err
	}
	asked := s.cycles
	for _, c := range all {
		asked += c.(*locker).retries
	}
	return fmt.Sprintf("| %d | %.0f | %s | %s | %s | %d |", len(g.nodes), s.rate(), inMillis(quantile(s.first, 0.5)), inMillis(quantile(s.first, 0.99)),
		ratio(float64(asked), float64(s.cycles)), undecided(all)), nil
}

// undecided is how often the proxy answered these clients NOQUORUM.
func undecided(clients []cycler) int {
	n := 0
	for _, c := range clients {
		n += c.(*locker).undecided
	}
	return n
}

func closeAll(clients []cycler) {
	for _, c := range clients {
		_ = c.Close()
	}
}
