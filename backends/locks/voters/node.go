package voters

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
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/loglimit"
)

const (
	CallTimeout = 2 * time.Second        // one batch of scripts; then the connection is given up
	stuckAfter  = 250 * time.Millisecond // while a batch has no answer for longer, the node gets only calls that are retried until acknowledged
	MaxBatch    = 128                    // scripts in one batch
	maxQueue    = 1024                   // calls that wait for one node
	maxRetries  = 8192                   // undos and releases that wait for one node
	FirstPause  = 20 * time.Millisecond  // after a failed call, doubling
	longPause   = 500 * time.Millisecond // up to this
)

// A ScriptCall is one script to run on one node.
type ScriptCall struct {
	Args            []string // the whole command, shared among nodes and never changed
	Parse           vote.Parse
	Round           *Round        // takes the vote; nil: nobody does
	Expires         time.Duration // by Set.Clock; not sent, and not repeated, after it
	Durable         bool          // a yes counts only when Options.ReplicaAcks replicas have it
	RetryUntilAcked bool          // it is an undo or a release: repeated until the node has done it, or Expires
	RetryArgs       []string      // not nil: is sent instead of Args when the call is repeated, since times in Args are then outdated
	behind          *Round        // not nil: it is to be sent right behind the call of this round, and in one command
	probe           bool          // sent also to a node that must not vote
	sent, resent    bool          // the node may have run it, and before it was sent last
}

// A Node is one master. Its worker, at most one goroutine and none while there is nothing to do, sends waiting
// calls in order and in batches, one batch at a time: an undo travels behind its acquisition, a node that
// hangs holds up one goroutine and no caller, and its connection needs no goroutines of its own.
//
//	idle ──push──▶ connecting ──▶ sending a batch ──answered──▶ next batch, or idle
//	                  ▲                │ failed
//	                  └──── pausing ◀──┘ (20 ms, doubling to 500 ms)
//
// Calls that come during a pause are answered with the error that caused it.
type Node struct {
	// Fixed by newNode.
	index   int
	Server  *backends.Server
	set     *Set
	tracker *masterTracker // nil: the node is Server itself
	worker  func()         // work, as a value that is made once

	// Guarded by mu.
	mu          sync.Mutex
	queue       []ScriptCall
	retries     []ScriptCall  // to be retried until acknowledged
	retriesAt   time.Duration // when they are sent again
	hasWorker   bool
	workerWaits bool          // for a time, or for wake
	batchSentAt time.Duration // when the batch without an answer was sent; 0: there is none
	retryAt     time.Duration // nothing is sent before
	failures    int           // failed batches in a row
	lastErr     error         // of the last batch, nil when it was answered
	took        time.Duration // by the last batch that was answered
	gen         string        // the last loss of memory after which it was known to vote
	genSince    time.Duration // since when that is known
	closed      bool
	client      rueidis.Client // made by the worker, closed by close
	id          identity
	barred      error // not nil: it must not vote, whatever it answers

	wake chan struct{} // a script call came while the worker waited; holds one

	// Safe for concurrent use.
	meter    nodeMeter
	refusals atomic.Int64 // replies that refuse a script, since a probe last found that the node does all commands; see noteRefusal

	// Owned by the worker.
	connected      bool
	scriptsLoaded  bool           // on this connection
	loadedBefore   bool           // by loadOneByOne, for the next connection
	connectionLost bool           // the connection before was lost
	reconnects     loglimit.Limit // of the lines about connections made again
	batch          []ScriptCall
	batcher        batcher
	cmds           []rueidis.Completed
}

// Push queues calls, to be sent in one batch if they fit. A call that cannot be sent soon is answered at once,
// unless it is retried until acknowledged.
func (n *Node) Push(calls ...ScriptCall) {
	n.mu.Lock()
	refused := n.queueLocked(calls)
	start := !n.hasWorker && len(n.queue) > 0
	if start {
		n.hasWorker = true
		n.set.workers.Add(1)
	}
	wake := n.workerWaits
	n.mu.Unlock()
	for _, r := range refused {
		n.answer(r.call, vote.Vote{Err: r.err, Unsent: true})
	}
	if start {
		n.set.goroutines.Go(n.worker)
	} else if wake {
		n.wakeWorker()
	}
}

// A refusedCall is a call that was not queued.
type refusedCall struct {
	call *ScriptCall
	err  error
}

func (n *Node) queueLocked(calls []ScriptCall) (refused []refusedCall) {
	for i := range calls {
		if err := n.refusalLocked(&calls[i]); err != nil {
			refused = append(refused, refusedCall{&calls[i], err})
		} else {
			n.queue = append(n.queue, calls[i])
		}
	}
	return refused
}

