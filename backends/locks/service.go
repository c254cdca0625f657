package locks

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks/waitq"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	probeEvery          = time.Second     // between two probes of the nodes
	drainFor            = time.Second     // how long Run, when it ends, lets undos and releases go out
	initialProbeTimeout = time.Second     // how long the first caller waits for the first probe of every node
	closeWait           = 3 * time.Second // how long Run, when it ends, waits for a call that does not end
)

// A Service decides who holds locks, together with every other proxy that uses the same nodes and prefix. It
// is made by New and safe for concurrent use. It has at most one worker a node, which starts with work and
// ends with it; Run owns the workers.
type Service struct {
	// Fixed by New.
	opts       Options
	nodes      []*node
	quorum     int
	now        func() time.Duration
	nodeList   nodeList // of the nodes
	commonArgs []string // the first arguments of every script

	// Each has its own mutex, or needs none.
	grants    *grantCache
	keepalive *keepalive
	requests  requests
	inflight  inflightLocks
	waiting   *waitq.Queues[Key, *waitingLock]
	recovery  recovery
	counters  counters
	top       topNames
	semaphore chan struct{} // one place for each round that may be undecided
	fanOut    sync.Mutex    // held while a question is given to all nodes, so that all get it in one order

	// Of Run, which ends them.
	workers      sync.WaitGroup
	stop         chan struct{} // closed when Run ends
	once         sync.Once     // for stop
	probeNow     chan struct{} // asks Run for a probe
	trackOnce    sync.Once
	stopTrackers context.CancelFunc // after trackOnce
}

// New makes a Service. It refuses options that cannot work, all of them at once,
// and needs no network.
func New(o Options) (*Service, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Service{
		opts: o, quorum: len(o.Nodes)/2 + 1, now: o.now,
		semaphore: make(chan struct{}, o.Rounds), stop: make(chan struct{}), probeNow: make(chan struct{}, 1),
	}
	s.nodeList = newList(o.Nodes, o.grace())
	s.commonArgs = []string{ms(o.MaxTTL), strconv.FormatInt(o.Skew.Microseconds(), 10), ms(o.Retention), s.nodeList.fingerprint}
	s.counters.held.First = time.Millisecond
	if s.grants, err = newGrantCache(o.Memory, o.now, &s.counters.held); err != nil {
		return nil, err
	}
	for i, srv := range o.Nodes {
		n, err := s.newNode(i, srv)
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, n)
	}
	s.keepalive = newKeepalive(s)
	s.waiting = newWaiting(s)
	s.recovery.init(len(s.nodes))
	return s, nil
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Run looks after the nodes until ctx ends: it enlists new ones (see Options.OnDemand), restores the fence
// floor of those that forgot, and logs changes. Then it lets undos and releases go out for a moment, closes
// every connection and returns nil when every goroutine of the Service has ended. Lock and the others work
// without Run, but not after it. It must be called at most once.
func (s *Service) Run(ctx context.Context) error {
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	s.startListening(ctx)
	for enlist := !s.opts.OnDemand; ctx.Err() == nil; {
		s.repairNodes(ctx, enlist)
		s.watchCuts(s.keepalive.any())
		s.waiting.Sweep()
		select {
		case <-t.C:
			enlist = !s.opts.OnDemand
		case <-s.probeNow:
			enlist = true
		case <-ctx.Done():
		}
	}
	return s.close()
}

// close ends every worker. It fails only if a connection cannot be aborted.
func (s *Service) close() error {
	s.keepalive.stop()
	for end := time.Now().Add(drainFor); !s.idle() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	s.stopTracking()
	s.once.Do(func() { close(s.stop); s.waiting.Close() })
	s.keepalive.close()
	for _, n := range s.nodes {
		n.close()
	}
	ended := make(chan struct{})
	go func() {
		s.keepalive.group.Wait()
		s.waiting.Wait()
		s.workers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(callTimeout + backends.DefaultDialTimeout + closeWait):
		return errors.New("a lock node's connection does not end")
	}
}

func (s *Service) idle() bool {
	if !s.keepalive.idle() {
		return false
	}
	for _, n := range s.nodes {
		if !n.idle() {
			return false
		}
	}
	return true
}

// tune fits a client to a worker: one caller, which reads and writes by itself, needs neither the client's
// goroutines nor its pings.
func (s *Service) tune(o *rueidis.ClientOption) {
	o.AlwaysPipelining = false
	o.Dialer.KeepAlive = -1
	o.ConnWriteTimeout = callTimeout
	if s.opts.Tune != nil {
		s.opts.Tune(o)
	}
}

