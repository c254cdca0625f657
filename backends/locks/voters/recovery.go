package voters

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/loglimit"
	"github.com/lockproxy/lockproxy/scripts"
)

const minProbeTimeout = 300 * time.Millisecond

// recovery is what a Set knows about nodes that are new, or have lost their memory.
type recovery struct {
	probes atomic.Int64  // completed
	unused atomic.Bool   // some node was unused at the last probe
	turn   chan struct{} // holds one during a probe: a mutex for which a caller can stop waiting

	missing  []time.Duration // since when each node is seen without a record; 0: it is not; guarded by turn
	recorded bool            // when nodes last answered, some had a record; guarded by turn
	had      []bool          // whether each node has had a record since this proxy started; guarded by turn
	emptied  bool            // some have, and now all are without; guarded by turn

	mu      sync.Mutex
	status  []locks.NodeStatus
	changes []loglimit.Limit // of the lines about each node
	quorum  quorumLog
	forgot  []Forgotten // by the last probe

	forgotChanged chan struct{} // holds one when forgot may have changed
}

// A node says when a copy may begin, by its own clock. That may have been set forward, so a proxy also waits for as long from
// when it saw the loss. Clocks agree on a second within one percent: twice that for two of them.
const copyDelay = RoundLimit + RoundLimit/50 + 10*time.Millisecond

// A Forgotten is a node in quarantine.
type Forgotten struct {
	Node    int           // index in Members
	Gen     string        // names the loss of its memory
	MayCopy bool          // a copy may end the quarantine: see package copying
	CopyAt  time.Duration // when that may begin, on Set.Clock
	seen    time.Duration // since when every probe has shown this loss, on Set.Clock
}

// Forgotten are the nodes in quarantine, by the last probe. A value on changed says that there may be others now; one caller gets it.
func (s *Set) Forgotten() (all []Forgotten, changed <-chan struct{}) {
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	return s.recovery.forgot, s.recovery.forgotChanged
}

// hasOthers reports whether there is a quorum without one node. There is none of one or two.
func (s *Set) hasOthers() bool { return len(s.Members)-1 >= s.Quorum }

// mayCopy reports whether a copy may end the quarantine of a node: what a quorum of the others hold.
func (s *Set) mayCopy(v *vote.Vote) bool { return v.CopyIn >= 0 && s.hasOthers() }

// noteForgottenLocked notes by the votes of a probe which nodes are in quarantine. The caller holds recovery.mu.
func (s *Set) noteForgottenLocked(votes []vote.Vote) {
	before, now := s.recovery.forgot, s.Clock()
	s.recovery.forgot = nil
	for i := range votes {
		v := &votes[i]
		if v.Code != vote.Quarantined || v.Gen == "" {
			continue
		}
		seen := now
		if at := slices.IndexFunc(before, func(f Forgotten) bool { return f.Node == i && f.Gen == v.Gen }); at >= 0 {
			seen = before[at].seen
		}
		s.recovery.forgot = append(s.recovery.forgot, Forgotten{i, v.Gen, s.mayCopy(v), max(now+vote.Millis(v.CopyIn), seen+copyDelay), seen})
	}
	if len(before)+len(s.recovery.forgot) > 0 {
		select {
		case s.recovery.forgotChanged <- struct{}{}:
		default:
		}
	}
}

func (r *recovery) init(nodes int) {
	r.turn, r.forgotChanged = make(chan struct{}, 1), make(chan struct{}, 1)
	r.missing, r.had = make([]time.Duration, nodes), make([]bool, nodes)
	r.status, r.changes = make([]locks.NodeStatus, nodes), make([]loglimit.Limit, nodes)
}

// begin waits until no other probe is under way. Unless it returns an error, end must follow.
func (r *recovery) begin(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *recovery) end() { <-r.turn }

