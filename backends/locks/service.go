package locks

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	surveyEvery = time.Second     // how often nodes are looked at
	drainFor    = time.Second     // how long Run, when it ends, lets undos and releases go out
	meetFor     = time.Second     // how long the first caller waits for first contact with every node
	closeWait   = 3 * time.Second // how long Run, when it ends, waits for a call that does not end
)

// A Service decides who holds locks, together with every other proxy that uses
// the same nodes and prefix. It is made by New and safe for concurrent
// use. Lanes, at most one goroutine per node, start with work and end with it;
// Run owns them.
type Service struct {
	opts     Options
	nodes    []*node
	quorum   int
	now      func() time.Duration
	list     nodeList // of the nodes
	common   []string // the first arguments of every script
	memory   *memory
	keeper   *keeper
	requests requests
	underway underway
	slots    chan struct{} // one per round that may be undecided

	waiting  waiting
	counters counters
	hot      hot

	fan   sync.Mutex // held while a question is given to all lanes, so that all have it in one order
	lanes sync.WaitGroup
	stop  chan struct{} // closed when Run ends
	once  sync.Once
	kick  chan struct{} // asks Run to look at the nodes now

	followOnce    sync.Once
	stopFollowing context.CancelFunc // after followOnce

	recovery recovery
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
		slots: make(chan struct{}, o.Rounds), stop: make(chan struct{}), kick: make(chan struct{}, 1),
	}
	s.list = newList(o.Nodes, o.grace())
	s.common = []string{ms(o.MaxTTL), strconv.FormatInt(o.Skew.Microseconds(), 10), ms(o.Retention), s.list.word}
	s.counters.held.First = time.Millisecond
	if s.memory, err = newMemory(o.Memory, o.now, &s.counters.held); err != nil {
		return nil, err
	}
	for i, srv := range o.Nodes {
		n, err := s.newNode(i, srv)
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, n)
	}
	s.keeper = newKeeper(s)
	s.waiting = waiting{
		nodes: len(o.Nodes), quorum: s.quorum, prefix: o.Prefix, now: o.now, chance: o.chance,
		poll: firstPoll, longPoll: longPoll, cuts: o.Prefix + "node:cut",
		queues: map[Key]*queue{}, ears: map[string]*ear{},
	}
	s.recovery.init(len(s.nodes))
	return s, nil
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Run looks after the nodes until ctx ends: it enlists new ones (see Options.OnDemand), restores the
// fence floor of those that forgot, and logs what changes. When ctx has ended it
// lets undos and releases go out for a moment, closes every connection and returns
// nil when every goroutine of the Service has ended. Lock and the others work
// without Run, but not after it. It must be called at most once.
func (s *Service) Run(ctx context.Context) error {
	t := time.NewTicker(surveyEvery)
	defer t.Stop()
	s.beginListening(ctx)
	for enlist := !s.opts.OnDemand; ctx.Err() == nil; {
		s.recover(ctx, enlist)
		s.waiting.hearCuts(s.keeper.any())
		s.waiting.sweep()
		select {
		case <-t.C:
			enlist = !s.opts.OnDemand
		case <-s.kick:
			enlist = true
		case <-ctx.Done():
		}
	}
	return s.close()
}

// close ends every lane. It fails only if a connection cannot be aborted.
func (s *Service) close() error {
	s.keeper.stop()
	for end := time.Now().Add(drainFor); !s.idle() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	s.endFollowing()
	s.once.Do(func() { close(s.stop); s.waiting.close() })
	s.keeper.close()
	for _, n := range s.nodes {
		n.close()
	}
	ended := make(chan struct{})
	go func() {
		s.keeper.group.Wait()
		s.lanes.Wait()
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
	if !s.keeper.idle() {
		return false
	}
	for _, n := range s.nodes {
		if !n.idle() {
			return false
		}
	}
	return true
}

// tune fits a client to a lane: one caller, who reads and writes by itself, needs
// neither the client's goroutines nor its pings.
func (s *Service) tune(o *rueidis.ClientOption) {
	o.AlwaysPipelining = false
	o.Dialer.KeepAlive = -1
	o.ConnWriteTimeout = callTimeout
	if s.opts.Tune != nil {
		s.opts.Tune(o)
	}
}

// compare says why n must not vote: it is a Cluster, or the same server as a node
// before it. Every other node is looked at again too.
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

// A key is a name's place on the nodes.
type key struct{ lock, fences, node string }

func (s *Service) key(k Key) key {
	tail := strconv.Itoa(k.DB) + ":" + k.Name
	return key{lockKey(s.opts.Prefix, k), s.opts.Prefix + "fence:" + tail, s.opts.Prefix + "node"}
}

// lockKey is the key of a name's record, and the channel on which its releases are told.
func lockKey(prefix string, k Key) string {
	return lockPrefix(prefix) + strconv.Itoa(k.DB) + ":" + k.Name
}

func lockPrefix(prefix string) string { return prefix + "lock:" }

// command is the call of a script.
func (s *Service) command(sc *scripts.Script, k key, args ...string) []string {
	c := make([]string, 0, 10+len(args))
	c = append(c, "EVALSHA", sc.SHA1, "3", k.lock, k.fences, k.node)
	c = append(c, s.common...)
	return append(c, args...)
}

// ask puts one question to all nodes, and what is to come right behind it, which has its
// own round.
func (s *Service) ask(q question, j job, enough func([]vote) bool, behind ...job) *round {
	return s.askEach(q, enough, func(int) *job { return &j }, behind...)
}

// askEach asks every node its own question, or none if that is nil.
func (s *Service) askEach(q question, enough func([]vote) bool, each func(node int) *job, behind ...job) *round {
	r := newRound(len(s.nodes), q, s.now(), enough)
	s.counters.rounds.Add(1)
	s.fan.Lock()
	defer s.fan.Unlock()
	for i, n := range s.nodes {
		if j := each(i); j != nil {
			j.round = r
			n.push(append([]job{*j}, behind...)...)
		} else {
			r.deliver(i, vote{err: errNotAsked, unsent: true})
		}
	}
	return r
}

// enter is for whoever wants the nodes to vote: it enlists those that were unused, and
// takes a turn.
func (s *Service) enter(ctx context.Context) error {
	if err := s.meet(ctx); err != nil {
		return err
	}
	if s.recovery.unused.Load() {
		s.recover(ctx, true)
	}
	return s.turn(ctx)
}

// enterToList is enter for whoever only looks for names, which needs no votes.
func (s *Service) enterToList(ctx context.Context) error {
	if err := s.meet(ctx); err != nil {
		return err
	}
	return s.turn(ctx)
}

// turn waits until this caller may have an undecided round, before its clock
// starts: a burst queues here and does not run into its own timeouts.
func (s *Service) turn(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stop:
		return ErrClosed
	}
}

func (s *Service) leave() { <-s.slots }

// quorumError reports that the votes decide nothing.
func (s *Service) quorumError(op, name string, votes []vote) *QuorumError {
	e := &QuorumError{Op: op, Name: name, Nodes: len(s.nodes), Need: s.quorum}
	for i, v := range votes {
		switch {
		case v.ballot != silent:
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
