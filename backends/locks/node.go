package locks

import (
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
)

const (
	callTimeout = 2 * time.Second        // one batch of scripts; then the connection is given up
	stuckAfter  = 250 * time.Millisecond // a batch without an answer for longer: the node gets nothing that can be left out
	maxBatch    = 128                    // scripts in one batch
	maxQueue    = 1024                   // calls that wait for one node
	maxRetries  = 8192                   // undos and releases that wait for one node
	firstPause  = 20 * time.Millisecond  // after a failed call, doubling
	longPause   = 500 * time.Millisecond // until
)

// A scriptCall is one script to run on one node.
type scriptCall struct {
	args            []string // the whole command, shared among nodes and never changed
	parse           parse
	round           *round        // takes the vote; nil: nobody does
	expires         time.Duration // by the Service's clock; not sent, and not repeated, after it
	durable         bool          // a yes counts only when Options.ReplicaAcks replicas have it
	retryUntilAcked bool          // what it undoes must not stay
	retryArgs       []string      // if not nil, what is sent instead of args when it is repeated, since times in args are over
	probe           bool          // sent also to a node that must not vote
	sent            bool          // the node may have run it
}

// A node is one master. Its worker, at most one goroutine and none while there is nothing to do, sends waiting
// calls in order and in batches, one batch at a time: an undo travels behind its acquisition, a node that
// hangs holds up one goroutine and no caller, and its connection needs no goroutines of its own.
//
//	idle ──push──▶ connecting ──▶ sending a batch ──answered──▶ next batch, or idle
//	                  ▲                │ failed
//	                  └──── pausing ◀──┘ (20 ms, doubling to 500 ms)
//
// Calls that come during a pause are answered with the error.
type node struct {
	// Fixed by newNode.
	index   int
	server  *backends.Server
	svc     *Service
	tracker *masterTracker // nil: the node is server itself

	// Guarded by mu.
	mu          sync.Mutex
	queue       []scriptCall
	retries     []scriptCall  // to be retried until acknowledged
	retriesAt   time.Duration // when they are sent again
	hasWorker   bool
	workerWaits bool          // for a time, or for wake
	batchSentAt time.Duration // when the batch without an answer was sent; 0: there is none
	retryAt     time.Duration // nothing is sent before
	failures    int           // batches in a row
	lastErr     error         // of the last batch, nil when it was answered
	took        time.Duration // by the last batch that was answered
	closed      bool
	client      rueidis.Client // made by the worker, closed by close
	id          identity
	barred      error // not nil: it must not vote, whatever it answers

	wake chan struct{} // a script call came while the worker waited; holds one

	// Safe for concurrent use.
	meter    nodeMeter
	refusals atomic.Int64 // of scripts, since it was last seen to do all that they need; see noteRefusal

	// Owned by the worker.
	connected      bool
	scriptsLoaded  bool // on this connection
	connectionLost bool // that there was before
	batch          []scriptCall
	cmds           []rueidis.Completed
}

// push queues calls, to be sent in one batch if they fit. A call that cannot be sent soon is answered at once,
// unless it is retried until acknowledged.
func (n *node) push(jobs ...scriptCall) {
	n.mu.Lock()
	refused := n.queueLocked(jobs)
	start := !n.hasWorker && len(n.queue) > 0
	if start {
		n.hasWorker = true
		n.svc.workers.Add(1)
	}
	wake := n.workerWaits
	n.mu.Unlock()
	for _, r := range refused {
		n.answer(r.job, vote{err: r.err, unsent: true})
	}
	if start {
		go n.work()
	} else if wake {
		n.wakeWorker()
	}
}

// A refusedJob is a call that was not queued.
type refusedJob struct {
	job *scriptCall
	err error
}

func (n *node) queueLocked(jobs []scriptCall) (refused []refusedJob) {
	for i := range jobs {
		if err := n.refusalLocked(&jobs[i]); err != nil {
			refused = append(refused, refusedJob{&jobs[i], err})
		} else {
			n.queue = append(n.queue, jobs[i])
		}
	}
	return refused
}

func (n *node) wakeWorker() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *node) refusalLocked(j *scriptCall) error {
	now := n.svc.now()
	switch {
	case n.closed:
		return ErrClosed
	case n.barred != nil && !j.probe:
		return n.barred
	case j.retryUntilAcked && len(n.queue) < maxRetries:
		return nil
	case n.retryAt > now && n.lastErr != nil:
		return n.lastErr
	case n.batchSentAt != 0 && now-n.batchSentAt > max(stuckAfter, n.svc.opts.NodeTimeout):
		return errTimeout
	case len(n.queue) >= maxQueue:
		return errBusy
	}
	return nil
}

// answer counts a vote and delivers it to its round.
func (n *node) answer(j *scriptCall, v vote) {
	if j.round != nil {
		n.meter.vote(&v)
		j.round.deliver(n.index, v)
	}
}

// work sends batches until there is nothing to send.
func (n *node) work() {
	defer n.svc.workers.Done()
	for n.nextBatch() {
		n.send(n.batch)
		clear(n.batch)
	}
}

// nextBatch fills the batch, after the pauses that failures ask for. It reports false when the worker is to
// end.
func (n *node) nextBatch() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.batchSentAt = 0
	for {
		wait, ready := n.nextLocked()
		if ready {
			break
		}
		if wait < 0 || n.closed {
			n.hasWorker = false
			return false
		}
		n.workerWaits = true
		n.mu.Unlock()
		n.sleep(wait)
		n.mu.Lock()
		n.workerWaits = false
	}
	k := min(len(n.queue), maxBatch)
	n.batch = append(n.batch[:0], n.queue[:k]...)
	rest := copy(n.queue, n.queue[k:])
	clear(n.queue[rest:])
	n.queue = n.queue[:rest]
	n.batchSentAt = n.svc.now()
	return true
}