func (n *Node) wakeWorker() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// refusalLocked is why a call cannot be queued, nil if it can.
func (n *Node) refusalLocked(j *ScriptCall) error {
	switch { // the clock is a call of the kernel, so it is read only where it matters
	case n.closed:
		return locks.ErrClosed
	case n.barred != nil && !j.probe:
		return n.barred
	case j.RetryUntilAcked && len(n.queue) < maxRetries:
		return nil
	case n.lastErr != nil && n.retryAt > n.set.Clock():
		return n.lastErr
	case n.batchSentAt != 0 && n.set.Clock()-n.batchSentAt > max(stuckAfter, n.set.Opts.NodeTimeout):
		return ErrTimeout
	case len(n.queue) >= maxQueue:
		return errBusy
	}
	return nil
}

// noteGen notes after which loss of memory the node votes.
func (n *Node) noteGen(v *vote.Vote) {
	if v.Gen == "" || v.Kind != vote.Yes && v.Code != vote.InDoubt {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gen == v.Gen {
		return
	}
	n.gen, n.genSince = v.Gen, n.set.Clock()
	select {
	case n.set.back <- struct{}{}:
	default:
	}
}

// VotedBefore reports whether the node was known at this time, on Set.Clock, to vote after this loss of its memory.
func (n *Node) VotedBefore(at time.Duration, gen string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gen == gen && n.genSince < at
}

// answer counts a vote and delivers it to its round.
func (n *Node) answer(j *ScriptCall, v vote.Vote) {
	n.noteGen(&v)
	if j.Round != nil {
		n.meter.vote(&v)
		j.Round.deliver(n.index, v)
	}
}

// work sends batches until there is nothing to send.
func (n *Node) work() {
	defer n.set.workers.Done()
	for n.nextBatch() {
		n.send(n.batch)
		clear(n.batch)
	}
}

// nextBatch fills the batch, after the pauses that failures ask for. It reports false when the worker is to
// end.
func (n *Node) nextBatch() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.batchSentAt = 0
	for {
		if n.closed || len(n.queue)+len(n.retries) == 0 {
			n.hasWorker = false
			return false
		}
		now := n.set.Clock()
		wait := n.waitLocked(now)
		if wait <= 0 {
			n.batchSentAt = now
			break
		}
		n.workerWaits = true
		n.mu.Unlock()
		n.sleep(wait)
		n.mu.Lock()
		n.workerWaits = false
	}
	k := min(len(n.queue), MaxBatch)
	n.batch = append(n.batch[:0], n.queue[:k]...)
	rest := copy(n.queue, n.queue[k:])
	clear(n.queue[rest:])
	n.queue = n.queue[:rest]
	return true
}

// waitLocked is how long to wait until there is something to send, which there will be; 0 or less: now.
func (n *Node) waitLocked(now time.Duration) time.Duration {
	if len(n.retries) > 0 && n.retriesAt <= now {
		n.queue = append(n.queue, n.retries...)
		clear(n.retries)
		n.retries = n.retries[:0]
	}
	if len(n.queue) > 0 {
		return n.retryAt - now
	}
	return n.retriesAt - now
}

// sleep waits for d, a new call or the end of the node.
func (n *Node) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.wake:
	}
}

// send sends the calls that are still wanted and delivers the answers. Calls that a script flush or a lost
// connection has stopped are sent once more: scripts may be repeated.
func (n *Node) send(calls []ScriptCall) {
	again := n.try(n.dropUnwanted(calls), true)
	if len(again) > 0 {
		n.connected = false
		n.try(n.dropUnwanted(again), false)
	}
}

// dropUnwanted answers and removes calls that have expired or that nobody waits for.
func (n *Node) dropUnwanted(calls []ScriptCall) []ScriptCall {
	now := n.set.Clock()
	keep := calls[:0]
	for _, j := range calls {
		if j.Expires > now && (j.RetryUntilAcked || j.Round == nil || j.Round.wanted()) {
			keep = append(keep, j)
			continue
		}
		err := ErrTimeout
		if j.Expires > now {
			err = errUnwanted
		}
		n.answer(&j, vote.Vote{Err: err, Unsent: !j.sent})
	}
	return keep
}

// try sends one batch. It returns the calls worth repeating if repeat is true.
func (n *Node) try(calls []ScriptCall, repeat bool) (again []ScriptCall) {
	if len(calls) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
	defer cancel()
	load := slices.ContainsFunc(calls, ScriptCall.isScript)
	if err := n.ensureConnected(ctx, load); err != nil {
		n.retryOrFailAll(calls, err)
		if load && n.client != nil && errors.Is(reason(err), ErrTimeout) {
			n.loadOneByOne()
		}
		return nil
	}
	for i := range calls {
		calls[i].sent, calls[i].resent = true, calls[i].sent
	}
	n.cmds = n.cmds[:0]
	commands := n.batcher.batch(calls)
	defer n.batcher.forget()
	for i := range commands {
		n.cmds = append(n.cmds, n.client.B().Arbitrary(commands[i].args()...).Build())
	}
	acks := n.appendWait(calls)
	results := n.client.DoMulti(ctx, n.cmds...)
	if err := n.noLongerMaster(); err != nil {
		n.retryOrFailAll(calls, err)
		return nil
	}
	answered, lost, missing := 0, error(nil), error(nil)
	if acks {
		missing = n.missingAcks(results[len(results)-1])
	}
	for i := range commands {
		sent := commands[i].calls
		switch err := results[i].NonRedisError(); {
		case err != nil:
			lost = err
			if repeat && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				again = append(again, sent...)
				break
			}
			for _, j := range sent {
				n.retryOrFail(j, reason(err))
			}
		case repeat && isNoScript(results[i].Error()):
			answered += len(sent)
			again = append(again, sent...)
		default:
			answered += len(sent)
			for k, v := range commands[i].votes(results[i]) {
				n.deliverVote(sent[k], v, missing)
			}
		}
	}
	if lost != nil {
		n.connected, n.connectionLost = false, true
	}
	if lost != nil && len(again) == 0 {
		n.failed(lost)
	} else if answered == len(calls) {
		n.succeeded()
	}
	return again
}

func isNoScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// deliverVote answers a call with its vote. missing, if not nil, is why too few replicas have what a durable call did. If the
// vote is an error, a call that is retried until acknowledged is retried.
func (n *Node) deliverVote(j ScriptCall, v vote.Vote, missing error) {
	n.noteRefusal(&v)
	v.Release.Since = v.Release.Since && !j.resent // else it may have been this very call
	if j.Durable && missing != nil && v.Kind == vote.Yes {
		v = vote.Vote{Err: missing}
	}
	if v.Err == nil || v.Code != 0 {
		if other := (*vote.OtherSetError)(nil); errors.As(v.Err, &other) {
			other.Ours = n.set.NodeList.Names
		}
		if v.Err != nil {
			v.Err = n.Name(v.Err)
		}
		n.answer(&j, v)
		return
	}
	n.retryOrFail(j, reason(v.Err))
}

// retryOrFail keeps a call that is retried until acknowledged for later, and answers any other. Such a call removes
// holds by their ids, so that it may run after later calls.
func (n *Node) retryOrFail(j ScriptCall, err error) {
	if !j.RetryUntilAcked || j.Expires <= n.set.Clock() {
		n.answer(&j, vote.Vote{Err: n.Name(err), Unsent: !j.sent})
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if j.RetryArgs != nil {
		j.Args = j.RetryArgs
	}
	if !n.closed && len(n.retries) < maxRetries {
		n.retries = append(n.retries, j)
		n.retriesAt = n.set.Clock() + FirstPause
	}
}

// retryOrFailAll is retryOrFail for all calls of a batch, after a failure of the node.
func (n *Node) retryOrFailAll(calls []ScriptCall, err error) {
	n.failed(err)
	n.refreshMaster()
	for _, j := range calls {
		n.retryOrFail(j, reason(err))
	}
}

// Name adds to err which node it is about.
func (n *Node) Name(err error) error {
	if named := (*locks.NodeError)(nil); errors.As(err, &named) {
		return err
	}
	return &locks.NodeError{Node: n.Server.String(), Err: err}
}

// reconnected logs that a lost connection has been made again.
func (n *Node) reconnected() {
	n.meter.reconnects.Add(1)
	leftOut, due := n.reconnects.Due(loglimit.Changes, n.set.LogTime())
	if !due {
		return
	}
	n.mu.Lock()
	why := n.lastErr
	n.mu.Unlock()
	attrs := []slog.Attr{slog.String("node", n.Server.String())}
	if why != nil {
		attrs = append(attrs, slog.String("reason", why.Error()))
	}
	n.set.Opts.Log.LogAttrs(context.Background(), slog.LevelInfo, "lock node reconnected", loglimit.With(attrs, leftOut)...)
}

// failed notes a batch without an answer, and pauses, longer each time.
func (n *Node) failed(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lastErr = n.Name(reason(err))
	n.retryAt = n.set.Clock() + min(FirstPause<<min(n.failures, 10), longPause)
	n.failures++
}

func (n *Node) succeeded() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures, n.lastErr = 0, nil
	n.took = n.set.Clock() - n.batchSentAt
	n.meter.replies.Observe(n.took)
}

func (j ScriptCall) isScript() bool { return j.Args[0] == "EVALSHA" }

// close ends the node: waiting calls are answered, a batch that was sent is aborted.
func (n *Node) close() {
	n.mu.Lock()
	n.closed = true
	queue, c := append(n.queue, n.retries...), n.client
	n.queue, n.retries = nil, nil
	n.mu.Unlock()
	n.wakeWorker()
	for _, j := range queue {
		n.answer(&j, vote.Vote{Err: n.Name(locks.ErrClosed), Unsent: true})
	}
	if c != nil {
		c.Close()
	}
}

// idle reports whether nothing waits and nothing is under way.
func (n *Node) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.hasWorker
}

// Sound reports whether the node is idle, and answered the last batch.
func (n *Node) Sound() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.hasWorker && n.lastErr == nil && n.retryAt <= n.set.Clock()
}
