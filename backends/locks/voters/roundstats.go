package voters

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// A Question is what a round asks: an index of questions.
type Question uint8

const (
	AskAcquire Question = iota
	AskSettle
	AskRenew
	AskNote
	AskRelease
	AskRead
	AskList
	AskAnnounce
	AskCopy
	askState
	askRepair
)

var questions = [...]string{"acquire", "settle", "renew", "note", "release", "read", "list", "announce", "copy", "state", "order"}

// A roundMeter counts the rounds that ask one question.
type roundMeter struct {
	ends [len(vote.Ends)]atomic.Int64
	took metrics.Histogram
}

// roundCounters count rounds.
type roundCounters struct {
	asked atomic.Int64
	by    [len(questions)]roundMeter
}

// slowRound is how long a round takes at least to be logged as slow. It is longer than
// the longest default of Timeouts.Node.
const slowRound = 100 * time.Millisecond

// Ended counts a round, and logs it if it was slow. votes are those that closing it gave.
func (s *Set) Ended(r *Round, votes []vote.Vote, e vote.End) {
	took := s.Clock() - r.began
	m := &s.rounds.by[r.question]
	m.ends[e].Add(1)
	m.took.Observe(took)
	if took >= slowRound && r.question < AskList && e != vote.EndCanceled {
		s.Opts.Log.LogAttrs(context.Background(), slog.LevelWarn, "lock round was slow",
			slog.String("question", questions[r.question]), slog.String("end", vote.Ends[e]), slog.Duration("took", took),
			slog.String("silent", s.silentNodes(votes)))
	}
}

// CloseAnswered closes a round that counts as done if a quorum has answered, and returns its votes; drop is as for Close.
func (s *Set) CloseAnswered(r *Round, drop bool, err error) []vote.Vote {
	votes := r.Close(drop, nil)
	s.Ended(r, votes, vote.EndOf(err, len(votes)-vote.CountKind(votes, vote.Silent) >= s.Quorum))
	return votes
}

// silentNodes is which nodes did not vote, and why.
func (s *Set) silentNodes(votes []vote.Vote) string {
	var all []string
	for i := range votes {
		if v := &votes[i]; v.Kind == vote.Silent && !errors.Is(v.Err, ErrNotAsked) {
			all = append(all, s.whySilent(i, v).Error())
		}
	}
	return strings.Join(all, ", ")
}

// What a node voted, or why it did not: indexes of replyLabels.
const (
	saidYes = iota
	saidNo
	saidTimeout
	saidConnection
	saidQuarantine
	saidUnregistered
	saidFloor
	saidList
	saidDoubt
	saidRefused
	saidBusy
	saidError
	saidUnwanted
	saidClosed
)

var replyLabels = [...]string{
	"yes", "no", "timeout", "connection", "quarantine", "unregistered", "floor", "list", "doubt", "refused", "busy", "error", "unwanted", "closed",
}

// A nodeMeter is what is counted of one node.
type nodeMeter struct {
	votes                   [len(replyLabels)]atomic.Int64
	replies                 metrics.Histogram
	reconnects, quarantines atomic.Int64

	left time.Duration // of the quarantine that it was last seen in; 0: it has been seen out of it; guarded by recovery.mu
}

// quarantine counts a quarantine that has begun since the node was last seen. If the node was out
// of reach meanwhile, it is still in the same one, unless more of it is left than before.
func (m *nodeMeter) quarantine(seen *locks.NodeStatus) {
	switch {
	case !seen.Up:
		return
	case seen.State != locks.NodeQuarantine && seen.Left == 0:
		m.left = 0
		return
	case m.left == 0 || seen.Left > m.left:
		m.quarantines.Add(1)
	}
	m.left = max(seen.Left, 1)
}

func (m *nodeMeter) vote(v *vote.Vote) { m.votes[replyLabel(v)].Add(1) }

// replyLabel is the index of a vote in replyLabels.
func replyLabel(v *vote.Vote) int {
	var same *sameServerError
	switch {
	case v.Kind == vote.Yes || v.Kind == vote.Duplicate:
		return saidYes
	case v.Kind != vote.Silent:
		return saidNo
	case v.Code < 0:
		return [...]int{saidUnregistered, saidQuarantine, saidFloor, saidList, saidDoubt}[-v.Code-1]
	case errors.Is(v.Err, ErrTimeout):
		return saidTimeout
	case errors.Is(v.Err, errUnwanted):
		return saidUnwanted
	case errors.Is(v.Err, errBusy):
		return saidBusy
	case errors.Is(v.Err, locks.ErrClosed):
		return saidClosed
	case errors.As(v.Err, &same), errors.Is(v.Err, errCluster), errors.Is(v.Err, errReplica):
		return saidRefused
	case isConnection(v.Err):
		return saidConnection
	}
	return saidError
}

// stats is what was counted of a node.
func (n *Node) stats() (st locks.NodeStats) {
	for i := range n.meter.votes {
		switch votes := n.meter.votes[i].Load(); i {
		case saidYes:
			st.Yes = votes
		case saidNo:
			st.No = votes
		case saidUnwanted: // the other nodes had decided the question
		default:
			st.None += votes
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	st.Paused = n.lastErr != nil && n.retryAt > n.set.Clock()
	return st
}
