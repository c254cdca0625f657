package main

import (
	"bytes"
	"fmt"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

const (
	nodes  = 3
	quorum = 2

	a      = 0 // the owners; in a record 1 more, as 0 is none
	r      = 1
	s      = 2
	b      = 3
	owners = 4

	fenceA = 1
	burnt  = 2 // what A's UNLOCK raises a counter to, at least
	floor  = 20
)

// proposals are above what was granted when their round began, as those of a clock are, and equal where clocks are.
var proposals = [owners]uint8{fenceA, 4, 4, 4}

// bits of node.unlock: what A's proxy was told
const (
	removed uint8 = 1 << iota // from a record that was granted
	put                       // from a record that a renewal put back
	none                      // not here, and no later fence was seen
	clear                     // there is no note of the grant
	late                      // the hold was given back before
)

// Rules are what proxies and nodes do about replacements.
type Rules struct {
	Notes     bool // a replacement is sent only after a quorum noted the grant that it replaces
	OnlyThere bool // a node without that grant does not grant, also if the name is free
	Exact     bool // a node drops no other grant
	Guard     bool // a renewal puts back no grant below the largest fence that the node has seen
	VotesOnly bool // nodes that forgot do not vote
	Once      bool // an UNLOCK that must not have been done before fails where a node says that the hold was given back
	Refuses   bool // a node with a note of the grant does not put it back
	Told      bool // where a vote of a RENEW says noted, records that a renewal put back do not count
	Marks     bool // the dropped hold is marked as given back
	NotesDrop bool // a node notes the grant that it drops, in the same step
	Bounds    bool // a RENEW must be answered before the validity ends that its proxy remembers
	InTime    bool // an UNLOCK that goes by what its proxy remembers is answered before that validity ends, by true time: drift is more than a round
}

func soundRules() Rules {
	return Rules{Notes: true, OnlyThere: true, Exact: true, Guard: true, VotesOnly: true, Once: true, Refuses: true, Told: true, Marks: true, Bounds: true, InTime: true, NotesDrop: true}
}

// Config bounds a search. Times are ticks; a tick is any wait.
type Config struct {
	Rules
	First      int // ttl of A's grant, and of its renewals
	Others     int // ttl of the other grants
	Drift      int
	Quarantine int
	Renewals   int  // of A
	Unlocks    bool // A may unlock
	UnlockOnce bool // and that must not have been done before
	Second     int  // what S replaces: 0: it does not come, 1 A's grant, 2 R's
	Rival      bool // B acquires
	Losses     int
	Late       bool // A's LOCK may still come to the node that lacks the grant; then P6 does not count
	Everywhere bool // A's grant is on all nodes
	Dup        bool // acquisitions may be executed repeatedly
	AtOnce     bool // notes are made in one step with the sending
}

// A node is one lock node, with the messages on their way to it.
type node struct {
	owner, fence, told, rem uint8 // told: a renewal put the record back
	counter, noted          uint8 // noted: the largest fence of a grant whose holder may not rely on its validity
	quarantine              uint8
	marked                  uint8         // a bit an owner: its hold was given back
	acquires, undoes, notes uint8         // may still arrive: a bit an owner
	vote                    [owners]uint8 // the fence that the owner's proxy has this node's yes with
	vnoted                  uint8         // a bit an owner: its proxy was told of the note
	renewals                uint8         // RENEWs that may still arrive: a bit each
	releases                uint8         // A's UNLOCK may still arrive
	rvote, rnoted, rtold    uint8         // on the RENEW under way
	unlock                  uint8
}

// The phases of an owner's LOCK.
const (
	before = iota
	noting
	asking
	holding
	over
)

// A locker is a client that takes the lock, with its proxy.
type locker struct{ phase, elapsed, told, fence, void uint8 }

// state is everything there is; it has no padding, so its bytes identify it.
type state struct {
	nodes   [nodes]node
	lockers [owners]locker

	memory                    uint8 // what A's proxy remembers of its validity
	renewing, renewed         uint8 // 1 + the RENEW under way; how many were asked for
	elapsed                   uint8 // since that was
	afterOther, lapsed        uint8 // it was asked for after another grant; when the lease had lapsed
	unlocking, asked, trusted uint8 // 1: under way, 2: over; asked for after another grant; by what is remembered
	last                      uint8 // the largest fence that was told
	gaveUp                    uint8 // A's grant was given up: to R, to S or by UNLOCK
	others                    uint8 // grants but A's
	losses                    uint8 // left
}

func (c *Config) initial() []state {
	st := state{memory: uint8(c.First - c.Drift), last: fenceA, losses: uint8(c.Losses)}
	st.lockers[a] = locker{phase: holding, told: st.memory, fence: fenceA}
	for k := range st.nodes {
		n := &st.nodes[k]
		if k > 0 || c.Everywhere {
			*n = node{owner: a + 1, fence: fenceA, counter: fenceA, rem: uint8(c.First)}
		} else if c.Late {
			n.acquires = 1 << a
		}
	}
	if c.Second == 0 {
		st.lockers[s].phase = over
	}
	if !c.Rival {
		st.lockers[b].phase = over
	}
	early := st
	for k := range early.nodes {
		if n := &early.nodes[k]; n.owner != 0 {
			n.rem -= uint8(c.Drift)
		}
	}
	return []state{st, early}
}

// target is whose grant an owner replaces; -1: it replaces none.
func (c *Config) target(who int) int {
	switch {
	case who == r, who == s && c.Second == 1:
		return a
	case who == s:
		return r
	}
	return -1
}

func (c *Config) canonical(st state) state {
	for k := range st.nodes {
		n := &st.nodes[k]
		for who := range n.vote {
			if st.lockers[who].phase != asking {
				n.vote[who] = 0
			}
			if st.lockers[who].phase != noting {
				n.vnoted &^= 1 << who
			}
			if st.lockers[who].phase == over && !c.Dup {
				n.undoes &^= n.undoes & (1 << who) &^ (n.acquires | bit(n.owner == uint8(who+1))<<who)
			}
		}
		if st.renewing == 0 {
			n.rvote, n.rnoted, n.rtold = 0, 0, 0
		}
		if st.unlocking != 1 {
			n.unlock = 0
		}
	}
	if st.renewing == 0 {
		st.elapsed, st.afterOther, st.lapsed = 0, 0, 0
	}
	if st.unlocking != 1 {
		st.asked, st.trusted = 0, 0
	}
	for i := 1; i < nodes; i++ {
		for j := i; j > 0 && bytes.Compare(explore.Bytes(&st.nodes[j]), explore.Bytes(&st.nodes[j-1])) < 0; j-- {
			st.nodes[j], st.nodes[j-1] = st.nodes[j-1], st.nodes[j]
		}
	}
	return st
}

func (n *node) free() { n.owner, n.fence, n.told, n.rem = 0, 0, 0, 0 }

func bit(is bool) uint8 {
	if is {
		return 1
	}
	return 0
}

// A step is one thing that may happen next; who is -1 where there is nobody.
type step struct {
	what string
	who  int
}

func describe(st *state, by *step) string {
	text := "start"
	if by != nil {
		text = by.what
		if by.who >= 0 {
			text += " of " + "ARSB"[by.who:by.who+1]
		}
	}
	text = fmt.Sprintf("%-40s memory %d |", text, st.memory)
	for who, l := range st.lockers {
		if l.told > 0 {
			text += fmt.Sprintf(" %c told %d f%d", "ARSB"[who], l.told, l.fence)
		}
	}
	for k := range st.nodes {
		n := &st.nodes[k]
		text += fmt.Sprintf(" [%c%d f%d c%d", "-ARSB"[n.owner], n.rem, n.fence, n.counter)
		if n.noted > 0 {
			text += fmt.Sprintf(" n%d", n.noted)
		}
		if n.quarantine > 0 {
			text += fmt.Sprintf(" q%d", n.quarantine)
		}
		text += "]"
	}
	return text
}
