package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// tortureTimeVariable is how long the torture lasts, as a duration; 8s without it.
const tortureTimeVariable = "LOCKPROXY_TORTURE_TIME"

// tortureSeedVariable gives back the seed that was printed: what is tried follows from it,
// when it happens does not.
const tortureSeedVariable = "LOCKPROXY_TORTURE_SEED"

const (
	tortureLease = 2 * time.Second  // the longest
	longestStorm = 2 * time.Minute  // to have seen enough
	answerWithin = 10 * time.Second // beyond its WAIT, a command
)

// enough is what must have happened for a run to show anything.
var enough = map[string]int{
	"LOCK": 60, "LOCK WAIT": 60, "LOCK SESSION": 30, "LOCK resent": 5, "re-entered": 8, "RENEW": 20, "UNLOCK": 50,
	"left alone": 4, "left the line": 10, "FORCE": 2, "proxy killed": 2, "node stopped": 4,
}

// A torture is proxies and lock nodes that fail, and clients that do not care.
type torture struct {
	*rig
	*witness
	t    *testing.T
	seed uint64
	stop chan struct{}
	wg   sync.WaitGroup
}

// A torturer is one client, or who lets things fail. It is one goroutine.
type torturer struct {
	*torture
	*rand.Rand
	id, turn int
}

// TestTorture: whatever clients do through three proxies, while these are killed, lock nodes
// are stopped and locks are taken away, nobody has what another has, fences grow, nobody
// waits for ever, and nothing stays behind.
func TestTorture(t *testing.T) {
	t.Parallel()
	long := durationOf(t, tortureTimeVariable, 8*time.Second)
	seed := rand.Uint64()
	if s, err := strconv.ParseUint(os.Getenv(tortureSeedVariable), 10, 64); err == nil {
		seed = s
	}
	to := &torture{
		rig: startRig(t, 3, 3, "--max-ttl", tortureLease.String()), witness: newWitness(),
		t: t, seed: seed, stop: make(chan struct{}),
	}
	files := to.files(t)
	for id := range 12 {
		to.start(id, (*torturer).play)
	}
	to.start(100, (*torturer).killProxies)
	to.start(101, (*torturer).stopNodes)
	to.start(102, (*torturer).force)
	began := time.Now()
	for time.Since(began) < long || len(to.few(enough)) > 0 && time.Since(began) < longestStorm {
		time.Sleep(50 * time.Millisecond)
	}
	close(to.stop)
	to.wg.Wait()
	t.Logf("%s=%d: %v in %v", tortureSeedVariable, seed, to.counts, time.Since(began).Round(time.Second))
	if few := to.few(enough); len(few) > 0 {
		t.Errorf("too few to show anything: %v", few)
	}
	to.calm(t, files)
	to.report(t)
}

func durationOf(t *testing.T, variable string, otherwise time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return d
}

// start has one torturer act until the storm is over.
func (to *torture) start(id int, act func(*torturer)) {
	c := &torturer{torture: to, Rand: rand.New(rand.NewPCG(to.seed, uint64(id))), id: id}
	to.wg.Go(func() {
		for !to.over() {
			c.turn++
			act(c)
		}
	})
}

func (to *torture) over() bool {
	select {
	case <-to.stop:
		return true
	default:
		return false
	}
}

// files is how many files and sockets each proxy has open.
func (to *torture) files(t *testing.T) (n []int) {
	t.Helper()
	for _, p := range to.proxies {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
		if err != nil {
			t.Skip(err)
		}
		n = append(n, len(all))
	}
	return n
}

