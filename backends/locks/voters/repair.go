package voters

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	// A node without a record next to nodes that have one has forgotten, unless
	// another proxy is enlisting it at this moment. Where this proxy has seen its record before, it need not wait.
	missingTimeout = 500 * time.Millisecond
	// Where no node that answers has a record, some may still be starting.
	startTimeout = 10 * time.Second
	// A node is enlisted as new within a second of its answer (register.lua). Half of that may have passed when it is asked to.
	enlistWithin = 500 * time.Millisecond
)

// missingFor is for how long each node has been seen without a record, or at least missingTimeout if it had one before. When others are first
// seen with one, it begins anew: another proxy may be enlisting all of them.
func (s *Set) missingFor(votes []vote.Vote) []time.Duration {
	now := s.Clock()
	out := make([]time.Duration, len(votes))
	if !s.recovery.recorded && recorded(votes, false) {
		clear(s.recovery.missing)
	}
	for i, v := range votes {
		m := &s.recovery.missing[i]
		if v.Code != vote.NoRecord {
			*m = 0
			continue
		}
		if *m == 0 {
			*m = now
		}
		if out[i] = now - *m; s.recovery.had[i] && s.Opts.grace() == GraceSafe {
			out[i] = max(out[i], missingTimeout)
		}
	}
	return out
}

// A repairAction is one script that one node needs.
type repairAction struct {
	node   int
	script *scripts.Script
	args   []string
}

// knowsRecords reports whether this proxy knows better than that nodes without a record are new.
func (s *Set) knowsRecords() bool {
	return slices.Contains(s.recovery.had, true) && s.Opts.grace() == GraceSafe
}

// planRepairs is what the nodes need after a probe. Nodes that had records since this proxy started are not new when they
// are all empty, but have forgotten together: who held a lock still counts on it. Source: RULES.md, Changing the node set, 7.
func (s *Set) planRepairs(votes []vote.Vote, enlist bool) []repairAction {
	o := s.Opts
	if s.knowsRecords() {
		o.Bootstrap = BootstrapStrict
	}
	actions := repairsFor(votes, s.missingFor(votes), s.Quorum, o, s.NodeList)
	return slices.DeleteFunc(actions, func(a repairAction) bool { return a.script == scripts.Register && !enlist })
}

// repairsFor is what nodes need, by one probe of all of them and by how long each has been seen
// without a record. ours is this proxy's list. If some node is in another set and no quorum is in
// this one, this proxy's list may be the wrong one: then it enlists and restores no node.
func repairsFor(votes []vote.Vote, missing []time.Duration, q int, o Options, ours vote.NodeList) []repairAction {
	c := conditionOf(votes, o.MaxTTL, ours)
	if c.others > 0 && c.voting < q {
		return nil
	}
	c.hasQuorum = c.voting >= q
	c.isNew = c.absent == len(votes) && o.Bootstrap == BootstrapAuto
	timeout := missingTimeout
	if c.absent == c.answered {
		timeout = startTimeout
	}
	var actions []repairAction
	for i := range votes {
		if script, args := c.repair(&votes[i], missing[i] >= timeout); script != nil {
			actions = append(actions, repairAction{i, script, args})
		}
	}
	return actions
}

// A condition is what a probe tells of the nodes together.
type condition struct {
	absent, answered, voting, others int // nodes without a record, that answer, that vote, and of other sets

	set           vote.NodeSet // the latest that a voting node is in, or this proxy's
	floor, maxTTL int64        // largest fence and longest max-ttl of the voting nodes
	longest       int64        // max-ttl that any node or this proxy has, ms

	hasQuorum bool
	isNew     bool // the set is
}

func conditionOf(votes []vote.Vote, maxTTL time.Duration, ours vote.NodeList) *condition {
	c := &condition{set: vote.NodeSet{Now: ours}, longest: maxTTL.Milliseconds()}
	for _, v := range votes {
		switch {
		case v.Unregistered():
			c.absent++
		case v.Code == vote.OtherSet:
			c.others++
		case v.Kind == vote.Yes:
			c.voting++
			if v.Set != nil && v.Set.Epoch >= c.set.Epoch {
				c.set = *v.Set
			}
			c.floor, c.maxTTL = max(c.floor, v.Fence), max(c.maxTTL, v.MaxTTL)
		}
		c.longest = max(c.longest, v.MaxTTL)
		if v.Kind != vote.Silent || v.Code != 0 {
			c.answered++
		}
	}
	return c
}

// repair is the script that a node needs which answered v, nil if it needs none. forgot reports that it has
// been without a record for so long that it must have forgotten it.
func (c *condition) repair(v *vote.Vote, forgot bool) (script *scripts.Script, args []string) {
	switch {
	case v.Code == vote.NoRecord && c.isNew:
		return scripts.Register, registerArgs(v, "new", &c.set)
	case v.Code == vote.NoRecord && (v.OlderFormat || forgot):
		return scripts.Register, registerArgs(v, "forgot", &c.set)
	case v.Set != nil && v.Set.Epoch < c.set.Epoch: // it was out of reach when the operator changed it
		return scripts.Change, append([]string{"set"}, c.set.Args()...)
	case v.Code == vote.Floorless && c.hasQuorum:
		return scripts.Restore, []string{fmt.Sprint(c.floor), v.Quarantine, fmt.Sprint(c.maxTTL)}
	case v.Code == vote.Floorless && v.Wait >= vote.FloorLimit(c.longest):
		return scripts.Restore, []string{"0", v.Quarantine, fmt.Sprint(c.longest)}
	}
	return nil, nil
}

// registerArgs are the arguments of register.lua for a node that answered v.
func registerArgs(v *vote.Vote, how string, set *vote.NodeSet) []string {
	return append([]string{how, fmt.Sprint(v.Wait), v.Replid}, set.Args()...)
}

// mayEnlistSome reports whether some of the nodes that are to be enlisted as new may refuse that, since their answers to a probe that
// began then are too old. The others, enlisted alone, would make them nodes that have forgotten, which do not vote for two minutes.
func (s *Set) mayEnlistSome(actions []repairAction, began time.Duration) bool {
	return s.Clock()-began > enlistWithin && slices.ContainsFunc(actions, func(a repairAction) bool {
		return a.script == scripts.Register && a.args[0] == "new"
	})
}

func needsFloor(actions []repairAction) bool {
	return slices.ContainsFunc(actions, func(a repairAction) bool { return a.script == scripts.Restore })
}

// runRepairs runs the actions and returns the votes; nodes without an action are silent.
func (s *Set) runRepairs(ctx context.Context, actions []repairAction) []vote.Vote {
	r := s.AskEach(askRepair, WaitForAll, func(i int) *ScriptCall {
		for _, a := range actions {
			if a.node == i {
				return &ScriptCall{
					Args: s.Command(a.script, nodekeys.OfNode(s.Opts.Prefix), a.args...), Parse: vote.ParseRepair,
					Expires: s.Clock() + s.probeTimeout(),
				}
			}
		}
		return nil
	})
	_ = r.WaitFor(ctx, s.probeTimeout()) // what was not done is planned again after the next probe
	votes := r.Close(true, nil)
	s.Ended(r, votes, vote.EndOf(nil, vote.CountKind(votes, vote.Yes) == len(actions)))
	return votes
}

// NeedsRepair reports whether a node abstains for something that RepairNodes may give it.
func NeedsRepair(votes []vote.Vote) bool {
	for _, v := range votes {
		if v.Code == vote.NoRecord || v.Code == vote.Floorless {
			return true
		}
	}
	return false
}
