package voters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/scripts"
)

// A NotYetError reports what a change of the lock nodes has to wait for. Nothing is wrong: the same call,
// repeated later, goes on where this one ended.
type NotYetError struct{ Why string }

func (e *NotYetError) Error() string { return e.Why }

// A Change takes the proxies from one list of lock nodes to another that has one node more
// or one less. Majorities of the two overlap, so proxies of both may run side by side
// while it lasts; everybody else gets no votes. It has two halves, between which an
// operator restarts the proxies, one by one, with the list To:
//
//	From ──Open──▶ From and To ──Finish──▶ To
//
// Each may be called again, also by another process, and goes on where the last one ended.
// What it needs to know is on the nodes.
type Change struct {
	Options  Options // Nodes is not used
	From, To []*backends.Server
	Dead     *backends.Server // one of From that need not vote, since it is to leave; nil: none
	Progress func(string)     // takes a line of progress for the operator; called from Open and Finish
}

// change is a Change under way.
type change struct {
	Change
	set      *Set // of the nodes of both lists
	from, to NodeList
	members  []memberRecord // by node of set
	epoch    int64
	step     changeStep
}

type changeStep uint8

const (
	changeNotBegun changeStep = iota
	changeOpen
	changeFinished
)

// A memberRecord is what one node's record tells of its set.
type memberRecord struct {
	err     error // of a node that did not answer, or has no record
	empty   bool  // it has no record
	votes   bool
	largest int64
	maxTTL  time.Duration
	since   time.Duration // the last change
	now     int64         // ms, by its clock
	record  map[string]string
}

func (m *memberRecord) answered() bool { return m.err == nil }
func (m *memberRecord) voting() bool   { return m.err == nil && m.votes }

func parseMember(dst *memberRecord) Parse {
	return func(m []rueidis.RedisMessage) (Vote, error) {
		var code, epoch, maxTTL, votes, since int64
		if err := readInts(m, &code, &epoch); err != nil || code == 0 {
			return Vote{Kind: No}, err
		}
		if err := readInts(m, &code, &dst.largest, &maxTTL, &votes, &since, &dst.now); err != nil {
			return Vote{}, err
		}
		dst.maxTTL, dst.since, dst.votes, dst.record = millis(maxTTL), millis(since), votes == 1, map[string]string{}
		for m = m[6:]; len(m) >= 2; m = m[2:] {
			var k, v string
			if err := firstError(ReadText(m[0], &k), ReadText(m[1], &v)); err != nil {
				return Vote{}, err
			}
			dst.record[k] = v
		}
		if dst.votes {
			return Vote{Kind: Yes}, CheckFence(dst.largest)
		}
		return Vote{Kind: Yes}, checkFenceOrNone(dst.largest)
	}
}

// Open makes the nodes accept proxies of both lists. Before that, max-ttl must have passed since the last change, a
// new node sits out a quarantine and gets its fence floor, like a node that forgot, and the largest fence of a
// majority of From is stored on To. Until then no proxy with the list To gets votes.
func (c Change) Open(ctx context.Context) error { return c.run(ctx, (*change).open) }

// Finish makes the nodes accept proxies of the list To only. While a proxy with the list From has called within
// max-ttl, it returns a NotYetError.
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
	s := &change{Change: c, from: newList(c.From, graceOf(len(c.From), o.RestartGrace)), to: newList(c.To, graceOf(len(c.To), o.RestartGrace))}
	if s.set, err = New(o); err != nil {
		return err
	}
	s.set.commonArgs[3] = s.to.Fingerprint // register.lua gives it to a new node; change.lua does not take it for a proxy that uses this list
	defer func() { err = errors.Join(err, s.set.Close(time.Second)) }()
	if err := s.readStep(ctx); err != nil {
		return err
	}
	return do(s, ctx)
}

// askEach asks the nodes whose args are not nil, and returns the votes.
func (c *change) askEach(ctx context.Context, sc *scripts.Script, read func(i int) Parse, args func(i int) []string) ([]Vote, error) {
	c.set.startTracking()
	r := c.set.AskEach(askRepair, All, func(i int) *ScriptCall {
		a := args(i)
		if a == nil {
			return nil
		}
		return &ScriptCall{Args: c.set.Command(sc, nodekeys.OfNode(c.set.Opts.Prefix), a...), Parse: read(i), Expires: c.set.Clock() + initialProbeTimeout, probe: true}
	})
	err := r.WaitFor(ctx, initialProbeTimeout)
	return r.Close(true, nil), err
}