// calm holds that the storm leaves nothing behind: every name is free when the leases are
// over, and who waits for it gets it.
func (to *torture) calm(t *testing.T, files []int) {
	t.Helper()
	for i, p := range to.proxies {
		for name := range to.names {
			c := redistest.Open(t, p.Addr())
			if v := c.Do(t, "LOCK", name, "200ms", "WAIT", (tortureLease + answerWithin).String()); len(v.Elems) != 4 {
				t.Errorf("%s is not free after its lease: %v", name, v)
			} else if v := c.Do(t, "UNLOCK", name, v.Elems[1].Text); v.Int() != 1 && !strings.HasPrefix(v.Text, "LOCKLOST") {
				t.Errorf("UNLOCK %s: %v", name, v)
			}
		}
		c := redistest.Open(t, p.Addr())
		eventually(t, answerWithin, "nothing is held", func() bool {
			for cursor := "0"; ; {
				v := c.Do(t, "LOCKCTL", "LIST", "CURSOR", cursor, "COUNT", "1000")
				if len(v.Elems) != 2 || len(v.Elems[1].Elems) > 0 {
					return false
				}
				if cursor = v.Elems[0].Text; cursor == "0" {
					return true
				}
			}
		})
		eventually(t, answerWithin, "nobody waits and no session has locks", func() bool {
			info := c.Do(t, "INFO", "lockproxy").Text
			return strings.Contains(info, "_waiting:0\r\n") && strings.Contains(info, "_sessions:0\r\n") && strings.Contains(info, "_session_locks:0\r\n")
		})
		eventually(t, answerWithin, "the proxy's files are closed", func() bool { return to.files(t)[i] <= files[i]+20 })
	}
}

func inMillis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// sleep returns early at the end of the storm.
func (c *torturer) sleep(most time.Duration) {
	select {
	case <-time.After(time.Duration(c.Int64N(int64(most)) + 1)):
	case <-c.stop:
	}
}

// chance is true one time in n.
func (c *torturer) chance(n int) bool { return c.IntN(n) == 0 }

func (c *torturer) name() string { return "torture:" + strconv.Itoa(c.IntN(3)) }

func (c *torturer) killProxies() {
	c.sleep(2 * time.Second)
	p := c.proxies[c.IntN(len(c.proxies))]
	p.Kill()
	c.sleep(300 * time.Millisecond)
	if err := p.Restart(); err != nil {
		c.t.Error(err)
	}
	c.count("proxy killed")
}

func (c *torturer) stopNodes() {
	c.sleep(600 * time.Millisecond)
	n := c.nodes[c.IntN(len(c.nodes))]
	n.Pause()
	c.sleep(time.Duration(1+c.IntN(800)) * time.Millisecond)
	n.Resume()
	c.count("node stopped")
}

func (c *torturer) force() {
	c.sleep(time.Second)
	s := c.dial()
	if s == nil {
		return
	}
	defer s.Close()
	name := c.name()
	over := c.forces(name)
	v, err := s.do("LOCKCTL", "FORCE", name)
	over()
	if err == nil && !v.IsError() && v.Int() != 0 || len(v.Elems) > 0 {
		c.count("FORCE")
	}
}

// A socket is a connection of a client. It hears of losses between replies.
type socket struct {
	*redistest.Conn
	c    *torturer
	lost bool // it was told so
}

// dial connects to some proxy; nil if that is down.
func (c *torturer) dial() *socket {
	conn, err := redistest.Dial(c.proxies[c.IntN(len(c.proxies))].Addr())
	if err != nil {
		return nil
	}
	s := &socket{Conn: conn, c: c}
	if c.chance(2) {
		if _, err := s.do("HELLO", "3"); err != nil {
			s.Close()
			return nil
		}
	}
	return s
}

// do sends a command and reads its reply.
func (s *socket) do(args ...string) (redistest.Value, error) {
	if _, err := s.Write([]byte(redistest.Command(args...))); err != nil {
		return redistest.Value{}, err
	}
	v, err := s.next()
	if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
		s.c.t.Errorf("%q was not answered", args)
	}
	if v.IsError() && !expected.MatchString(v.Text) {
		s.c.t.Errorf("%q: %v", args, v)
	}
	return v, err
}

// expected are the errors that anybody may get in a storm.
var expected = regexp.MustCompile("^(NOQUORUM|LOCKLOST|NOTOWNER|ERR LOCK was) |cannot reach the upstream")

func (s *socket) next() (redistest.Value, error) {
	for {
		v, err := s.Next()
		if err != nil || v.Kind != '>' {
			return v, err
		}
		s.lost = true
	}
}

// A claimed is what one turn of a client is about.
type claimed struct {
	name, owner string
	args        []string // of the LOCK
	ttl, wait   time.Duration
	session     bool
	req         bool
	fence       int64
	unsure      bool // some LOCK was not answered: the owner may have what it does not know
	conn        *socket
	kept        *holding
}

