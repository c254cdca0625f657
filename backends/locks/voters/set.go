// Package voters asks lock nodes, and tells what each of them voted.
//
// A [Round] puts one question to all nodes and collects one [vote.Vote] of each; the caller counts the votes and decides. A [Node]
// has one worker, the only goroutine that talks to it. The worker runs while there is something to send, and completes or undoes
// what a caller no longer waits for.
//
// Nodes that are new, or have lost their memory, are probed and repaired (recovery). A node whose master sentinels
// choose is followed from one master to the next (failover).
//
// [Set.Close] ends and awaits every goroutine: workers, and what Start began. Where a mutex is taken while
// another is held, the order is: fanOut, node or round; recovery, node.
package voters

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/workers"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	probeEvery          = 500 * time.Millisecond // between two probes of the nodes
	initialProbeTimeout = time.Second            // how long the first caller waits for the first probe of every node
	closeWait           = 3 * time.Second        // how long Close waits for a call that does not end
)

// A Set is the lock nodes of one proxy. It is made by New and safe for concurrent use. Each node has at most one
// worker, which starts when there is something to send and ends when there is nothing; Close ends them all.
type Set struct {
	// Fixed by New.
	Opts       Options
	Members    []*Node // in the order of Options.Nodes
	Quorum     int     // how many of them must agree
	Clock      func() time.Duration
	NodeList   vote.NodeList // this proxy's list of the nodes
	commonArgs []string      // the first arguments of every script
	back       chan struct{} // holds one when a node votes again that had forgotten

	// Each has its own mutex, or needs none.
	recovery  recovery
	rounds    roundCounters
	semaphore chan struct{} // one place for each round that may be undecided
	fanOut    sync.Mutex    // held while a question is given to all nodes, so that all get it in one order

	// Of goroutines, which Close ends.
	workers      sync.WaitGroup
	goroutines   *workers.Pool // that workers of nodes run on
	stop         chan struct{} // closed by Close
	once         sync.Once     // for stop
	probeNow     chan struct{} // asks Run for a probe
	trackOnce    sync.Once
	stopTrackers context.CancelFunc // after trackOnce
}

// New makes a Set. It reports all invalid options at once, and needs no
// network.
func New(o Options) (*Set, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Set{
		Opts: o, Quorum: len(o.Nodes)/2 + 1, Clock: o.Now,
		semaphore: make(chan struct{}, o.Rounds), stop: make(chan struct{}), probeNow: make(chan struct{}, 1), back: make(chan struct{}, 1),
	}
	s.goroutines = workers.New(len(o.Nodes), s.stop)
	s.NodeList = vote.NewList(o.Nodes, o.grace())
	s.commonArgs = []string{MS(o.MaxTTL), strconv.FormatInt(o.Skew.Microseconds(), 10), MS(o.Retention), s.NodeList.Fingerprint}
	for i, srv := range o.Nodes {
		n, err := s.newNode(i, srv)
		if err != nil {
			return nil, err
		}
		s.Members = append(s.Members, n)
	}
	s.recovery.init(len(s.Members))
	return s, nil
}

// LogTime is Clock for the limits of lines.
func (s *Set) LogTime() time.Time { return time.Time{}.Add(s.Clock()) }

