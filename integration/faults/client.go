package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// clientVariable makes this program a client; it holds a clientConfig as JSON.
const clientVariable = "LOCKPROXY_FAULTS_CLIENT"

const (
	workers      = 2                // goroutines of a client, each with connections of its own
	answerWithin = 10 * time.Second // beyond its WAIT, a command
	epoch        = 20 * time.Second // after which sets begin anew, so that they stay small
)

// A clientConfig is what a client process is told. Its choices follow from Seed, ID and Life.
type clientConfig struct {
	Seed    uint64
	ID      int
	Life    int // how often it was started before
	Proxies []string
	Names   []string
	MaxTTL  time.Duration // the longest lease
	Copies  bool          // of a Run
	Journal string
}

// RunClient is the main of a client process. It reports false, at once, in a process that
// is none. A client works until its standard input ends.
func RunClient() bool {
	text := os.Getenv(clientVariable)
	if text == "" {
		return false
	}
	var conf clientConfig
	if err := json.Unmarshal([]byte(text), &conf); err != nil {
		panic(err)
	}
	j, err := openJournal(conf.Journal)
	if err != nil {
		panic(err)
	}
	p := &clientProcess{clientConfig: conf, journal: j, stop: make(chan struct{})}
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { p.work(i) })
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(p.stop)
	wg.Wait()
	return true
}

type clientProcess struct {
	clientConfig
	journal *journal
	ids     atomic.Int64
	stop    chan struct{}
}

// A worker is one goroutine of a client.
type worker struct {
	*clientProcess
	*rand.Rand        // of this turn
	nth        int    // of its client
	who        string // of its owners
	turn       int
	last       *Event // a LOCK of its lasting owner that was granted before
}

func (p *clientProcess) work(i int) {
	w := &worker{clientProcess: p, nth: i, who: fmt.Sprintf("c%d.%d.%d", p.ID, p.Life, i)}
	for !w.over() {
		w.turn++
		w.Rand = rand.New(rand.NewPCG(p.Seed, uint64(p.ID)<<48|uint64(p.Life)<<40|uint64(i)<<32|uint64(w.turn)))
		if p.Copies {
			w.playLong()
			continue
		}
		switch w.IntN(26) { // half of it is LOCK's
		case 0, 1, 2, 3:
			w.playAdopted()
		case 4, 5:
			w.playHash()
		case 6, 7:
			w.playEndless()
		case 8:
			w.playTimed()
		case 9:
			w.playConstant()
		case 10, 11:
			w.playSwap()
		case 12, 13:
			w.playSeveral()
		default:
			w.play()
		}
	}
}

func (w *worker) over() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

func (w *worker) chance(n int) bool { return w.IntN(n) == 0 }

// sleep returns early at the end of the run.
func (w *worker) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.stop:
	}
}

func (w *worker) upTo(d time.Duration) time.Duration { return time.Duration(w.Int64N(int64(d)) + 1) }

// begin records that a command is about to be sent.
func (w *worker) begin(e *Event) {
	e.ID, e.Client, e.Start = w.ids.Add(1), w.ID, now()
	w.journal.write(e)
}

// A line is a connection to a proxy.
type line struct {
	*redistest.Conn
	w     *worker
	proxy int
}

// dial connects to some proxy; nil if that is down.
func (w *worker) dial() *line {
	i := w.IntN(len(w.Proxies))
	nc, err := net.DialTimeout("tcp", w.Proxies[i], answerWithin)
	if err != nil {
		w.sleep(20 * time.Millisecond)
		return nil
	}
	l := &line{Conn: redistest.NewConn(nc), w: w, proxy: i}
	l.Timeout = answerWithin
	if w.chance(2) {
		if _, err := l.Try("HELLO", "3"); err != nil {
			_ = l.Close()
			return nil
		}
	}
	return l
}

// ask sends what e is about and records the answer, or that there was none.
func (l *line) ask(e *Event, args ...string) bool {
	_, ok := l.askFor(e, e.judge, args...)
	return ok
}

func (l *line) askFor(e *Event, judge func(redistest.Value), args ...string) (redistest.Value, bool) {
	e.Proxy = l.proxy
	l.Timeout = e.Wait + answerWithin
	l.w.begin(e)
	v, err := l.Try(args...)
	for err == nil && v.Kind == '>' { // a push
		v, err = l.Next()
	}
	if err != nil {
		if timedOut(err) {
			e.Text = fmt.Sprintf("%q was not answered within %v", args, l.Timeout)
			l.w.journal.write(e)
		}
		return v, false
	}
	e.End = now()
	judge(v)
	l.w.journal.write(e)
	return v, true
}

// timedOut reports whether nothing was answered in time.
func timedOut(err error) bool {
	late := net.Error(nil)
	return errors.As(err, &late) && late.Timeout()
}