// readStep reads which step the change has come to.
func (c *change) readStep(ctx context.Context) error {
	c.members = make([]memberRecord, len(c.set.Members))
	votes, err := c.askEach(ctx, scripts.Change, func(i int) Parse { return parseMember(&c.members[i]) }, func(int) []string { return []string{"look"} })
	if err != nil {
		return err
	}
	members, strict := 0, false
	for i := range votes {
		m := &c.members[i]
		if votes[i].Kind != Yes {
			m.err, m.empty = c.set.Members[i].Name(OrTimeout(votes[i].Err)), votes[i].Code == unregistered && !votes[i].olderFormat
			continue
		}
		step, ok := c.stepOf(m.record)
		if !ok {
			return c.set.Members[i].Name(fmt.Errorf("is one of other lock nodes (%s); to use it in this list, empty it with FLUSHALL", strings.Join(strings.Fields(m.record["list"]+" "+m.record["nextlist"]), " ")))
		}
		strict = strict || strings.Contains(m.record["word"], " "+GraceSafe+" ")
		if !c.in(i, c.From) {
			continue // a new node learns both lists when it is enlisted, so its record says nothing of the step
		}
		members++
		if e, _ := strconv.ParseInt(m.record["epoch"], 10, 64); e > c.epoch || e == c.epoch && step > c.step {
			c.epoch, c.step = e, step
		}
	}
	if strict && c.step != changeFinished {
		c.from, c.to = newList(c.From, GraceSafe), newList(c.To, GraceSafe)
	}
	if members < majority(c.From) {
		return c.missing("know their set", c.From, (*memberRecord).answered)
	}
	return nil
}

// stepOf is how far the change has come on a node.
func (c *change) stepOf(record map[string]string) (changeStep, bool) {
	now, next := NodeList{Fingerprint: record["word"]}, NodeList{Fingerprint: record["next"]}
	switch {
	case now.same(c.from) && next.Fingerprint == "":
		return changeNotBegun, true
	case now.same(c.from) && next.same(c.to):
		return changeOpen, true
	case now.same(c.to) && next.Fingerprint == "":
		return changeFinished, true
	}
	return 0, false
}

// same reports whether two lists name the same nodes. prologue.lua has the same function.
func (l NodeList) same(m NodeList) bool {
	a, b := strings.Fields(l.Fingerprint), strings.Fields(m.Fingerprint)
	return len(a) == 3 && len(b) == 3 && a[0] == b[0] && a[2] == b[2]
}

func majority(nodes []*backends.Server) int { return len(nodes)/2 + 1 }

// in reports whether the node is on a list.
func (c *change) in(i int, list []*backends.Server) bool {
	return slices.ContainsFunc(list, func(s *backends.Server) bool { return s.ID() == c.set.Members[i].Server.ID() })
}

// missing is a NotYetError that names the nodes of a list for which fits is false.
func (c *change) missing(what string, list []*backends.Server, fits func(*memberRecord) bool) error {
	var errs []string
	n := 0
	for i := range c.members {
		switch m := &c.members[i]; {
		case !c.in(i, list):
		case fits(m):
			n++
		case m.err != nil:
			errs = append(errs, m.err.Error())
		default:
			errs = append(errs, c.set.Members[i].Name(errors.New("does not vote")).Error())
		}
	}
	return &NotYetError{fmt.Sprintf("only %d of %d lock nodes %s: %s", n, len(list), what, strings.Join(errs, ", "))}
}

// floors are the largest fence and the longest max-ttl that the voting nodes of a list know; it is an error if
// they are no majority.
func (c *change) floors(list []*backends.Server) (fence int64, longest time.Duration, err error) {
	n := 0
	for i := range c.members {
		if m := &c.members[i]; c.in(i, list) && m.voting() {
			fence, longest = max(fence, m.largest), max(longest, m.maxTTL)
			n++
		}
	}
	if n < majority(list) {
		err = c.missing("vote", list, (*memberRecord).voting)
	}
	return fence, longest, err
}

func (c *change) open(ctx context.Context) error {
	if c.step == changeFinished {
		c.Progress("The lock nodes have the new list already.")
		return nil
	}
	if c.step == changeNotBegun {
		if err := c.ready(ctx); err != nil {
			return err
		}
	}
	to := &nodeSet{epoch: c.epoch, now: c.from, next: c.to}
	if c.step == changeNotBegun {
		to.epoch++
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
		m := &c.members[i]
		dead := c.Dead != nil && c.set.Members[i].Server.ID() == c.Dead.ID()
		if c.in(i, c.From) && !dead && !m.voting() {
			return c.missing("vote, and all must before the list is changed", c.From, (*memberRecord).voting)
		}
		if c.in(i, c.From) && m.answered() && m.since < m.maxTTL {
			return &NotYetError{fmt.Sprintf("the list was changed %v ago; leases from before that are over in %v", m.since.Round(time.Second), (m.maxTTL - m.since).Round(time.Second))}
		}
	}
	if _, _, err := c.floors(c.From); err != nil {
		return err
	}
	for i := range c.members {
		if !c.in(i, c.From) {
			if err := c.admit(ctx, i); err != nil {
				return err
			}
		}
	}
	return c.raiseFloors(ctx, c.From)
}

