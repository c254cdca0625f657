// Package membership changes the list of lock nodes under running proxies.
//
// Two lists that follow each other differ by one node, so that their majorities overlap and proxies of both may run side by side. A
// node keeps the list, and the one to come, and gives no votes to proxies with any other. Majorities of lists that are two changes apart
// need not overlap. So a change begins when the leases of before the last one are over: when as much time has passed as a lease
// may last at most, or as the longest of those had left that a majority told of, after the last change had ended. Fences are told
// to the next list before a proxy may use it.
//
// Source: RULES.md, Changing the node set. Model: integration/model/members. The scripts are change.lua and register.lua.
package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	// unseenFor is for how long proxies with the list before must not have been heard of before a change is finished. Each says every
	// second that it is there. One that comes back later gets no votes.
	unseenFor = 10 * time.Second
	readAgain = 10 * time.Second // for how long leases run, if that was longer
	pageTries = 3
)

// A NotYetError reports what a change of the lock nodes has to wait for. Nothing is wrong: the same call,
// repeated later, goes on where this one ended.
type NotYetError struct{ Why string }

func (e *NotYetError) Error() string { return e.Why }

// A Change takes the proxies from one list of lock nodes to another that has one node more
// or one less. It has two halves, between which an
// operator restarts the proxies, one by one, with the list To:
//
//	From ──Open──▶ From and To ──Finish──▶ To
//
// Each may be called again, also by another process, and goes on where the last one ended.
// What it needs to know is on the nodes.
type Change struct {
	Options  voters.Options // Nodes is not used
	From, To []*backends.Server
	Dead     *backends.Server // one of From that need not vote, since it is to leave; nil: none
	Progress func(string)     // takes a line of progress for the operator; called from Open and Finish
}

// Open makes the nodes accept proxies of both lists. Before that, leases from before the last change must be over, a
// new node is enlisted, and the largest fence of a majority of From is stored on To. Until then no proxy with the list To gets votes.
func (c Change) Open(ctx context.Context) error { return c.run(ctx, (*change).open) }

// Finish makes the nodes accept proxies of the list To only. While a proxy with the list From has called a moment ago, it returns a
// NotYetError.
func (c Change) Finish(ctx context.Context) error { return c.run(ctx, (*change).finish) }

// Begun reports whether the nodes are at some step of this change: they have the list From,
// so that it can begin, or both lists, or the list To already.
func (c Change) Begun(ctx context.Context) (bool, error) {
	err := c.run(ctx, func(*change, context.Context) error { return nil })
	return err == nil, err
}