// compare notes and returns why n must not vote: it is a Cluster, or the same server as a node before it.
// Every other node is compared again too.
func (s *Service) compare(n *node) error {
	seen := map[string]*node{}
	for _, m := range s.nodes {
		m.mu.Lock()
		var barred error
		switch first := seen[m.id.runID]; {
		case m.id.cluster:
			barred = m.name(errCluster)
		case m.id.runID != "" && first != nil:
			barred = m.name(&sameServerError{first.server.String()})
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

// redisKeys are the keys of a lock on the nodes.
type redisKeys struct{ lock, fences, node string }

func (s *Service) redisKeys(k Key) redisKeys {
	tail := strconv.Itoa(k.DB) + ":" + k.Name
	return redisKeys{lockKey(s.opts.Prefix, k), s.opts.Prefix + "fence:" + tail, s.opts.Prefix + "node"}
}

// lockKey is the key of a name's record, and the channel on which its releases are told.
func lockKey(prefix string, k Key) string {
	return lockPrefix(prefix) + strconv.Itoa(k.DB) + ":" + k.Name
}

func lockPrefix(prefix string) string { return prefix + "lock:" }

// parseLockKey is the reverse of lockKey; ok is false where it is another key.
func parseLockKey(prefix, key string) (k Key, ok bool) {
	tail, ours := strings.CutPrefix(key, lockPrefix(prefix))
	db, name, found := strings.Cut(tail, ":")
	n, err := strconv.Atoi(db)
	return Key{n, name}, ours && found && err == nil
}

// command is the command that calls a script.
func (s *Service) command(sc *scripts.Script, k redisKeys, args ...string) []string {
	c := make([]string, 0, 10+len(args))
	c = append(c, "EVALSHA", sc.SHA1, "3", k.lock, k.fences, k.node)
	c = append(c, s.commonArgs...)
	return append(c, args...)
}

// ask puts one question to all nodes, and calls right behind it that have a round of their own.
func (s *Service) ask(q question, j scriptCall, enough func([]vote) bool, behind ...scriptCall) *round {
	return s.askEach(q, enough, func(int) *scriptCall { return &j }, behind...)
}

// askEach asks every node a question of its own, or none where that is nil.
func (s *Service) askEach(q question, enough func([]vote) bool, each func(node int) *scriptCall, behind ...scriptCall) *round {
	r := newRound(len(s.nodes), q, s.now(), enough)
	s.counters.rounds.Add(1)
	s.fanOut.Lock()
	defer s.fanOut.Unlock()
	for i, n := range s.nodes {
		if j := each(i); j != nil {
			j.round = r
			n.push(append([]scriptCall{*j}, behind...)...)
		} else {
			r.deliver(i, vote{err: errNotAsked, unsent: true})
		}
	}
	return r
}

// acquireSlot is for callers that need votes: it enlists unused nodes, and takes a slot. releaseSlot must
// follow.
func (s *Service) acquireSlot(ctx context.Context) error {
	if err := s.waitInitialProbe(ctx); err != nil {
		return err
	}
	if s.recovery.unused.Load() {
		s.repairNodes(ctx, true)
	}
	return s.takeSlot(ctx)
}

// acquireSlotToList is acquireSlot without a need of votes.
func (s *Service) acquireSlotToList(ctx context.Context) error {
	if err := s.waitInitialProbe(ctx); err != nil {
		return err
	}
	return s.takeSlot(ctx)
}

// takeSlot waits until the caller may have an undecided round, before its clock starts: a burst queues here
// and does not run into its own timeouts.
func (s *Service) takeSlot(ctx context.Context) error {
	select {
	case s.semaphore <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stop:
		return ErrClosed
	}
}

func (s *Service) releaseSlot() { <-s.semaphore }

// quorumError reports that the votes decide nothing.
func (s *Service) quorumError(op, name string, votes []vote) *QuorumError {
	e := &QuorumError{Op: op, Name: name, Nodes: len(s.nodes), Need: s.quorum}
	for i, v := range votes {
		switch {
		case v.kind != silent:
			e.Got++
		case v.err == nil:
			e.Failed = append(e.Failed, s.nodes[i].name(errTimeout))
		default:
			e.Failed = append(e.Failed, s.nodes[i].name(v.err))
		}
	}
	if e.Got >= e.Need {
		e.Failed = append(e.Failed, errDisagree)
	}
	return e
}