// Check contacts every node and reports those that can never be what they are configured as: the same server
// twice, or a Redis Cluster. Nodes that do not answer are not reported; see Nodes.
func (s *Set) Check(ctx context.Context) error {
	if err := s.waitInitialProbe(ctx); err != nil {
		return err
	}
	var errs []error
	for _, n := range s.Members {
		n.mu.Lock()
		errs = append(errs, n.barred)
		n.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Init declares all nodes new, so that they vote at once. The operator vouches that no lease and no fence matters
// which they may have forgotten. If a node does not answer, or some vote already, Init fails and changes nothing;
// if all vote already, there is nothing to do.
func (s *Set) Init(ctx context.Context) error {
	if err := s.recovery.begin(ctx); err != nil {
		return err
	}
	defer s.recovery.end()
	votes, err := s.probe(ctx, initialProbeTimeout)
	if err != nil {
		return err
	}
	var errs []error
	voting := 0
	for i, v := range votes {
		switch {
		case v.Kind == vote.Yes:
			voting++
			errs = append(errs, s.Members[i].Name(errors.New("takes part already")))
		case v.Code == 0 || v.Code == vote.Damaged || v.Code == vote.OtherSet:
			errs = append(errs, s.Members[i].Name(OrTimeout(v.Err)))
		}
	}
	if voting == len(s.Members) {
		return nil
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	var actions []repairAction
	for i := range s.Members {
		actions = append(actions, repairAction{i, scripts.Register, registerArgs(&vote.Vote{}, "force", &vote.NodeSet{Now: s.NodeList})})
	}
	for i, v := range s.runRepairs(ctx, actions) {
		if v.Kind != vote.Yes {
			errs = append(errs, s.Members[i].Name(OrTimeout(v.Err)))
		}
	}
	return errors.Join(errs...)
}

// OrTimeout is err, or ErrTimeout if err is nil: the vote did not come in time.
func OrTimeout(err error) error {
	if err == nil {
		return ErrTimeout
	}
	return err
}

// waitInitialProbe waits for the first probe of every node, for a second at most, which enlists new nodes unless
// they are enlisted on demand. Only the first callers wait.
func (s *Set) waitInitialProbe(ctx context.Context) error {
	if s.recovery.probes.Load() > 0 {
		return nil
	}
	s.RepairNodes(ctx, !s.Opts.OnDemand)
	return ctx.Err()
}

// RepairNodes probes the nodes and repairs those in need. Nodes without a record are enlisted if enlist is true. A
// caller that had to wait for another's probe does not probe again. acted reports that a node was, or may have been,
// repaired, so that asking the nodes again may help.
func (s *Set) RepairNodes(ctx context.Context, enlist bool) (acted bool) {
	seen := s.recovery.probes.Load()
	if s.recovery.begin(ctx) != nil {
		return false
	}
	defer s.recovery.end()
	if s.recovery.probes.Load() != seen {
		return true
	}
	timeout := s.probeTimeout()
	if seen == 0 {
		timeout = max(timeout, initialProbeTimeout)
	}
	began := s.Clock()
	votes, err := s.probeRecords(ctx, timeout, enlist)
	if err != nil {
		return false
	}
	actions := s.planRepairs(votes, enlist)
	if needsFloor(actions) || s.mayEnlistSome(actions, began) {
		// Fences are read after the quarantine was seen to be over, never before.
		before := votes
		began = s.Clock()
		if votes, err = s.probe(ctx, timeout); err != nil {
			return false
		}
		actions = slices.DeleteFunc(s.planRepairs(votes, enlist), func(a repairAction) bool {
			return a.script == scripts.Restore && votes[a.node].Quarantine != before[a.node].Quarantine
		})
		if s.mayEnlistSome(actions, began) {
			actions = nil
		}
	}
	if len(actions) > 0 {
		repairs := s.runRepairs(ctx, actions)
		if votes, err = s.probe(ctx, timeout); err != nil {
			return false
		}
		addRefusals(votes, repairs)
	}
	s.noteRecords(votes)
	s.noteEmptied(votes)
	s.recordStatus(votes)
	s.recovery.probes.Add(1)
	return len(actions) > 0
}

func (s *Set) probeTimeout() time.Duration { return max(minProbeTimeout, s.Opts.fixedTimeout()) }

// probeRecords is probe, but asks nodes that are not to be enlisted, and had no record, only whether they have one
// now: an unused node may be the clients' own server, on which they should see no scripts.
func (s *Set) probeRecords(ctx context.Context, timeout time.Duration, enlist bool) ([]vote.Vote, error) {
	if !enlist && !s.recovery.recorded {
		command := []string{"HLEN", s.Opts.Prefix + "node"}
		votes, err := s.askAllNodes(ctx, func(int) []string { return command }, parseRecord, timeout)
		if err != nil || vote.CountKind(votes, vote.Yes) == 0 {
			return votes, err
		}
	}
	return s.probe(ctx, timeout)
}

// parseRecord reads how many fields a node record has.
func parseRecord(m []rueidis.RedisMessage) (vote.Vote, error) {
	var fields int64
	if err := vote.ReadInts(m, &fields); err != nil || fields > 0 {
		return vote.Vote{Kind: vote.Yes}, err
	}
	return vote.Vote{Code: vote.NoRecord, Err: vote.ErrNoRecord}, nil
}

// noteRecords notes which nodes have a record. The caller has the turn.
func (s *Set) noteRecords(votes []vote.Vote) {
	s.recovery.recorded = recorded(votes, s.recovery.recorded)
	for i := range votes {
		s.recovery.had[i] = s.recovery.had[i] || hasRecord(&votes[i])
	}
}

// recorded reports whether some node has a record, or, where none answers, what was known before.
func recorded(votes []vote.Vote, before bool) bool {
	used := before
	for i := range votes {
		switch v := &votes[i]; {
		case hasRecord(v):
			return true
		case v.Code == vote.NoRecord:
			used = false
		}
	}
	return used
}

// hasRecord reports whether the node that answered v has a record.
func hasRecord(v *vote.Vote) bool {
	return v.Kind == vote.Yes || v.Code != 0 && v.Code != vote.NoRecord
}

// probe asks every node for its state, and one that refused something whether it would again.
func (s *Set) probe(ctx context.Context, timeout time.Duration) ([]vote.Vote, error) {
	refusals := make([]int64, len(s.Members))
	votes, err := s.askAllNodes(ctx, func(i int) []string {
		var what []string
		if refusals[i] = s.Members[i].refusals.Load(); refusals[i] > 0 {
			what = []string{"all"}
		}
		return s.Command(scripts.State, nodekeys.OfNode(s.Opts.Prefix), what...)
	}, vote.ParseState, timeout)
	for i := range votes {
		s.Members[i].clearRefusals(refusals[i], &votes[i])
	}
	return votes, err
}

func (s *Set) askAllNodes(ctx context.Context, command func(node int) []string, p vote.Parse, timeout time.Duration) ([]vote.Vote, error) {
	s.startTracking()
	r := s.AskEach(askState, WaitForAll, func(i int) *ScriptCall {
		return &ScriptCall{Args: command(i), Parse: p, Expires: s.Clock() + timeout, probe: true}
	})
	err := r.WaitFor(ctx, timeout)
	return s.CloseAnswered(r, true, err), err
}

// WaitForAll is the enough of a round that waits for every vote.
func WaitForAll([]vote.Vote) bool { return false }

// RequestProbe asks Run for a probe now, for a caller that needs votes.
func (s *Set) RequestProbe() {
	select {
	case s.probeNow <- struct{}{}:
	default:
	}
}
