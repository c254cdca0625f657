package locks

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// Report implements metrics.Reporter. It asks no node anything.
func (s *Service) Report(r *metrics.Report) {
	st := s.Stats()
	s.reportLocks(r, st)
	s.reportRounds(r, st)
	s.reportNodes(r, st)
}

func (s *Service) reportLocks(r *metrics.Report, st Stats) {
	c := &s.counters
	const requests = "LOCKs that were answered: granted; refused, since another owner has the name, also after waiting; failed, for want of a quorum or since their time or client was gone."
	r.Counter("lockproxy_lock_requests_total", requests, c.failures.Load(), "outcome", "failed")
	r.Counter("lockproxy_lock_requests_total", requests, st.Grants, "outcome", "granted")
	r.Counter("lockproxy_lock_requests_total", requests, st.Refusals, "outcome", "refused")
	r.Counters("lockproxy_lock_grants_total", "Granted LOCKs by what made them ask: at_once, when they came; handed, behind an UNLOCK at this proxy; woken, by a lock node; timer, when the holder's lease ended or to be safe; own, since their owner had got the name meanwhile.",
		"ground", triggers[:], c.triggers[:])
	r.Counter("lockproxy_lock_reentries_total", "Granted LOCKs of an owner that had the name already.", c.reentries.Load())
	const wait = "From the call of LOCK to its grant or refusal."
	r.Histogram("lockproxy_lock_wait_seconds", wait, &c.grantWait, "outcome", "granted")
	r.Histogram("lockproxy_lock_wait_seconds", wait, &c.refusalWait, "outcome", "refused")
	r.Histogram("lockproxy_lock_hold_seconds", "From a grant through this proxy to its release through it, its loss, or the end of its validity if nobody came back.", &c.held)
	r.Gauge("lockproxy_lock_oldest_hold_seconds", "Since the oldest grant through this proxy that still runs, as far as it knows; 0 if there is none. One that only grows is a lock that its owner renews without an end, or takes again and again.", s.grants.oldest().Seconds())
	r.Gauge("lockproxy_lock_waiting", "LOCKs with WAIT that are in line at this proxy.", float64(st.Waiting))
	r.Counter("lockproxy_lock_releases_total", "Holds given back, and repeats of that.", st.Releases)
	r.Counter("lockproxy_lock_renewals_total", "Leases renewed, those of sessions too.", st.Renewals)
	r.Counter("lockproxy_lock_repeats_total", "LOCKs and UNLOCKs with a REQ that had been done before: their first answer was lost.", st.Repeats)
	r.Counter("lockproxy_lock_forces_total", "Locks that an operator took away through this proxy.", st.Forces)
	r.Counter("lockproxy_lock_noquorum_total", "LOCK, RENEW, UNLOCK and LOCKCTL that too few lock nodes answered to decide.", st.NoQuorum)
	r.Counter("lockproxy_lock_splits_total", "Acquisitions in which several owners had some nodes and none a majority; they are tried again.", st.Splits)
	r.Counter("lockproxy_lock_undos_total", "Acquisitions taken back that some lock node may have done.", st.Undos)
	r.Gauge("lockproxy_lock_sessions", "Connections that have locks with SESSION.", float64(st.Sessions))
	r.Gauge("lockproxy_lock_session_holds", "Holds that are kept for connections with SESSION.", float64(st.SessionLocks))
	r.Counter("lockproxy_lock_session_renewals_total", "Renewals of locks with SESSION that a quorum took.", c.sessionRenewals.Load())
	r.Counter("lockproxy_lock_session_misses_total", "Renewals of locks with SESSION that decided nothing, and are tried again while the lease runs.", c.sessionMisses.Load())
	r.Counters("lockproxy_lock_lost_total", "Locks with SESSION that were lost to their holders: expired; forced, by an operator; maxhold, held for as long as allowed; noquorum, too few nodes voted; taken, another owner has it; gone from the nodes.",
		"reason", lossReasons[:], c.losses[:])
}

func (s *Service) reportRounds(r *metrics.Report, st Stats) {
	for q := range s.counters.asked {
		asked := &s.counters.asked[q]
		r.Counters("lockproxy_lock_rounds_total", "Questions put to the lock nodes, once they have ended, by what was asked and what came of it.",
			"outcome", ends[:], asked.ends[:], "question", questions[q])
		r.Histogram("lockproxy_lock_round_seconds", "From a question to the lock nodes to its end, whatever that was.", &asked.took, "question", questions[q])
	}
	r.Gauge("lockproxy_lock_nodes", "Lock nodes that there are.", float64(st.Nodes))
	r.Gauge("lockproxy_lock_nodes_voting", "Lock nodes that vote, or are unused.", float64(st.Voting))
	r.Gauge("lockproxy_lock_nodes_quorum", "Lock nodes that must vote for anything to be decided.", float64(s.quorum))
}

// nodeStates are the values of the label state.
var nodeStates = [...]struct {
	label string
	state NodeState
}{
	{"unknown", NodeUnknown}, {"down", NodeDown}, {"refuses", NodeRefusing}, {"voting", NodeVoting}, {"unregistered", NodeNew}, {"unused", NodeUnused},
	{"quarantine", NodeQuarantine}, {"floorless", NodeFloorless}, {"list", NodeMismatch}, {"refused", NodeBarred},
}

// refusals are the errors of lock nodes that are told apart, and what stands for the rest.
var refusals = [...]string{"LOADING", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM", "READONLY", "WRONGPASS", "other"}

// refusal is which of refusals a node refuses with; empty if it does not refuse.
func refusal(n NodeStatus) string {
	why := WhySilent(n.Err)
	switch {
	case n.State != NodeRefusing:
		return ""
	case slices.Contains(refusals[:], why):
		return why
	}
	return "other"
}

func (s *Service) reportNodes(r *metrics.Report, st Stats) {
	taken := map[string]bool{}
	for i, n := range s.Nodes() {
		name := n.Address
		if taken[name] { // sentinels have named one master for two
			name = fmt.Sprintf("%s#%d", name, i+1)
		}
		taken[name] = true
		reportNode(r, name, n, st.Each[i].Paused, &s.nodes[i].meter)
	}
}

// reportNode reports one node, under a name that no other one has.
func reportNode(r *metrics.Report, name string, n NodeStatus, paused bool, did *nodeMeter) {
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
	r.Gauge("lockproxy_lock_node_quarantine_seconds", "For how long the lock node still sits out; 0 if it does not.", n.Left.Seconds(), "node", name)
	r.Counter("lockproxy_lock_node_quarantines_total", "How often the lock node was seen to enter quarantine: it had lost its memory.", did.quarantines.Load(), "node", name)
	r.Counter("lockproxy_lock_node_reconnects_total", "Connections to the lock node made again after one was lost.", did.reconnects.Load(), "node", name)
	r.Bool("lockproxy_lock_node_paused", "1 while the lock node is not asked, since it failed a moment ago.", paused, "node", name)
	r.Gauge("lockproxy_lock_node_queued", "Scripts that wait to be sent to the lock node.", float64(n.Queued), "node", name)
	r.Counters("lockproxy_lock_node_votes_total", "What the lock node said when asked, yes or no, or why it said nothing: timeout, connection, quarantine, unregistered, floor, list, refused, busy, error, unwanted, closed.",
		"vote", replyLabels[:], did.votes[:], "node", name)
	r.Histogram("lockproxy_lock_node_reply_seconds", "How long the lock node took to answer a batch of scripts.", &did.replies, "node", name)
}
