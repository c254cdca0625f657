package etcd

import (
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// Report implements metrics.Reporter, with the names that lock nodes have, so that dashboards and alerts of those show etcd.
// It asks no member anything.
func (s *Store) Report(r *metrics.Report) {
	nodes := s.Nodes()
	r.Gauge("lockproxy_lock_nodes", "Members of etcd that lock-store names.", float64(len(nodes)))
	r.Gauge("lockproxy_lock_nodes_voting", "Members that answer, have a leader, and let the user in.", float64(s.voting()))
	r.Gauge("lockproxy_lock_nodes_quorum", "Members that must vote for anything to be decided.", float64(s.need()))
	for i, n := range nodes {
		name := n.Address
		r.Bool("lockproxy_lock_node_up", "1 if the member answered when last looked at, a second ago at most, else 0.", n.Up, "node", name)
		for _, state := range []locks.NodeState{locks.NodeUnknown, locks.NodeDown, locks.NodeRefusing, locks.NodeVoting} {
			r.Bool("lockproxy_lock_node_state", "1 for the state that the member is in, 0 for the others.", n.State == state, "node", name, "state", string(state))
		}
		since := 0.0
		if !n.Since.IsZero() {
			since = time.Since(n.Since).Seconds()
		}
		r.Gauge("lockproxy_lock_node_state_seconds", "For how long the member has been in its state, as far as this proxy has seen.", since, "node", name)
		r.Counter("lockproxy_lock_node_votes_total", "Answers of the member, yes, and questions that it did not answer, error.", s.client.yes[i].Load(), "node", name, "vote", "yes")
		r.Counter("lockproxy_lock_node_votes_total", "Answers of the member, yes, and questions that it did not answer, error.", s.client.no[i].Load(), "node", name, "vote", "error")
	}
}
