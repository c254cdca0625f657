package voters

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// Report reports the rounds and the nodes. It asks no node anything.
func (s *Set) Report(r *metrics.Report) {
	s.reportRounds(r)
	s.reportNodes(r)
}

func (s *Set) reportRounds(r *metrics.Report) {
	for q := range s.rounds.by {
		asked := &s.rounds.by[q]
		r.Counters("lockproxy_lock_rounds_total", "Questions put to the lock nodes, once they have ended, by what was asked and what came of it.",
			"outcome", vote.Ends[:], asked.ends[:], "question", questions[q])
		r.Histogram("lockproxy_lock_round_seconds", "From a question to the lock nodes to its end, whatever that was.", &asked.took, "question", questions[q])
	}
	voting, _ := s.count()
	r.Gauge("lockproxy_lock_nodes", "Lock nodes that there are.", float64(len(s.Members)))
	r.Gauge("lockproxy_lock_nodes_voting", "Lock nodes that vote, or are unused.", float64(voting))
	r.Gauge("lockproxy_lock_nodes_quorum", "Lock nodes that must vote for anything to be decided.", float64(s.Quorum))
}

// nodeStates are the values of the label state.
var nodeStates = [...]struct {
	label string
	state locks.NodeState
}{
	{"unknown", locks.NodeUnknown}, {"down", locks.NodeDown}, {"refuses", locks.NodeRefusing}, {"voting", locks.NodeVoting}, {"unregistered", locks.NodeNew}, {"unused", locks.NodeUnused},
	{"quarantine", locks.NodeQuarantine}, {"floorless", locks.NodeFloorless}, {"list", locks.NodeMismatch}, {"refused", locks.NodeBarred},
}

// refusals are the values of the label error: the errors of lock nodes that are told apart, and "other" for the rest.
var refusals = [...]string{"LOADING", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM", "READONLY", "WRONGPASS", "other"}

// refusal is which of refusals a node refuses with; empty if it does not refuse.
func refusal(n locks.NodeStatus) string {
	why := locks.WhySilent(n.Err)
	switch {
	case n.State != locks.NodeRefusing:
		return ""
	case slices.Contains(refusals[:], why):
		return why
	}
	return "other"
}

func (s *Set) reportNodes(r *metrics.Report) {
	taken := map[string]bool{}
	for i, n := range s.Nodes() {
		name := n.Address
		if taken[name] { // sentinels have named one master for two
			name = fmt.Sprintf("%s#%d", name, i+1)
		}
		taken[name] = true
		reportNode(r, name, n, s.Members[i].stats().Paused, &s.Members[i].meter)
	}
}

// reportNode reports one node, under a name that no other one has.
func reportNode(r *metrics.Report, name string, n locks.NodeStatus, paused bool, did *nodeMeter) {
	r.Bool("lockproxy_lock_node_up", "1 if the lock node answered when last looked at, a second ago at most, else 0.", n.Up, "node", name)
	for _, st := range nodeStates {
		r.Bool("lockproxy_lock_node_state", "1 for the state that the lock node is in, 0 for the others: unknown, it was not asked yet; down, it does not answer; refuses, it answers with errors, see lockproxy_lock_node_refuses; voting; unregistered, it is new; unused, it is the upstream, and no lock was asked for; quarantine, it may have forgotten leases; floorless, it may have forgotten fences; list, it is one of other lock nodes than the proxy has; refused, a Cluster or the same server as another node.",
			n.State == st.state, "node", name, "state", st.label)
	}
	since := 0.0
	if !n.Since.IsZero() {
		since = max(0, time.Since(n.Since).Seconds())
	}
	r.Gauge("lockproxy_lock_node_state_seconds", "For how long the lock node has been in its state, as far as this proxy has seen.", since, "node", name)
	for _, err := range refusals {
		r.Bool("lockproxy_lock_node_refuses", "1 for the error with which the lock node refuses writes, or everything, 0 for the others; other: one that is not among those that are told apart.",
			refusal(n) == err, "node", name, "error", err)
	}
	r.Gauge("lockproxy_lock_node_quarantine_seconds", "For how long at most the lock node still sits out: less, if it can learn from the others what they hold; 0 if it does not.", n.Left.Seconds(), "node", name)
	r.Gauge("lockproxy_lock_node_doubt_seconds", "For how long at most the lock node, which had forgotten its locks, abstains for the names that were held then; 0 if it votes about all names, or about none.", n.Doubt.Seconds(), "node", name)
	r.Counter("lockproxy_lock_node_quarantines_total", "How often the lock node was seen to enter quarantine: it had lost its memory.", did.quarantines.Load(), "node", name)
	r.Counter("lockproxy_lock_node_reconnects_total", "Connections to the lock node made again after one was lost.", did.reconnects.Load(), "node", name)
	r.Bool("lockproxy_lock_node_paused", "1 while the lock node is not asked, since it failed a moment ago.", paused, "node", name)
	r.Gauge("lockproxy_lock_node_queued", "Scripts that wait to be sent to the lock node.", float64(n.Queued), "node", name)
	r.Counters("lockproxy_lock_node_votes_total", "What the lock node said when asked, yes or no, or why it said nothing: timeout, connection, quarantine, unregistered, floor, list, doubt, refused, busy, error, unwanted, closed.",
		"vote", replyLabels[:], did.votes[:], "node", name)
	r.Histogram("lockproxy_lock_node_reply_seconds", "How long the lock node took to answer a batch of scripts.", &did.replies, "node", name)
}

// count counts the nodes that vote, or would when they are asked to, and those in quarantine.
func (s *Set) count() (voting, quarantined int) {
	for _, n := range s.Nodes() {
		switch {
		case n.Ready():
			voting++
		case n.State == locks.NodeQuarantine:
			quarantined++
		}
	}
	return voting, quarantined
}

// Stats adds to st what there is and was counted of the nodes.
func (s *Set) Stats(st *locks.Stats) {
	st.Nodes, st.Rounds = len(s.Members), s.rounds.asked.Load()
	st.Voting, st.Quarantined = s.count()
	for _, n := range s.Members {
		st.Each = append(st.Each, n.stats())
	}
}