// judge reads a reply to a verb.
func (e *Event) judge(v redistest.Value) {
	word, _, _ := strings.Cut(v.Text, " ")
	switch {
	case v.IsError() && word == "LOCKLOST":
		e.Reply = lost
	case v.IsError() && word == "NOTOWNER":
		e.Reply = notOwner
	case v.IsError():
		e.Reply, e.Text = failed, v.Text
	case e.Op == opLock && len(v.Elems) == 4 && v.Elems[0].Int() == 0:
		e.Reply, e.Holder = held, v.Elems[1].Text
	case e.Op == opLock && len(v.Elems) == 4 && v.Elems[2].Int() == 0: // this request was granted and given back
		e.Reply = over
	case e.Op == opLock && len(v.Elems) == 4:
		e.Reply, e.Granted, e.Owner = granted, v.Elems[0].Int(), v.Elems[1].Text
		e.Validity, e.Holds = time.Duration(v.Elems[2].Int())*time.Millisecond, int(v.Elems[3].Int())
	case e.Op == opLock:
		e.Reply = held
	case e.Op == opRenew:
		e.Reply, e.Validity = carried, time.Duration(v.Int())*time.Millisecond
	default:
		e.Reply, e.Freed = carried, v.Int() == 1
	}
}

func inMillis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// A claim is what one turn is about.
type claim struct {
	Event      // of the LOCK, as it is made anew for every try
	retryAfter bool
	line       *line
	fence      int64 // of the grant
	taken      int   // holds that were taken, and of which it heard
}

func (c *claim) args() []string {
	args := []string{"LOCK", c.Name, inMillis(c.TTL)}
	if c.Owner != "" {
		args = append(args, "OWNER", c.Owner)
	}
	if c.Wait > 0 {
		args = append(args, "WAIT", inMillis(c.Wait))
	}
	if c.Session {
		args = append(args, "SESSION")
	}
	if c.Req != "" {
		args = append(args, "REQ", c.Req)
	}
	args = append(args, c.shares()...)
	if c.retryAfter {
		args = append(args, "RETRYAFTER")
	}
	return args
}

// lease is how long one may be, now and then as long as may be.
func (w *worker) lease() time.Duration {
	if w.Copies {
		return shortestCopied + min(w.upTo(longestCopied-shortestCopied), w.upTo(longestCopied-shortestCopied))
	}
	if w.chance(6) {
		return w.MaxTTL - w.upTo(100*time.Millisecond)
	}
	return 200*time.Millisecond + w.upTo(w.MaxTTL*3/4)
}

// claim makes up a LOCK. An owner may be one that this worker uses again and again.
func (w *worker) claim() *claim {
	c := &claim{Event: Event{Op: opLock, Name: w.Names[w.IntN(len(w.Names))], TTL: w.lease()}, retryAfter: w.chance(2)}
	if w.chance(3) {
		c.Name = w.Names[0] // more rivals than for the others
	}
	switch w.IntN(8) {
	case 0:
	case 1, 2, 3:
		c.Owner = w.who
	default:
		c.Owner = w.who + "." + strconv.Itoa(w.turn)
	}
	if c.Owner != "" && w.chance(3) {
		c.Req = strconv.Itoa(w.turn)
	}
	if !w.chance(3) {
		c.Wait = w.upTo(1500 * time.Millisecond)
	}
	c.Session = w.chance(3)
	return c
}

// play is one turn: a LOCK, and what comes of it.
func (w *worker) play() {
	c := w.claim()
	c.Shared = c.Owner != "" && w.chance(3)
	w.maySit(&c.Event)
	if c.Owner != "" && w.chance(10) {
		w.leave(c.Event, w.upTo(20*time.Millisecond))
	}
	if !w.lock(c) {
		w.sleep(w.upTo(20 * time.Millisecond))
		return
	}
	defer func() {
		w.hangUp(c)
		if c.Owner == w.who {
			w.last = &Event{Name: c.Name, Owner: c.Owner, Granted: c.fence, Shared: c.Shared}
		}
	}()
	if w.last != nil && w.last.Owner == c.Owner && w.last.Name == c.Name && w.last.Shared == c.Shared && w.last.Granted != c.fence && w.chance(2) {
		w.lateUnlock()
	}
	if c.Wait > 0 && w.chance(2) && !w.renew(c, c.TTL) {
		return
	}
	for range w.IntN(4) {
		if !w.hold(c) {
			return
		}
	}
	if c.Owner != "" && w.chance(5) {
		defer w.hasBoth(c)()
	}
	w.unlock(c)
}

// lock asks until there is an answer, if it may ask again.
func (w *worker) lock(c *claim) bool {
	for range 5 {
		if c.line = w.dial(); c.line == nil {
			if w.over() {
				return false
			}
			continue
		}
		e := c.Event
		answered := c.line.ask(&e, c.args()...)
		if e.Reply == granted {
			c.Owner, c.fence, c.taken = e.Owner, e.Granted, 1
			return true
		}
		_ = c.line.Close()
		if answered || c.Req == "" || w.over() {
			return false
		}
	}
	return false
}

