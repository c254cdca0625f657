package lockcmd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// An explanation is the reply to LOCKCTL WHY.
type explanation struct {
	locks.Inspection
	noQuorum bool // too few nodes vote
	waiters  []locks.Waiter
	visible  func(owner string) string // an owner as the client may see it; empty: not at all
}

const maxShownWaiters = 20

// Explain is what LOCKCTL WHY replies, line by line, to somebody who may see every owner. err is that of the inspection.
func Explain(in locks.Inspection, waiters []locks.Waiter, err error) []string {
	all := func(owner string) string { return owner }
	return (&explanation{Inspection: in, noQuorum: err != nil, waiters: waiters, visible: all}).lines()
}

func (e *explanation) lines() (out []string) {
	out = append(out, e.holderLine())
	if e.Held && len(e.Readers) > 0 {
		out = append(out, "shared by "+e.readersLine())
	}
	if e.Held && len(e.Each) > 1 {
		out = append(out, "its holds: "+e.holdsLine())
	}
	switch mode, adopted := strings.CutPrefix(e.Holding.Info, "adopted "); {
	case !e.Held || e.Holding.Info == "":
	case adopted && strings.HasPrefix(e.Holding.Owner, locks.AdoptedPrefix):
		out = append(out, "taken with commands of Redis on an adopted key, mode="+mode)
	default:
		out = append(out, "its info: "+quoted(e.Holding.Info, true))
	}
	voting := 0
	for _, n := range e.Nodes {
		if n.Err == nil {
			voting++
		}
	}
	out = append(out, fmt.Sprintf("%d of %d nodes vote, %d must agree:", voting, len(e.Nodes), e.Need))
	for _, n := range e.Nodes {
		out = append(out, "  "+n.Address+": "+e.nodeLine(n))
	}
	out = append(out, e.waiterLines()...)
	return append(out, e.nextLine(e.Need-voting))
}

const maxShownHolds = 5

// holdsLine lists how old the owner's holds are and when they end by themselves. One that
// was forgotten is older than the others.
func (e *explanation) holdsLine() string {
	each := e.Each
	var all []string
	for _, h := range each[:min(len(each), maxShownHolds)] {
		all = append(all, "taken "+span(h.Taken)+" ago, "+span(h.Left)+" left")
	}
	if more := len(each) - maxShownHolds; more > 0 {
		all = append(all, fmt.Sprintf("and %d younger ones", more))
	}
	return strings.Join(all, "; ")
}

// holderLine says who holds the lock.
func (e *explanation) holderLine() string {
	name, h := quoted(e.Holding.Name, false), e.Holding
	if h.DB != 0 {
		name += " of database " + strconv.Itoa(h.DB)
	}
	switch {
	case e.noQuorum:
		return "whether " + name + " is held cannot be decided"
	case e.Held:
		holds := ""
		if h.Holds > 1 {
			holds = fmt.Sprintf(" %d times", h.Holds)
		}
		return fmt.Sprintf("%s is held%s by %s, fence %d, for %s; %d nodes agree", name, holds, e.owner(h.Owner), h.Fence, span(h.Held), h.Votes)
	case len(e.Readers) > 0:
		return name + " is shared by " + e.readersLine()
	case slices.ContainsFunc(e.Nodes, func(n locks.NodeView) bool { return n.Owner != "" || n.Readers > 0 }):
		return name + " is not held: some nodes name an owner, but no majority does"
	}
	return name + " is free"
}

const maxShownReaders = 10