// play is one turn: a LOCK, and what comes of it.
func (c *torturer) play() {
	l := c.claim()
	if c.chance(10) {
		c.leaveTheLine(l, 30*time.Millisecond)
		if !l.req {
			return
		}
		l.unsure = true
	}
	if !c.lock(l) {
		return
	}
	defer func() { l.conn.Close() }()
	for range c.IntN(4) {
		if c.hold(l) {
			continue
		}
		if !l.req || !c.comeBack(l) {
			return
		}
	}
	c.end(l)
}

// comeBack asks once more, with the same request, for what was lost. An UNLOCK of the first
// grant that comes then must do nothing.
func (c *torturer) comeBack(l *claimed) bool {
	first, old := l.fence, l.conn
	defer old.Close()
	if !c.lock(l) {
		return false
	}
	if l.fence == first {
		return true
	}
	s, done := c.some(l)
	defer done()
	q := c.asks(l.name, l.owner)
	if v, err := s.do("UNLOCK", l.name, l.owner, "FENCE", strconv.FormatInt(first, 10)); err == nil && v.Kind == ':' {
		c.released(q, first)
	}
	c.count("came back")
	return true
}

// claim makes up a LOCK.
func (c *torturer) claim() *claimed {
	l := &claimed{name: c.name(), owner: fmt.Sprintf("%d-%d", c.id, c.turn), ttl: time.Duration(200+c.IntN(800)) * time.Millisecond}
	l.args = []string{"LOCK", l.name, inMillis(l.ttl)}
	add := func(words ...string) { l.args = append(l.args, words...) }
	if c.chance(4) {
		l.owner = ""
	} else if add("OWNER", l.owner); c.chance(2) {
		l.req = true
		add("REQ", "r")
	}
	if !c.chance(4) {
		l.wait = time.Duration(c.IntN(2000)) * time.Millisecond
		add("WAIT", inMillis(l.wait))
	}
	if c.chance(2) {
		l.session = true
		if add("SESSION"); c.chance(3) {
			add("MAXHOLD", strconv.Itoa(100+c.IntN(1000)))
		}
	}
	if c.chance(4) {
		add("RETRYAFTER")
	}
	return l
}

// leaveTheLine sends a LOCK and soon closes the connection without reading the reply.
func (c *torturer) leaveTheLine(l *claimed, soon time.Duration) {
	s := c.dial()
	if s == nil {
		return
	}
	defer s.Close()
	if _, err := s.Write([]byte(redistest.Command(l.args...))); err == nil {
		c.sleep(soon)
		c.count("left the line")
	}
}

// lock asks until there is an answer, if it may ask again. It reports whether it has the
// lock; then l.conn is the connection it was had on.
func (c *torturer) lock(l *claimed) bool {
	for tries := 0; tries < 5 && !c.over(); tries++ {
		s := c.dial()
		if s == nil {
			c.sleep(50 * time.Millisecond)
			continue
		}
		answered, granted := c.ask(s, l)
		if granted {
			if tries > 0 {
				c.count("LOCK resent")
			}
			l.conn = s
			return true
		}
		s.Close()
		if answered || !l.req {
			return false
		}
		l.unsure = true
	}
	return false
}

// ask sends the LOCK once.
func (c *torturer) ask(s *socket, l *claimed) (answered, granted bool) {
	q := c.asks(l.name, l.owner)
	v, err := s.do(l.args...)
	if err != nil {
		return false, false
	}
	if took := time.Since(q.at); took > l.wait+answerWithin {
		c.t.Errorf("%q was answered after %v: %v", l.args, took, v)
	}
	if len(v.Elems) != 4 || v.Elems[0].Int() == 0 || v.Elems[2].Int() == 0 {
		return !v.IsError(), false
	}
	l.fence, l.owner = v.Elems[0].Int(), v.Elems[1].Text
	q.owner = l.owner
	if l.session {
		l.kept = &holding{overtaken: make(chan struct{})}
		c.count("LOCK SESSION")
	}
	c.granted(q, l.fence, time.Duration(v.Elems[2].Int())*time.Millisecond, l.kept)
	c.count("LOCK")
	if l.wait > 0 {
		c.count("LOCK WAIT")
	}
	return true, true
}

