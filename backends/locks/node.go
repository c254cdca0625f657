package locks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	callTimeout = 2 * time.Second        // one batch of scripts; then the connection is given up
	stuckAfter  = 250 * time.Millisecond // a batch out for longer: the node gets nothing that can be left out
	maxBatch    = 128                    // scripts in one batch
	maxQueue    = 1024                   // questions that wait for one node
	maxInsist   = 8192                   // undos and releases that wait for one node
	firstPause  = 20 * time.Millisecond  // after a failed call, doubling
	longPause   = 500 * time.Millisecond // until
)

// A job is one script to run on one node.
type job struct {
	args    []string // the whole command, shared among nodes and never changed
	parse   parse
	round   *round        // takes the vote; nil: nobody does
	expires time.Duration // by the Service's clock; not sent, and not repeated, after it
	durable bool          // a yes counts only when Options.ReplicaAcks replicas have it
	insist  bool          // repeated until answered: what it undoes must not stay
	later   []string      // if not nil, what is sent instead of args when it is repeated: times in args are over
	survey  bool          // also for a node that must not vote
	out     bool          // it was sent: the node may have run it
}

// A node is one master. Its lane, at most one goroutine at a time and none while
// there is nothing to do, sends what waits in batches and in order, one batch at a
// time: an undo travels behind its acquisition, a node that hangs holds up one
// goroutine and no caller, and its connection needs no goroutines of its own.
type node struct {
	index  int
	server *backends.Server
	svc    *Service
	follow *following // nil: the node is server itself

	mu       sync.Mutex
	queue    []job
	later    []job         // insist, and were not answered
	laterAt  time.Duration // when they are tried again
	running  bool          // there is a lane
	waiting  bool          // the lane waits for a time, or for wake
	sent     time.Duration // when the batch that is out was sent; 0: none is
	retryAt  time.Duration // nothing is sent before
	failures int           // calls in a row
	lastErr  error         // of the last call, nil when it was answered
	took     time.Duration // the last call that was answered
	met      bool          // the first contact has succeeded or failed
	closed   bool
	client   rueidis.Client // made by the lane, closed by close
	id       identity
	barred   error // not nil: it must not vote, whatever it says

	wake chan struct{} // a job came while the lane waited; holds one

	meter   nodeMeter
	refused atomic.Int64 // scripts, since it was last seen to do all they ask for; see doubt

	// owned by the lane
	greeted bool
	loaded  bool // greeted: it has been given the scripts
	lost    bool // the connection there was, if greeted is false
	batch   []job
	cmds    []rueidis.Completed
}

// An identity is what a server says it is; zero while unknown, or if it does not say.
type identity struct {
	runID   string
	cluster bool
}

// push gives the node jobs, to be sent in one batch if they fit. A job that cannot be
// sent soon is answered at once, unless it insists.
func (n *node) push(jobs ...job) {
	n.mu.Lock()
	refused := n.queueLocked(jobs)
	start := !n.running && len(n.queue) > 0
	if start {
		n.running = true
		n.svc.lanes.Add(1)
	}
	wake := n.waiting
	n.mu.Unlock()
	for _, r := range refused {
		n.answer(r.job, vote{err: r.err, unsent: true})
	}
	if start {
		go n.run()
	} else if wake {
		n.rouse()
	}
}

// A refusedJob was not queued.
type refusedJob struct {
	job *job
	err error
}

func (n *node) queueLocked(jobs []job) (refused []refusedJob) {
	for i := range jobs {
		if err := n.refusalLocked(&jobs[i]); err != nil {
			refused = append(refused, refusedJob{&jobs[i], err})
		} else {
			n.queue = append(n.queue, jobs[i])
		}
	}
	return refused
}

func (n *node) rouse() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *node) refusalLocked(j *job) error {
	now := n.svc.now()
	switch {
	case n.closed:
		return ErrClosed
	case n.barred != nil && !j.survey:
		return n.barred
	case j.insist && len(n.queue) < maxInsist:
		return nil
	case n.retryAt > now && n.lastErr != nil:
		return n.lastErr
	case n.sent != 0 && now-n.sent > max(stuckAfter, n.svc.opts.NodeTimeout):
		return errTimeout
	case len(n.queue) >= maxQueue:
		return errBusy
	}
	return nil
}

// answer counts a vote and hands it to the round that wants it.
func (n *node) answer(j *job, v vote) {
	if j.round != nil {
		n.meter.vote(&v)
		j.round.deliver(n.index, v)
	}
}

// run is the lane.
func (n *node) run() {
	defer n.svc.lanes.Done()
	for n.take() {
		n.send(n.batch)
		clear(n.batch)
	}
}