// MS is a duration as the scripts take it.
func MS(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Run looks after the nodes until ctx ends: it enlists new ones (see Options.OnDemand), restores the
// fence floor of those that forgot, and logs changes. It must be called at most once.
func (s *Set) Run(ctx context.Context) {
	t := time.NewTimer(probeEvery)
	defer t.Stop()
	for enlist := !s.Opts.OnDemand; ctx.Err() == nil; {
		s.RepairNodes(ctx, enlist)
		t.Reset(probeEvery)
		select {
		case <-t.C:
			enlist = !s.Opts.OnDemand
		case <-s.probeNow:
			enlist = true
		case <-ctx.Done():
		}
	}
}

// Close lets undos and releases go out for at most so long, closes every connection, and ends every worker. It
// fails only if a connection cannot be aborted.
func (s *Set) Close(drain time.Duration) error {
	for end := time.Now().Add(drain); !s.Idle() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	s.stopTracking()
	s.once.Do(func() { close(s.stop) })
	for _, n := range s.Members {
		n.close()
	}
	ended := make(chan struct{})
	go func() {
		s.workers.Wait()
		s.goroutines.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(CallTimeout + backends.DefaultDialTimeout + closeWait):
		return errors.New("a lock node's connection does not end")
	}
}

// Start runs a goroutine that Close waits for.
func (s *Set) Start(run func()) { s.workers.Go(run) }

// Idle reports whether no node has anything to do.
func (s *Set) Idle() bool {
	for _, n := range s.Members {
		if !n.idle() {
			return false
		}
	}
	return true
}

// Push gives every node a call that nobody waits for.
func (s *Set) Push(j ScriptCall) {
	for _, n := range s.Members {
		n.Push(j)
	}
}

// tune fits a client to a worker: one caller, which reads and writes by itself, needs neither the client's
// goroutines nor its pings.
func (s *Set) tune(o *rueidis.ClientOption) {
	o.AlwaysPipelining = false
	o.Dialer.KeepAlive = -1
	o.ConnWriteTimeout = CallTimeout
	if s.Opts.Tune != nil {
		s.Opts.Tune(o)
	}
}

// checkServers bars every node that is a Cluster, or the same server as a node before it. It returns why n is barred; nil if it is not.
func (s *Set) checkServers(n *Node) error {
	seen := map[string]*Node{}
	for _, m := range s.Members {
		m.mu.Lock()
		var barred error
		switch first := seen[m.id.runID]; {
		case m.id.cluster:
			barred = m.Name(errCluster)
		case m.id.runID != "" && first != nil:
			barred = m.Name(&sameServerError{first.Server.String()})
		case m.id.runID != "" && m.lastErr == nil:
			seen[m.id.runID] = m
		}
		m.barred = barred
		m.mu.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.barred
}

type sameServerError struct{ as string }

func (e *sameServerError) Error() string { return "is the same server as " + e.as }

// RedisKeys are the keys of a lock.
func (s *Set) RedisKeys(k locks.Key) nodekeys.Keys { return nodekeys.Of(s.Opts.Prefix, k) }

// ownArgs is where the arguments begin, in a command with three keys that calls a script, which are that script's own.
const ownArgs = 10

// Back has a value when a node votes again that had forgotten.
func (s *Set) Back() <-chan struct{} { return s.back }

// SpeakFor has all scripts called as by a proxy with another list. It is called before anything is asked.
func (s *Set) SpeakFor(l vote.NodeList) { s.commonArgs[3] = l.Fingerprint }

// Command is the command that calls a script.
func (s *Set) Command(sc *scripts.Script, k nodekeys.Keys, args ...string) []string {
	c := make([]string, 0, ownArgs+1+len(args))
	if k.Name != "" {
		c = append(c, "EVALSHA", sc.SHA1, "4", k.Lock, k.Fences, k.Node, k.Name)
	} else {
		c = append(c, "EVALSHA", sc.SHA1, "3", k.Lock, k.Fences, k.Node)
	}
	c = append(c, s.commonArgs...)
	return append(c, args...)
}

// Ask puts one question to all nodes.
func (s *Set) Ask(q Question, j ScriptCall, enough func([]vote.Vote) bool) *Round {
	return s.AskEach(q, enough, func(int) *ScriptCall { return &j })
}

// Begin makes a round, for calls that are given to every node.
func (s *Set) Begin(q Question, enough func([]vote.Vote) bool) *Round {
	s.rounds.asked.Add(1)
	return newRound(len(s.Members), q, s.Opts.RoundLimit, s.Clock, enough)
}

// AskEach asks every node a question of its own, or none where that is nil.
func (s *Set) AskEach(q Question, enough func([]vote.Vote) bool, each func(node int) *ScriptCall) *Round {
	r := s.Begin(q, enough)
	s.fanOut.Lock()
	defer s.fanOut.Unlock()
	for i, n := range s.Members {
		if j := each(i); j != nil {
			j.Round = r
			n.Push(*j)
		} else {
			r.deliver(i, vote.Vote{Err: ErrNotAsked, Unsent: true})
		}
	}
	return r
}

// AskOne runs a script that is about no lock on one node, and returns its vote. The error is that of ctx.
func (s *Set) AskOne(ctx context.Context, q Question, i int, sc *scripts.Script, p vote.Parse, args ...string) (vote.Vote, error) {
	r := s.AskEach(q, WaitForAll, func(j int) *ScriptCall {
		if j != i {
			return nil
		}
		return &ScriptCall{Args: s.Command(sc, nodekeys.OfNode(s.Opts.Prefix), args...), Parse: p, Expires: s.Clock() + CallTimeout}
	})
	err := r.WaitFor(ctx, CallTimeout)
	votes := r.Close(true, nil)
	s.Ended(r, votes, vote.EndOf(err, votes[i].Kind == vote.Yes))
	return votes[i], err
}

// AskNodes runs a script that is about no lock on each node for which args is not nil, for an operator, and returns the votes. Of a node
// that did not answer the vote has no error, or says why. The error is that of ctx.
func (s *Set) AskNodes(ctx context.Context, sc *scripts.Script, p func(i int) vote.Parse, args func(i int) []string) ([]vote.Vote, error) {
	s.startTracking()
	r := s.AskEach(askRepair, WaitForAll, func(i int) *ScriptCall {
		a := args(i)
		if a == nil {
			return nil
		}
		return &ScriptCall{Args: s.Command(sc, nodekeys.OfNode(s.Opts.Prefix), a...), Parse: p(i), Expires: s.Clock() + initialProbeTimeout, probe: true}
	})
	err := r.WaitFor(ctx, initialProbeTimeout)
	return r.Close(true, nil), err
}

// AcquireSlot is for callers that need votes: it enlists unused nodes, and takes a slot. ReleaseSlot must
// follow.
func (s *Set) AcquireSlot(ctx context.Context) error {
	if err := s.waitInitialProbe(ctx); err != nil {
		return err
	}
	if s.Unused() {
		s.RepairNodes(ctx, true)
	}
	return s.takeSlot(ctx)
}

// Unused reports whether some node was unused when it was last probed (locks.NodeUnused).
func (s *Set) Unused() bool { return s.recovery.unused.Load() }

// AcquireSlotToList is AcquireSlot for callers that need no votes: it does not enlist unused nodes.
func (s *Set) AcquireSlotToList(ctx context.Context) error {
	if err := s.waitInitialProbe(ctx); err != nil {
		return err
	}
	return s.takeSlot(ctx)
}

// takeSlot waits until the caller may have an undecided round, before its clock starts: a burst queues here
// and does not run into its own timeouts.
func (s *Set) takeSlot(ctx context.Context) error {
	if err := ctx.Err(); err != nil { // select may take the slot all the same
		return err
	}
	select {
	case s.semaphore <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stop:
		return locks.ErrClosed
	}
}

// ReleaseSlot gives back what AcquireSlot took.
func (s *Set) ReleaseSlot() { <-s.semaphore }

// QuorumError reports that the votes decide nothing.
func (s *Set) QuorumError(op, name string, votes []vote.Vote) *locks.QuorumError {
	e := &locks.QuorumError{Op: op, Name: name, Nodes: len(s.Members), Need: s.Quorum}
	for i := range votes {
		if votes[i].Kind == vote.Silent {
			e.Failed = append(e.Failed, s.whySilent(i, &votes[i]))
		} else {
			e.Got++
		}
	}
	if e.Got >= e.Need {
		e.Failed = append(e.Failed, errDisagree)
	}
	return e
}

// Agree reports whether a quorum voted yes.
func (s *Set) Agree(votes []vote.Vote) bool { return vote.CountKind(votes, vote.Yes) >= s.Quorum }