// hold does something while it has the lock. It reports whether there is more to do.
func (c *torturer) hold(l *claimed) bool {
	switch c.IntN(5) {
	case 0:
		return c.renew(l)
	case 1:
		if l.req {
			c.reenter(l)
		}
	case 2:
		if l.session && c.chance(3) {
			return c.keep(l)
		}
	case 3:
		if l.req { // one more hold, that nobody hears of
			l.unsure = true
			c.leaveTheLine(&claimed{args: []string{"LOCK", l.name, inMillis(l.ttl), "OWNER", l.owner, "WAIT", "1s"}}, time.Millisecond)
		}
	}
	c.sleep(15 * time.Millisecond)
	return true
}

// keep has the session keep the lock, perhaps for longer than its lease. When another has
// the lock it must have been told, or be told.
func (c *torturer) keep(l *claimed) bool {
	select {
	case <-time.After(time.Duration(c.Int64N(int64(2 * l.ttl)))):
		return true
	case <-l.kept.overtaken:
	case <-c.stop:
		return true
	}
	if l.conn.lost {
		c.leaves(l.name, l.owner)
		return false
	}
	if _, err := l.conn.Next(); err != nil { // a push, or the end
		if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
			c.t.Errorf("%s: the session of %s was not told that another has the lock", l.name, l.owner)
		}
	}
	c.leaves(l.name, l.owner)
	return false
}

// reenter has the owner LOCK once more through some proxy.
func (c *torturer) reenter(l *claimed) {
	s := c.dial()
	if s == nil {
		return
	}
	defer s.Close()
	q := c.asks(l.name, l.owner)
	v, err := s.do("LOCK", l.name, inMillis(l.ttl), "OWNER", l.owner)
	if err != nil || v.IsError() {
		l.unsure = true
	}
	if len(v.Elems) == 4 && v.Elems[0].Int() != 0 {
		l.fence = v.Elems[0].Int()
		c.granted(q, l.fence, time.Duration(v.Elems[2].Int())*time.Millisecond, nil)
		c.count("re-entered")
	}
}

// some is the connection the lock was had on, or another one.
func (c *torturer) some(l *claimed) (s *socket, done func()) {
	if c.chance(3) {
		if s := c.dial(); s != nil {
			return s, func() { s.Close() }
		}
	}
	return l.conn, func() {}
}

// renew reports whether the owner still has the lock, as far as it knows.
func (c *torturer) renew(l *claimed) bool {
	s, done := c.some(l)
	defer done()
	ttl := time.Duration(100+c.IntN(1500)) * time.Millisecond
	q := c.asks(l.name, l.owner)
	c.renews(q, l.fence, ttl)
	args := []string{"RENEW", l.name, inMillis(ttl), l.owner}
	named := c.chance(2)
	if named {
		args = append(args, "FENCE", strconv.FormatInt(l.fence, 10))
	}
	v, err := s.do(args...)
	switch {
	case err == nil && v.Kind == ':':
		c.renewed(q, l.fence, time.Duration(v.Int())*time.Millisecond, named || !l.unsure)
		c.count("RENEW")
	case strings.HasPrefix(v.Text, "LOCKLOST"), strings.HasPrefix(v.Text, "NOTOWNER"):
		c.leaves(l.name, l.owner)
		return false
	}
	return true
}

// end gives the lock back, in one of many ways, or does not.
func (c *torturer) end(l *claimed) {
	c.leaves(l.name, l.owner)
	if c.chance(12) {
		c.count("left alone")
		return
	}
	args := []string{"UNLOCK", l.name, l.owner}
	add := func(words ...string) { args = append(args, words...) }
	named, again := c.chance(2), c.chance(3)
	if named {
		add("FENCE", strconv.FormatInt(l.fence, 10))
	}
	if c.chance(3) {
		add("ALL")
	}
	if again {
		add("REQ", "u")
	}
	for first := true; first || again; first, again = false, again && c.chance(2) {
		s, done := c.some(l)
		q := c.asks(l.name, l.owner)
		v, err := s.do(args...)
		done()
		if first && err == nil && v.Kind == ':' && (named || !l.unsure) {
			c.released(q, l.fence)
			c.count("UNLOCK")
		}
	}
}