// nextLocked reports whether there is something to send now, else how long to wait for it; negative when there
// is nothing.
func (n *node) nextLocked() (wait time.Duration, ready bool) {
	now := n.svc.now()
	if len(n.retries) > 0 && n.retriesAt <= now {
		n.queue = append(n.queue, n.retries...)
		clear(n.retries)
		n.retries = n.retries[:0]
	}
	switch {
	case len(n.queue) > 0:
		return n.retryAt - now, n.retryAt <= now
	case len(n.retries) > 0:
		return n.retriesAt - now, false
	}
	return -1, false
}

// sleep waits for d, a new call or the end of the node.
func (n *node) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.wake:
	}
}

// send asks what is still wanted and delivers the answers. What a script flush or a lost connection stopped is
// sent once more: scripts may be repeated.
func (n *node) send(jobs []scriptCall) {
	again := n.try(n.dropUnwanted(jobs), true)
	if len(again) > 0 {
		n.connected = false
		n.try(n.dropUnwanted(again), false)
	}
}

// dropUnwanted answers and removes calls that have expired or that nobody waits for.
func (n *node) dropUnwanted(jobs []scriptCall) []scriptCall {
	now := n.svc.now()
	keep := jobs[:0]
	for _, j := range jobs {
		if j.expires > now && (j.retryUntilAcked || j.round == nil || j.round.wanted()) {
			keep = append(keep, j)
			continue
		}
		err := errTimeout
		if j.expires > now {
			err = errUnwanted
		}
		n.answer(&j, vote{err: err, unsent: !j.sent})
	}
	return keep
}

// try sends one batch. It returns the calls worth repeating if repeat is true.
func (n *node) try(jobs []scriptCall, repeat bool) (again []scriptCall) {
	if len(jobs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := n.ensureConnected(ctx, slices.ContainsFunc(jobs, scriptCall.isScript)); err != nil {
		n.retryOrFailAll(jobs, err)
		return nil
	}
	n.cmds = n.cmds[:0]
	for i, j := range jobs {
		jobs[i].sent = true
		n.cmds = append(n.cmds, n.client.B().Arbitrary(j.args...).Build())
	}
	acks := n.appendWait(jobs)
	results := n.client.DoMulti(ctx, n.cmds...)
	if err := n.noLongerMaster(); err != nil {
		n.retryOrFailAll(jobs, err)
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
				n.retryOrFail(j, reason(err))
			}
		case repeat && isNoScript(res.Error()):
			answered++
			again = append(again, j)
		default:
			answered++
			n.deliver(j, res, missing)
		}
	}
	if lost != nil {
		n.connected, n.connectionLost = false, true
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

// deliver counts one reply; an error is retried where a call must be acknowledged. missing is why replicas do
// not have what was done, if they must.
func (n *node) deliver(j scriptCall, res rueidis.RedisResult, missing error) {
	v := readVote(res, j.parse)
	n.noteRefusal(&v)
	if j.durable && missing != nil && didRenew(&v) {
		v = vote{err: missing}
	}
	if v.err == nil || v.code != 0 {
		if other := (*otherSetError)(nil); errors.As(v.err, &other) {
			other.ours = n.svc.nodeList.names
		}
		if v.err != nil {
			v.err = n.name(v.err)
		}
		n.answer(&j, v)
		return
	}
	n.retryOrFail(j, reason(v.err))
}

// retryOrFail keeps a call that is retried until acknowledged for later, and answers any other. It undoes by
// the id of a hold, so that it may run after later calls.
func (n *node) retryOrFail(j scriptCall, err error) {
	if !j.retryUntilAcked || j.expires <= n.svc.now() {
		n.answer(&j, vote{err: n.name(err), unsent: !j.sent})
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if j.retryArgs != nil {
		j.args = j.retryArgs
	}
	if !n.closed && len(n.retries) < maxRetries {
		n.retries = append(n.retries, j)
		n.retriesAt = n.svc.now() + firstPause
	}
}

// retryOrFailAll is retryOrFail for a reason that holds for the node.
func (n *node) retryOrFailAll(jobs []scriptCall, err error) {
	n.failed(err)
	n.refreshMaster()
	for _, j := range jobs {
		n.retryOrFail(j, reason(err))
	}
}

// name adds to err which node it is about.
func (n *node) name(err error) error {
	if named := (*NodeError)(nil); errors.As(err, &named) {
		return err
	}
	return &NodeError{Node: n.server.String(), Err: err}
}

// reconnected logs that a lost connection has been made again.
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

// failed notes a batch without an answer, and pauses, longer each time.
func (n *node) failed(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lastErr = n.name(reason(err))
	n.retryAt = n.svc.now() + min(firstPause<<min(n.failures, 10), longPause)
	n.failures++
}

func (n *node) succeeded() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures, n.lastErr = 0, nil
	n.took = n.svc.now() - n.batchSentAt
	n.meter.replies.Observe(n.took)
}

func (j scriptCall) isScript() bool { return j.args[0] == "EVALSHA" }

// close ends the node: waiting calls are answered, a batch that was sent is aborted.
func (n *node) close() {
	n.mu.Lock()
	n.closed = true
	queue, c := append(n.queue, n.retries...), n.client
	n.queue, n.retries = nil, nil
	n.mu.Unlock()
	n.wakeWorker()
	for _, j := range queue {
		n.answer(&j, vote{err: n.name(ErrClosed), unsent: true})
	}
	if c != nil {
		c.Close()
	}
}

// idle reports whether nothing waits and nothing is under way.
func (n *node) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.hasWorker
}