// admit enlists a new node, which sits out a quarantine, and gives it its floor after that.
func (c *change) admit(ctx context.Context, i int) error {
	n, m := c.set.Members[i], &c.members[i]
	switch {
	case m.empty:
		set := &nodeSet{epoch: c.epoch, now: c.from, next: c.to}
		enlisted, err := c.askOne(ctx, i, scripts.Register, ParseRepair, registerArgs(&Vote{}, "forgot", set))
		if err != nil {
			return err
		}
		if enlisted.Code != Quarantined && enlisted.Kind != Yes {
			return n.Name(OrTimeout(enlisted.Err))
		}
		c.Progress(n.Server.String() + " is enlisted. It votes when it has sat out max-ttl, as a node that forgot.")
	case m.err != nil:
		return m.err
	case m.votes:
		return nil
	}
	before, err := c.askOne(ctx, i, scripts.State, ParseState, []string{})
	switch {
	case err != nil:
		return err
	case before.Kind == Yes:
		return nil
	case before.Code != Floorless:
		return &NotYetError{n.Name(before.Err).Error() + "; then go on"}
	}
	if err := c.readStep(ctx); err != nil { // fences are read after the quarantine
		return err
	}
	floor, longest, err := c.floors(c.From)
	if err != nil {
		return err
	}
	after, err := c.askOne(ctx, i, scripts.Restore, ParseRepair, []string{strconv.FormatInt(floor, 10), before.quarantine, MS(longest)})
	if err != nil {
		return err
	}
	if after.Kind != Yes {
		return &NotYetError{n.Name(OrTimeout(after.Err)).Error()}
	}
	c.Progress(n.Server.String() + " votes.")
	return nil
}

// askOne asks one node.
func (c *change) askOne(ctx context.Context, i int, sc *scripts.Script, p Parse, args []string) (Vote, error) {
	votes, err := c.askEach(ctx, sc, func(int) Parse { return p }, func(j int) []string {
		if i == j {
			return args
		}
		return nil
	})
	return votes[i], err
}

// raiseFloors raises the floors of the nodes of To to the largest fence of a majority of list.
func (c *change) raiseFloors(ctx context.Context, list []*backends.Server) error {
	floor, _, err := c.floors(list)
	if err != nil {
		return err
	}
	votes, err := c.askEach(ctx, scripts.Change, func(int) Parse { return parseMember(new(memberRecord)) }, func(i int) []string {
		if c.in(i, c.To) {
			return []string{"floor", strconv.FormatInt(floor, 10)}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.requireMajority("know the fences", votes, c.To)
}

// setNodes gives all nodes their set; a majority of both lists must take it.
func (c *change) setNodes(ctx context.Context, set *nodeSet) error {
	votes, err := c.askEach(ctx, scripts.Change, func(int) Parse { return parseMember(new(memberRecord)) }, func(int) []string {
		return append([]string{"set"}, set.args()...)
	})
	if err != nil {
		return err
	}
	if err := c.requireMajority("took the change", votes, c.From); err != nil {
		return err
	}
	return c.requireMajority("took the change", votes, c.To)
}

// requireMajority is an error unless a majority of a list took what it was asked to.
func (c *change) requireMajority(what string, votes []Vote, list []*backends.Server) error {
	n := 0
	for i := range c.members {
		m := &c.members[i]
		switch {
		case !c.in(i, list):
		case votes[i].Kind == Yes:
			n++
		case m.answered():
			err := votes[i].Err
			if votes[i].Kind == No {
				err = errors.New("knows of another change")
			}
			m.err = c.set.Members[i].Name(OrTimeout(err))
		}
	}
	if n >= majority(list) {
		return nil
	}
	return c.missing(what, list, (*memberRecord).answered)
}

func (c *change) finish(ctx context.Context) error {
	switch c.step {
	case changeNotBegun:
		return errors.New("the change has not begun: call it without --finish first")
	case changeOpen:
		if err := c.unused(); err != nil {
			return err
		}
		if err := c.raiseFloors(ctx, c.To); err != nil {
			return err
		}
		c.epoch++
	}
	if err := c.setNodes(ctx, &nodeSet{epoch: c.epoch, now: c.to}); err != nil {
		return err
	}
	c.Progress("Done. The lock nodes are: " + c.to.Names)
	return nil
}

// unused is a NotYetError while a proxy with the list From may still have leases.
func (c *change) unused() error {
	for i := range c.members {
		m := &c.members[i]
		if m.err != nil || !c.in(i, c.From) {
			continue
		}
		for field, at := range m.record {
			ttl, word, _ := strings.Cut(strings.TrimPrefix(field, "m"), " ")
			last, err := strconv.ParseInt(at, 10, 64)
			longest, err2 := strconv.ParseInt(ttl, 10, 64)
			if err != nil || err2 != nil || !(NodeList{Fingerprint: word}).same(c.from) {
				continue
			}
			ago, need := millis(m.now-last), millis(longest)+time.Second
			if ago < need {
				return &NotYetError{fmt.Sprintf("a proxy with the list before (%s) was heard of %v ago at %s; restart it with the new list. When none was for %v, the change can be finished",
					c.from.Names, ago.Round(100*time.Millisecond), c.set.Members[i].Server, need)}
			}
		}
	}
	return nil
}
