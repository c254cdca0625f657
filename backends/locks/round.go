package locks

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A round collects the votes on one question and decides nothing. Every node gives exactly one vote, be it
// that it was not asked; workers deliver them.
type round struct {
	question question
	began    time.Duration
	enough   func([]vote) bool // pure: do these votes, in the order of the nodes, decide the question?

	mu     sync.Mutex
	votes  []vote
	came   int
	ready  bool
	closed bool
	drop   bool                // closed, and calls that were not sent yet shall not be
	late   func(i int, v vote) // takes votes that come after closing, on the worker's goroutine
	done   chan struct{}
}

func newRound(nodes int, q question, began time.Duration, enough func([]vote) bool) *round {
	return &round{question: q, began: began, enough: enough, votes: make([]vote, nodes), done: make(chan struct{})}
}

// deliver takes node i's vote.
func (r *round) deliver(i int, v vote) {
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
	r.came++
	if !r.ready && (r.came == len(r.votes) || r.enough(r.votes)) {
		r.ready = true
		close(r.done)
	}
}

// Timeouts are how long a round waits: for a node whose vote is due while a quorum has answered, and for a
// quorum.
type timeouts struct{ node, quorum time.Duration }

// wait returns when there are enough votes, when the timeouts are over, or with the error of ctx when that
// ended first.
func (r *round) wait(ctx context.Context, p timeouts) error {
	err := r.waitFor(ctx, p.node)
	if err == nil && p.quorum > p.node && r.stillOpen() {
		err = r.waitFor(ctx, p.quorum-p.node)
	}
	return err
}

// waitFor returns when there are enough votes, after d, or with the error of ctx.
func (r *round) waitFor(ctx context.Context, d time.Duration) error {
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
func (r *round) stillOpen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard, lost := 0, 0
	for i := range r.votes {
		switch v := &r.votes[i]; {
		case v.kind != silent:
			heard++
		case v.err != nil && !errors.Is(v.err, errNotAsked):
			lost++
		}
	}
	return 2*heard <= len(r.votes) && 2*(len(r.votes)-lost) > len(r.votes)
}

// close ends the round and returns its votes, which change no more. late, if not nil, is called once for every
// node whose vote was still due, when it comes. drop takes back calls that no worker has sent yet.
func (r *round) close(drop bool, late func(int, vote)) []vote {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.drop, r.late = true, drop, late
	return r.votes
}

// wanted reports whether the question is still to be sent.
func (r *round) wanted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.drop
}

// due reports whether a vote of a closed round has yet to come.
func due(v *vote) bool { return v.kind == silent && v.err == nil }