func (c Change) run(ctx context.Context, do func(*change, context.Context) error) (err error) {
	if d := len(c.From) - len(c.To); d != 1 && d != -1 || len(c.From) == 0 || len(c.To) == 0 {
		return fmt.Errorf("a change from %d lock nodes to %d is not one node more or less", len(c.From), len(c.To))
	}
	o := c.Options
	o.Nodes = c.To
	if len(c.From) > len(c.To) {
		o.Nodes = c.From
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	list := func(nodes []*backends.Server) vote.NodeList {
		return vote.NewList(nodes, voters.GraceOf(len(nodes), o.RestartGrace))
	}
	s := &change{Change: c, from: list(c.From), to: list(c.To)}
	if s.set, err = voters.New(o); err != nil {
		return err
	}
	s.set.SpeakFor(s.to) // register.lua gives it to a new node; change.lua does not take it for a proxy that uses this list
	defer func() { err = errors.Join(err, s.set.Close(time.Second)) }()
	if err := s.readStep(ctx); err != nil {
		return err
	}
	return do(s, ctx)
}

// change is a Change under way.
type change struct {
	Change
	set      *voters.Set // of the nodes of both lists
	from, to vote.NodeList
	members  []member // by node of set
	epoch    int64
	step     step
}

type step uint8

const (
	notBegun step = iota
	opened
	finished
)

// readStep reads which step the change has come to.
func (c *change) readStep(ctx context.Context) error {
	c.members = make([]member, len(c.set.Members))
	votes, err := c.set.AskNodes(ctx, scripts.Change, func(i int) vote.Parse { return c.members[i].parse }, func(int) []string { return []string{"look"} })
	if err != nil {
		return err
	}
	members, strict := 0, false
	for i := range votes {
		m := &c.members[i]
		if votes[i].Kind != vote.Yes {
			m.err, m.empty = c.set.Members[i].Name(voters.OrTimeout(votes[i].Err)), votes[i].Unregistered()
			continue
		}
		at, ok := c.stepOf(m.record)
		if !ok {
			return c.set.Members[i].Name(fmt.Errorf("is one of other lock nodes (%s); to use it in this list, empty it with FLUSHALL", strings.Join(strings.Fields(m.record["list"]+" "+m.record["nextlist"]), " ")))
		}
		strict = strict || strings.Contains(m.record["word"], " "+voters.GraceSafe+" ")
		if !c.in(i, c.From) {
			continue // a new node learns both lists when it is enlisted, so its record says nothing of the step
		}
		members++
		if e := m.epoch(); e > c.epoch || e == c.epoch && at > c.step {
			c.epoch, c.step = e, at
		}
	}
	if strict && c.step != finished {
		c.from, c.to = vote.NewList(c.From, voters.GraceSafe), vote.NewList(c.To, voters.GraceSafe)
	}
	if members < majority(c.From) {
		return c.missing("know their set", c.From, (*member).answered)
	}
	return nil
}

// stepOf is how far the change has come on a node.
func (c *change) stepOf(record map[string]string) (step, bool) {
	now, next := vote.NodeList{Fingerprint: record["word"]}, vote.NodeList{Fingerprint: record["next"]}
	switch {
	case now.Same(c.from) && next.Fingerprint == "":
		return notBegun, true
	case now.Same(c.from) && next.Same(c.to):
		return opened, true
	case now.Same(c.to) && next.Fingerprint == "":
		return finished, true
	}
	return 0, false
}

func majority(nodes []*backends.Server) int { return len(nodes)/2 + 1 }

// in reports whether the node is on a list.
func (c *change) in(i int, list []*backends.Server) bool {
	return slices.ContainsFunc(list, func(s *backends.Server) bool { return s.ID() == c.set.Members[i].Server.ID() })
}

// missing is an error that names the nodes of a list for which fits is false. It is a NotYetError if that may change by itself.
func (c *change) missing(what string, list []*backends.Server, fits func(*member) bool) error {
	var errs []error
	n := 0
	for i := range c.members {
		switch m := &c.members[i]; {
		case !c.in(i, list):
		case fits(m):
			n++
		case m.err != nil:
			errs = append(errs, m.err)
		default:
			errs = append(errs, c.set.Members[i].Name(errors.New("does not vote")))
		}
	}
	return notYet(fmt.Sprintf("only %d of %d lock nodes %s: ", n, len(list), what), errs...)
}

// notYet is a NotYetError of what nodes said, or, where one of them does not let us in, an error: waiting does not help.
func notYet(what string, said ...error) error {
	for i, err := range said {
		if i > 0 {
			what += ", "
		}
		what += err.Error()
	}
	if slices.ContainsFunc(said, vote.DeniesAccess) {
		return errors.New(what + ". Waiting does not help: see to the user and the password in the URL, and to what the user may do (ACL)")
	}
	return &NotYetError{what}
}

func (c *change) open(ctx context.Context) error {
	if c.step == finished {
		c.Progress("The lock nodes have the new list already.")
		return nil
	}
	if c.step == notBegun {
		if err := c.ready(ctx); err != nil {
			return err
		}
	}
	to := &vote.NodeSet{Epoch: c.epoch, Now: c.from, Next: c.to}
	if c.step == notBegun {
		to.Epoch++
	}
	if err := c.setNodes(ctx, to); err != nil {
		return err
	}
	c.Progress("Proxies with either list get votes now. Restart them one by one with this one: " + c.to.Names)
	c.Progress("When the last one has it, finish with --finish.")
	return nil
}

// ready prepares the nodes for proxies with the list To. It is an error until they are prepared.
func (c *change) ready(ctx context.Context) error {
	for i := range c.members {
		dead := c.Dead != nil && c.set.Members[i].Server.ID() == c.Dead.ID()
		if c.in(i, c.From) && !dead && !c.members[i].voting() {
			return c.missing("vote, and all must before the list is changed", c.From, (*member).voting)
		}
	}
	if _, err := c.floor(c.From); err != nil {
		return err
	}
	if err := c.waitForLeases(ctx); err != nil {
		return err
	}
	for i := range c.members {
		if m := &c.members[i]; !c.in(i, c.From) && (m.empty || m.answered() && !m.votes) {
			if err := c.admit(ctx, i); err != nil {
				return err
			}
		}
	}
	if err := c.readStep(ctx); err != nil {
		return err
	}
	for i := range c.members {
		if m := &c.members[i]; !c.in(i, c.From) && !m.voting() {
			return c.missing("vote", c.To, (*member).voting)
		}
	}
	return c.raiseFloors(ctx, c.From)
}

// admit enlists a new node, which votes at once: leases that it may have known when it was on an older list are over, and its floor is raised
// before a proxy counts on it.
func (c *change) admit(ctx context.Context, i int) error {
	set := &vote.NodeSet{Epoch: c.epoch, Now: c.from, Next: c.to}
	v, err := c.askOne(ctx, i, scripts.Register, vote.ParseRepair, append([]string{"force", "0", ""}, set.Args()...)...)
	if err != nil {
		return err
	}
	if v.Kind != vote.Yes {
		return notYet("", c.set.Members[i].Name(voters.OrTimeout(v.Err)))
	}
	c.Progress(c.set.Members[i].Server.String() + " is enlisted.")
	return nil
}

// askOne asks one node.
func (c *change) askOne(ctx context.Context, i int, sc *scripts.Script, p vote.Parse, args ...string) (vote.Vote, error) {
	votes, err := c.set.AskNodes(ctx, sc, func(int) vote.Parse { return p }, func(j int) []string {
		if i == j {
			return args
		}
		return nil
	})
	return votes[i], err
}

// only are the args for a node on the list, nil for another.
func (c *change) only(i int, list []*backends.Server, args ...string) []string {
	if c.in(i, list) {
		return args
	}
	return nil
}

func ignored(int) vote.Parse { return new(member).parse }

// floor is the largest fence that the voting nodes of a list know; it is an error if they are no majority.
func (c *change) floor(list []*backends.Server) (fence int64, err error) {
	n := 0
	for i := range c.members {
		if m := &c.members[i]; c.in(i, list) && m.voting() {
			fence = max(fence, m.largest)
			n++
		}
	}
	if n < majority(list) {
		err = c.missing("vote", list, (*member).voting)
	}
	return fence, err
}

// raiseFloors raises the floors of the nodes of To to the largest fence of a majority of list.
func (c *change) raiseFloors(ctx context.Context, list []*backends.Server) error {
	floor, err := c.floor(list)
	if err != nil {
		return err
	}
	votes, err := c.set.AskNodes(ctx, scripts.Change, ignored, func(i int) []string {
		return c.only(i, c.To, "floor", strconv.FormatInt(floor, 10))
	})
	if err != nil {
		return err
	}
	return c.requireMajority("know the fences", votes, c.To)
}

// setNodes gives all nodes their set; a majority of both lists must take it.
func (c *change) setNodes(ctx context.Context, set *vote.NodeSet) error {
	votes, err := c.set.AskNodes(ctx, scripts.Change, ignored, func(int) []string { return append([]string{"set"}, set.Args()...) })
	if err != nil {
		return err
	}
	if err := c.requireMajority("took the change", votes, c.From); err != nil {
		return err
	}
	return c.requireMajority("took the change", votes, c.To)
}

// requireMajority is an error unless a majority of a list took what it was asked to.
func (c *change) requireMajority(what string, votes []vote.Vote, list []*backends.Server) error {
	n := 0
	for i := range c.members {
		m := &c.members[i]
		switch {
		case !c.in(i, list):
		case votes[i].Kind == vote.Yes:
			n++
		case m.answered():
			err := votes[i].Err
			if votes[i].Kind == vote.No {
				err = errors.New("knows of another change")
			}
			m.err = c.set.Members[i].Name(voters.OrTimeout(err))
		}
	}
	if n >= majority(list) {
		return nil
	}
	return c.missing(what, list, (*member).answered)
}

func (c *change) finish(ctx context.Context) error {
	switch c.step {
	case notBegun:
		return errors.New("the change has not begun: call it without --finish first")
	case opened:
		if err := c.unused(); err != nil {
			return err
		}
		if err := c.raiseFloors(ctx, c.To); err != nil {
			return err
		}
		c.epoch++
	}
	if err := c.setNodes(ctx, &vote.NodeSet{Epoch: c.epoch, Now: c.to}); err != nil {
		return err
	}
	c.Progress("Done. The lock nodes are: " + c.to.Names)
	if err := c.noteLeases(ctx, c.To); err != nil { // the next change asks again
		c.set.Opts.Log.LogAttrs(ctx, slog.LevelDebug, "leases from before the change not read", slog.Any("error", err))
	}
	return nil
}

// unused is a NotYetError while a proxy with the list From may be in use.
func (c *change) unused() error {
	for i := range c.members {
		m := &c.members[i]
		if m.err != nil || !c.in(i, c.From) {
			continue
		}
		need := min(m.maxTTL, unseenFor) + time.Second
		if ago, ok := m.lastSeen(c.from); ok && ago < need {
			return &NotYetError{fmt.Sprintf("a proxy with the list before (%s) was heard of %v ago at %s; restart it with the new list. When none was for %v, the change can be finished",
				c.from.Names, ago.Round(100*time.Millisecond), c.set.Members[i].Server, need)}
		}
	}
	return nil
}