// leave sends a LOCK and closes the connection without reading the reply.
func (w *worker) leave(e Event, soon time.Duration) {
	l := w.dial()
	if l == nil {
		return
	}
	defer l.Close()
	e.Proxy, e.Req = l.proxy, ""
	c := claim{Event: e}
	w.begin(&e)
	if _, err := io.WriteString(l, redistest.Command(c.args()...)); err == nil {
		w.sleep(soon)
	}
}

// other is the connection of the claim, or a new one.
func (w *worker) other(c *claim) (l *line, done func()) {
	if w.chance(2) {
		if l := w.dial(); l != nil {
			return l, func() { _ = l.Close() }
		}
	}
	return c.line, func() {}
}

// hold does something with the lock. It reports whether the owner still has it, as far as
// it knows.
func (w *worker) hold(c *claim) bool {
	work := w.update
	if c.Shared {
		work = w.look
	}
	if !strings.HasPrefix(c.Name, mutexNames) && w.chance(2) {
		return work(c)
	}
	if w.Copies && w.chance(2) {
		return w.outlast(c)
	}
	switch w.IntN(9) {
	case 0, 1:
		return w.renew(c, w.lease())
	case 2, 3:
		w.reenter(c)
	case 4: // one more hold, which nobody hears of and which is undone
		e := Event{Op: opLock, Name: c.Name, Owner: c.Owner, TTL: c.TTL, Shared: c.Shared, Permits: c.Permits}
		w.leave(e, w.upTo(2*time.Millisecond))
	case 5:
		if c.TTL > w.MaxTTL/2 && !w.Copies && w.chance(3) { // nodes may forget meanwhile
			w.sleep(c.TTL * 3 / 4)
			return true
		}
		if c.Session && w.chance(3) {
			return w.keep(c)
		}
		if !c.Session && !w.Copies && w.chance(2) { // outstay the lease
			w.sleep(c.TTL + w.upTo(c.TTL))
			return w.renew(c, c.TTL)
		}
		w.sleep(min(w.upTo(c.TTL/2), 5*time.Second))
	default:
		return work(c)
	}
	return true
}

// reenter takes the lock once more, and gives that hold back.
func (w *worker) reenter(c *claim) {
	l, done := w.other(c)
	defer done()
	e := Event{Op: opLock, Name: c.Name, Owner: c.Owner, TTL: c.TTL, Shared: c.Shared, Permits: c.Permits}
	args := (&claim{Event: e}).args()
	if !l.ask(&e, args...) || e.Reply != granted {
		return
	}
	c.taken++
	c.fence = e.Granted
	if w.chance(3) {
		return // unlock gives back both
	}
	w.sleep(w.upTo(5 * time.Millisecond))
	u := Event{Op: opUnlock, Name: c.Name, Owner: c.Owner, First: true, Shared: c.Shared}
	if l.ask(&u, u.reads("UNLOCK", c.Name, c.Owner)...) && u.Reply == carried {
		c.taken--
	}
}

func (w *worker) renew(c *claim, ttl time.Duration) bool {
	l, done := w.other(c)
	defer done()
	e := Event{Op: opRenew, Name: c.Name, Owner: c.Owner, TTL: ttl, Fence: c.fence, Shared: c.Shared}
	args := e.reads("RENEW", c.Name, inMillis(ttl), c.Owner, "FENCE", strconv.FormatInt(c.fence, 10))
	l.ask(&e, args...)
	return e.Reply != lost && e.Reply != notOwner
}

// lateUnlock is one of the grant before, which must do nothing.
func (w *worker) lateUnlock() {
	l := w.dial()
	if l == nil {
		return
	}
	defer l.Close()
	fence := strconv.FormatInt(w.last.Granted, 10)
	e := Event{Op: opUnlock, Name: w.last.Name, Owner: w.last.Owner, Fence: w.last.Granted, Shared: w.last.Shared}
	l.ask(&e, e.reads("UNLOCK", e.Name, e.Owner, "FENCE", fence)...)
}

// unlock gives the lock back, in one of many ways, or does not.
func (w *worker) unlock(c *claim) {
	if w.chance(16) {
		return
	}
	e := Event{Op: opUnlock, Name: c.Name, Owner: c.Owner, All: w.chance(3), Shared: c.Shared}
	args := e.reads("UNLOCK", c.Name, c.Owner)
	if w.chance(2) {
		e.Fence = c.fence
		args = append(args, "FENCE", strconv.FormatInt(c.fence, 10))
	}
	if e.All {
		args = append(args, "ALL")
	}
	again := w.chance(3)
	if again {
		e.Req = "u" + strconv.Itoa(w.turn)
		args = append(args, "REQ", e.Req)
	}
	for i := 0; i == 0 || again && i < 3; i++ {
		u := e
		u.First = i == 0
		l, done := w.other(c)
		ok := l.ask(&u, args...)
		done()
		if ok && i > 0 {
			break
		}
	}
}
