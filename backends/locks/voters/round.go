package voters

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// RoundLimit is the age from which a round has no votes, whatever comes: a constant of the protocol, which a node that
// forgot its locks waits for before it asks others what they hold (rounds in prologue.lua). A LOCK or a RENEW of several rounds is as
// old as its first. Source: RULES.md, Recovery by copy; model integration/model/recover.
const RoundLimit = 3 * time.Second

// A Round collects the votes on one question and decides nothing. Every node gives exactly one vote, which may be
// that it was not asked. Workers deliver the votes.
type Round struct {
	question Question
	began    time.Duration
	limit    time.Duration // Options.RoundLimit
	clock    func() time.Duration
	enough   func([]vote.Vote) bool // pure: do these votes, in the order of the nodes, decide the question?

	mu        sync.Mutex
	votes     []vote.Vote
	delivered int
	ready     bool
	closed    bool
	drop      bool                     // it is closed, and calls that are not sent yet are dropped
	late      func(i int, v vote.Vote) // takes votes that come after closing, on the worker's goroutine
	done      chan struct{}
}

func newRound(nodes int, q Question, limit time.Duration, clock func() time.Duration, enough func([]vote.Vote) bool) *Round {
	return &Round{question: q, began: clock(), limit: limit, clock: clock, enough: enough, votes: make([]vote.Vote, nodes), done: make(chan struct{})}
}

// deliver takes node i's vote.
func (r *Round) deliver(i int, v vote.Vote) {
	r.mu.Lock()
	if r.closed {
		late := r.late
		r.mu.Unlock()
		if late != nil {
			late(i, v)
		}
		return
	}
	defer r.mu.Unlock()
	r.votes[i] = v
	r.delivered++
	if !r.ready && (r.delivered == len(r.votes) || r.enough(r.votes)) {
		r.ready = true
		close(r.done)
	}
}

// Timeouts are how long a round waits: Node, for the votes that are still due when a quorum has answered; Quorum,
// for a quorum to answer.
type Timeouts struct{ Node, Quorum time.Duration }

// After is what is left of the timeouts when d of them has passed.
func (p Timeouts) After(d time.Duration) Timeouts {
	return Timeouts{max(0, p.Node-d), max(0, p.Quorum-d)}
}

// Wait returns when there are enough votes, when the timeouts are over, or with the error of ctx when that
// ended first.
func (r *Round) Wait(ctx context.Context, p Timeouts) error {
	err := r.WaitFor(ctx, p.Node)
	if err == nil && p.Quorum > p.Node && r.stillOpen() {
		err = r.WaitFor(ctx, p.Quorum-p.Node)
	}
	return err
}

// WaitFor returns when there are enough votes, after d, or with the error of ctx.
func (r *Round) WaitFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.done:
		return nil
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stillOpen reports whether no quorum has answered, and one still may.
func (r *Round) stillOpen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard, lost := 0, 0
	for i := range r.votes {
		switch v := &r.votes[i]; {
		case v.Kind != vote.Silent:
			heard++
		case v.Err != nil && !errors.Is(v.Err, ErrNotAsked):
			lost++
		}
	}
	return 2*heard <= len(r.votes) && 2*(len(r.votes)-lost) > len(r.votes)
}

// dropOldLocked takes the votes away if the round is over RoundLimit old.
func (r *Round) dropOldLocked() {
	if r.clock()-r.began < r.limit {
		return
	}
	for i := range r.votes {
		if v := &r.votes[i]; !Due(v) && !v.Unsent {
			*v = vote.Vote{Err: errOldRound}
		}
	}
}

// Close ends the round and returns its votes, which change no more. late, if not nil, is called once for every
// node whose vote was still due, when it comes. drop takes back calls that no worker has sent yet.
func (r *Round) Close(drop bool, late func(int, vote.Vote)) []vote.Vote {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.drop, r.late = true, drop, late
	r.dropOldLocked()
	return r.votes
}

// CloseEach is Close, and calls take for every node: for one whose vote is still due, when that comes.
func (r *Round) CloseEach(drop bool, take func(int, vote.Vote)) []vote.Vote {
	votes := r.Close(drop, take)
	for i, v := range votes {
		if !Due(&v) {
			take(i, v)
		}
	}
	return votes
}

// Look calls do with the votes that have come, which do not change until it returns.
func (r *Round) Look(do func([]vote.Vote)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropOldLocked()
	do(r.votes)
}

// wanted reports whether the question is still to be sent.
func (r *Round) wanted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.drop
}

// Due reports whether a vote of a closed round has yet to come.
func Due(v *vote.Vote) bool { return v.Kind == vote.Silent && v.Err == nil }