// readersLine lists who reads the name or has a permit, those first who may have it for longest.
func (e *explanation) readersLine() string {
	var all []string
	for _, r := range e.Readers[:min(len(e.Readers), maxShownReaders)] {
		all = append(all, e.owner(r.Owner)+" for "+span(r.Remaining)+" at most")
	}
	if more := len(e.Readers) - maxShownReaders; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

func (e *explanation) owner(owner string) string {
	visible := e.visible(owner)
	switch shown, kind := locks.ShownOwner(visible); {
	case kind == locks.AdoptedString:
		return "the value " + quoted(shown, false) + " (adopted)"
	case kind == locks.AdoptedHash:
		return "the field " + quoted(shown, false) + " (adopted)"
	case kind == locks.AdoptedThread:
		return "the thread " + quoted(shown, false) + " (adopted)"
	case kind == locks.AdoptedSorted:
		return "the token " + quoted(shown, false) + " (adopted)"
	case visible != "":
		return quoted(shown, false)
	}
	return "an owner whom only admin users may see"
}

func (e *explanation) nodeLine(n locks.NodeView) string {
	switch {
	case n.State == locks.NodeRefusing && (n.Owner != "" || n.Readers > 0):
		return n.Standing() + "; there " + e.heldBy(n)
	case n.State == locks.NodeRefusing, n.State == locks.NodeDown:
		return n.Standing()
	case n.State == locks.NodeQuarantine && n.Copies:
		return "does not vote: it may have forgotten leases that still run, and first has to know what a majority of the others hold; it votes in seconds if these do, else in " + span(n.Left)
	case n.State == locks.NodeQuarantine:
		return "does not vote for another " + span(n.Left) + ": it may have forgotten leases that still run"
	case n.Err != nil:
		return "does not vote: " + locks.WhySilent(n.Err)
	case n.Owner == "" && n.Readers == 0:
		return "free"
	}
	return e.heldBy(n)
}

// heldBy says who holds the lock at a node, and how many share it.
func (e *explanation) heldBy(n locks.NodeView) string {
	shared := ""
	if n.Readers > 0 {
		shared = "shared by " + count(n.Readers, "owner", "owners")
	}
	if n.Owner == "" {
		return shared
	}
	if shared != "" {
		shared = ", " + shared
	}
	put := ""
	if n.Reinstated {
		put = ", put back by a renewal"
	}
	return fmt.Sprintf("held by %s, fence %d, %s left%s%s", e.owner(n.Owner), n.Fence, span(n.Remaining), put, shared)
}

// waiterLines list the waiters at this proxy.
func (e *explanation) waiterLines() (out []string) {
	if len(e.waiters) == 0 {
		return []string{"nobody waits for it at this proxy; who waits at others is not known here"}
	}
	out = append(out, count(len(e.waiters), "waits", "wait")+" for it at this proxy; who waits at others is not known here:")
	for i, w := range e.waiters[:min(len(e.waiters), maxShownWaiters)] {
		info := ""
		if w.Info != "" {
			info = ", its info: " + quoted(w.Info, true)
		}
		from := ""
		if shown := e.visible(w.Client); shown != "" {
			from = " at " + shown
		}
		toShare := ""
		if w.Permits > 0 {
			toShare = ", to take 1 of " + count(w.Permits, "permit", "permits")
		} else if w.Shared {
			toShare = ", to read"
		}
		out = append(out, fmt.Sprintf("  %d. %s%s%s, for %s, gives up in %s%s", i+1, e.owner(w.Owner), from, toShare, span(w.Waiting), span(w.Left), info))
	}
	return out
}

// nextLine says what happens next. missing is how many more nodes must vote.
func (e *explanation) nextLine(missing int) string {
	until := "NOQUORUM until " + count(missing, "more node votes", "more nodes vote")
	switch {
	case missing > 0 && e.Held:
		return "next: free in at most " + span(e.Holding.Remaining) + "; who renews or wants it is answered " + until
	case missing > 0:
		return "next: " + until + e.quarantineEnds(missing)
	case e.Held && e.Holding.Session:
		client := e.visible(e.Holding.Client)
		if client == "" {
			return "next: this proxy renews it while its client is connected"
		}
		return "next: this proxy renews it while its client at " + client + " is connected; CLIENT KILL ADDR " + client + " frees what that has"
	case e.Held && e.Holding.Open:
		return "next: it has no end; the proxies keep it until it is given back or given one, for max-hold at most, and for " + span(e.Holding.Remaining) + " if they all stop"
	case e.Held:
		return "next: free in at most " + span(e.Holding.Remaining) + ", unless its owner or the proxy of its SESSION renews it; at once when it is unlocked"
	case len(e.Readers) > 0:
		return "next: others may read it or take a permit that is left, unless a writer waits; free for a writer in at most " + span(e.Readers[0].Remaining) + ", unless a lease is renewed"
	case e.freeIn() > 0:
		return "next: those who tried take back what they have got; free in at most " + span(e.freeIn())
	case len(e.waiters) > 0:
		return "next: the first who waits is about to take it"
	}
	return "next: the first LOCK gets it"
}

// freeIn is the longest time until enough nodes are free.
func (e *explanation) freeIn() time.Duration {
	var left []time.Duration
	for _, n := range e.Nodes {
		if n.Err == nil {
			left = append(left, n.Remaining)
		}
	}
	if len(left) < e.Need {
		return 0
	}
	slices.Sort(left)
	return left[e.Need-1]
}

// quarantineEnds says when as many nodes as are missing will have ended their quarantines, or be in no doubt about the name.
// Without a quorum to read fences from, those in quarantine wait once more.
func (e *explanation) quarantineEnds(missing int) string {
	var left, doubts []time.Duration
	for _, n := range e.Nodes {
		switch {
		case n.State == locks.NodeQuarantine:
			left = append(left, n.Left)
		case n.Doubt > 0:
			doubts = append(doubts, n.Doubt)
		}
	}
	slices.Sort(left)
	slices.Sort(doubts)
	switch {
	case len(doubts) >= missing:
		return "; enough vote about this name when it has been unlocked or taken away by FORCE, or in " + span(doubts[missing-1])
	case len(left) < missing:
		return ""
	}
	return "; enough quarantines end in " + span(left[missing-1]) + ", and if no other node comes back these vote within a minute after that"
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// quoted is a text of a client: as it is if easily read, else in quotes, as is an empty one.
func quoted(s string, spaces bool) string {
	if q := strconv.QuoteToASCII(s); q != `"`+s+`"` || !spaces && strings.Contains(s, " ") || s == "" {
		return q
	}
	return s
}

// span formats a time for people.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// lateAnswer is how long a node that votes may take to answer before NODES warns of it, where node-timeout is not set: twice
// what a round waits for it.
const lateAnswer = 100 * time.Millisecond

// nodesHint is what nodes that are all new wait for, or a warning about what so many lock nodes cannot guarantee, or about those
// that vote too late to be of use; empty if there is none.
func nodesHint(all []locks.NodeStatus) string {
	n := len(all)
	switch {
	case n > 0 && all[0].Etcd:
		return ""
	case n > 0 && !slices.ContainsFunc(all, func(n locks.NodeStatus) bool { return n.State != locks.NodeNew }):
		return "all lock nodes are empty; with bootstrap strict they vote when lockproxy init has said that nobody has a lock"
	case n < 3:
		return "fewer than three lock nodes: no locks while one is down, and one that restarts without its data may grant a lease that still runs (see --restart-grace); use three or five"
	case n%2 == 0:
		return "an even number of lock nodes tolerates no more failures than one less"
	}
	var late []string
	limit := "50ms unless it is set,"
	for _, n := range all {
		if n.Timeout > 0 {
			limit = n.Timeout.String() + ","
		}
		if n.Ready() && n.Took >= cmp.Or(n.Timeout, lateAnswer) {
			late = append(late, fmt.Sprintf("%s took %v to answer", n.Address, n.Took.Round(time.Millisecond)))
		}
	}
	if late == nil {
		return ""
	}
	return strings.Join(late, ", ") + ": votes that come after node-timeout, " + limit + " do not count"
}