// take fills the batch, after the pauses that failures ask for. It reports false
// when the lane ends.
func (n *node) take() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = 0
	for {
		wait, ready := n.nextLocked()
		if ready {
			break
		}
		if wait < 0 || n.closed {
			n.running = false
			return false
		}
		n.waiting = true
		n.mu.Unlock()
		n.sleep(wait)
		n.mu.Lock()
		n.waiting = false
	}
	k := min(len(n.queue), maxBatch)
	n.batch = append(n.batch[:0], n.queue[:k]...)
	rest := copy(n.queue, n.queue[k:])
	clear(n.queue[rest:])
	n.queue = n.queue[:rest]
	n.sent = n.svc.now()
	return true
}

// nextLocked reports whether there is something to send now, else how long to wait
// for it; negative when there is nothing.
func (n *node) nextLocked() (wait time.Duration, ready bool) {
	now := n.svc.now()
	if len(n.later) > 0 && n.laterAt <= now {
		n.queue = append(n.queue, n.later...)
		clear(n.later)
		n.later = n.later[:0]
	}
	switch {
	case len(n.queue) > 0:
		return n.retryAt - now, n.retryAt <= now
	case len(n.later) > 0:
		return n.laterAt - now, false
	}
	return -1, false
}

// sleep waits for d, a new job or the end of the node.
func (n *node) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.wake:
	}
}

// send asks what is still wanted and hands out the answers. What a script flush or
// a lost connection stopped is asked once more: scripts may be repeated.
func (n *node) send(jobs []job) {
	again := n.try(n.wanted(jobs), true)
	if len(again) > 0 {
		n.greeted = false
		n.try(n.wanted(again), false)
	}
}

// wanted answers and removes jobs that came too late or are no longer asked for.
func (n *node) wanted(jobs []job) []job {
	now := n.svc.now()
	keep := jobs[:0]
	for _, j := range jobs {
		if j.expires > now && (j.insist || j.round == nil || j.round.wanted()) {
			keep = append(keep, j)
			continue
		}
		err := errTimeout
		if j.expires > now {
			err = errUnwanted
		}
		n.answer(&j, vote{err: err, unsent: !j.out})
	}
	return keep
}

// try sends one batch. It returns the jobs worth repeating if repeat is true.
func (n *node) try(jobs []job, repeat bool) (again []job) {
	if len(jobs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := n.contact(ctx, slices.ContainsFunc(jobs, job.isScript)); err != nil {
		n.giveUpAll(jobs, err)
		return nil
	}
	n.cmds = n.cmds[:0]
	for i, j := range jobs {
		jobs[i].out = true
		n.cmds = append(n.cmds, n.client.B().Arbitrary(j.args...).Build())
	}
	acks := n.appendWait(jobs)
	results := n.client.DoMulti(ctx, n.cmds...)
	if err := n.disowned(); err != nil {
		n.giveUpAll(jobs, err)
		return nil
	}
	answered, lost, missing := 0, error(nil), error(nil)
	if acks {
		missing = n.missingAcks(results[len(jobs)])
	}
	for i, res := range results[:len(jobs)] {
		j, err := jobs[i], res.NonRedisError()
		switch {
		case err != nil:
			lost = err
			if repeat && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				again = append(again, j)
			} else {
				n.giveUp(j, reason(err))
			}
		case repeat && isNoScript(res.Error()):
			answered++
			again = append(again, j)
		default:
			answered++
			n.hand(j, res, missing)
		}
	}
	if lost != nil {
		n.greeted, n.lost = false, true
	}
	if lost != nil && len(again) == 0 {
		n.failed(lost)
	} else if answered == len(jobs) {
		n.succeeded()
	}
	return again
}

func isNoScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// hand counts one reply. An error is tried again by what insists. missing says why
// replicas do not have what was done, if they must.
func (n *node) hand(j job, res rueidis.RedisResult, missing error) {
	v := count(res, j.parse)
	n.doubt(&v)
	if j.durable && missing != nil && didRenew(&v) {
		v = vote{err: missing}
	}
	if v.err == nil || v.code != 0 {
		if other := (*otherSetError)(nil); errors.As(v.err, &other) {
			other.ours = n.svc.list.text
		}
		if v.err != nil {
			v.err = n.name(v.err)
		}
		n.answer(&j, v)
		return
	}
	n.giveUp(j, reason(v.err))
}

