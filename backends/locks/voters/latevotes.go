package voters

import (
	"sync"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// LateVotes are votes that come after their round was closed. They wait until it is known what to do with them. The zero
// value is ready, and safe for concurrent use.
type LateVotes struct {
	mu    sync.Mutex
	take  func(int, vote.Vote) // nil: not known
	votes map[int]vote.Vote    // those that have come until then, by node
}

// Add adds the vote of node i.
func (l *LateVotes) Add(i int, v vote.Vote) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.take != nil {
		l.take(i, v)
		return
	}
	if l.votes == nil {
		l.votes = map[int]vote.Vote{}
	}
	l.votes[i] = v
}

// TakeBy has take called with each, those that are still to come as well.
func (l *LateVotes) TakeBy(take func(int, vote.Vote)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take = take
	for i, v := range l.votes {
		take(i, v)
	}
}