// giveUp keeps a job that insists for later, and answers any other. What insists
// undoes by the id of a hold, so that it may run after what came later.
func (n *node) giveUp(j job, err error) {
	if !j.insist || j.expires <= n.svc.now() {
		n.answer(&j, vote{err: n.name(err), unsent: !j.out})
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if j.later != nil {
		j.args = j.later
	}
	if !n.closed && len(n.later) < maxInsist {
		n.later = append(n.later, j)
		n.laterAt = n.svc.now() + firstPause
	}
}

// giveUpAll gives up jobs for a reason that holds for the node.
func (n *node) giveUpAll(jobs []job, err error) {
	n.failed(err)
	n.hurry()
	for _, j := range jobs {
		n.giveUp(j, reason(err))
	}
}

// name makes err say which node it is about.
func (n *node) name(err error) error {
	if named := (*NodeError)(nil); errors.As(err, &named) {
		return err
	}
	return &NodeError{Node: n.server.String(), Err: err}
}

// reconnected notes that a lost connection has been made again.
func (n *node) reconnected() {
	n.meter.reconnects.Add(1)
	n.mu.Lock()
	why := n.lastErr
	n.mu.Unlock()
	attrs := []slog.Attr{slog.String("node", n.server.String())}
	if why != nil {
		attrs = append(attrs, slog.String("reason", why.Error()))
	}
	n.svc.opts.Log.LogAttrs(context.Background(), slog.LevelInfo, "lock node reconnected", attrs...)
}

// failed notes a call that was not answered and pauses, longer each time.
func (n *node) failed(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.met = true
	n.lastErr = n.name(reason(err))
	n.retryAt = n.svc.now() + min(firstPause<<min(n.failures, 10), longPause)
	n.failures++
}

func (n *node) succeeded() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.met = true
	n.failures, n.lastErr = 0, nil
	n.took = n.svc.now() - n.sent
	n.meter.replies.Observe(n.took)
}

func (j job) isScript() bool { return j.args[0] == "EVALSHA" }

// contact makes sure that the node is connected, known and, if load says so, has the scripts.
func (n *node) contact(ctx context.Context, load bool) error {
	if err := n.locate(ctx); err != nil {
		return err
	}
	if n.greeted && (n.loaded || !load) {
		return nil
	}
	if err := n.dial(); err != nil {
		return err
	}
	err := n.greet(ctx, load)
	var answered *rueidis.RedisError
	if err != nil && ctx.Err() == nil && !errors.As(err, &answered) {
		err = n.greet(ctx, load) // the first error may be that of the connection before
	}
	if err != nil {
		return err
	}
	err = n.svc.compare(n)
	n.loaded = load
	if n.greeted = err == nil; n.greeted && n.lost {
		n.lost = false
		n.reconnected()
	}
	return err
}

// dial makes the client, which opens its connection by itself, and again when it broke.
func (n *node) dial() error {
	if n.client != nil {
		return nil
	}
	at, err := n.target()
	if err != nil {
		return err
	}
	c, err := at.Client(n.svc.tune)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		c.Close()
		return ErrClosed
	}
	n.client = c
	return nil
}

// dialled is the client, nil if the lane has made none yet.
func (n *node) dialled() rueidis.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.client
}

// greet asks who the server is and, if load says so, loads the scripts.
func (n *node) greet(ctx context.Context, load bool) error {
	b := n.client.B()
	cmds := []rueidis.Completed{b.Arbitrary("INFO", "server").Build()}
	if load {
		for _, s := range scripts.All() {
			cmds = append(cmds, b.Arbitrary("SCRIPT", "LOAD", s.Source).Build())
		}
	}
	if n.follow != nil {
		cmds = append(cmds, b.Arbitrary("INFO", "replication").Build())
	}
	res := n.client.DoMulti(ctx, cmds...)
	for _, r := range res[1:] {
		if err := r.Error(); err != nil {
			return err
		}
	}
	if n.follow != nil {
		said, err := res[len(res)-1].ToString()
		if err = cmp.Or(err, checkRole(said)); err != nil {
			return err
		}
	}
	info, err := res[0].ToString()
	if err != nil && !strings.Contains(err.Error(), "is not supported") { // embedded nodes do not say who they are
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.id = parseIdentity(info)
	return nil
}

func parseIdentity(info string) identity {
	var id identity
	for line := range strings.Lines(info) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch k {
		case "run_id":
			id.runID = v
		case "redis_mode", "server_mode": // Redis's, and Valkey's
			id.cluster = v == "cluster"
		}
	}
	return id
}

// close ends the node: whatever waits is answered, a call that is out is aborted.
func (n *node) close() {
	n.mu.Lock()
	n.closed = true
	queue, c := append(n.queue, n.later...), n.client
	n.queue, n.later = nil, nil
	n.mu.Unlock()
	n.rouse()
	for _, j := range queue {
		n.answer(&j, vote{err: n.name(ErrClosed), unsent: true})
	}
	if c != nil {
		c.Close()
	}
}

// idle reports whether nothing waits and nothing is out.
func (n *node) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.running
}
