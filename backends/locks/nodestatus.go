package locks

import (
	"fmt"
	"time"
)

// A NodeState tells whether a lock node votes, or why it does not.
type NodeState string

// The states of a lock node.
const (
	NodeUnknown    NodeState = "unknown"          // it was not probed yet; in a NodeView, it did not answer this time
	NodeDown       NodeState = "down"             // it does not answer, or not as a lock node would
	NodeRefusing   NodeState = "refuses"          // it answers, but not with a vote: it is full, a replica, or forbids what scripts do
	NodeVoting     NodeState = "voting"           // it takes part
	NodeNew        NodeState = "unregistered"     // it has no node record yet
	NodeUnused     NodeState = "unused"           // it has no node record and, by Options.OnDemand, gets one only when a lock is asked for
	NodeQuarantine NodeState = "quarantine"       // it may have forgotten leases; Left says for how long still
	NodeFloorless  NodeState = "fence floor lost" // it may have forgotten fences, and waits for them
	NodeMismatch   NodeState = "other list"       // it is in another set of lock nodes
	NodeBarred     NodeState = "refused"          // a Cluster, the same server as another node, or its fences are damaged
)

// A NodeStatus is what the last probe told of a lock node.
type NodeStatus struct {
	Address string
	Chosen  bool // sentinels choose the node's master
	Etcd    bool // it is a member of an etcd, not a master that votes by itself
	Up      bool // it answered
	State   NodeState
	Left    time.Duration // of a quarantine, if no copy ends it
	Copies  bool          // in quarantine: it votes as soon as it knows what a majority of the others hold
	Doubt   time.Duration // for how long at most it abstains for names that were held when it forgot, while it votes about others
	Since   time.Time     // when State was first seen; zero before the first probe
	Err     error         // why it does not vote; nil if it is Ready
	RunID   string        // empty while unknown
	Largest int64         // largest fence it stored, if it votes
	Took    time.Duration // how long its last answer took; 0: there was none
	Queued  int           // calls that wait to be sent to it
	Timeout time.Duration // votes that take longer never count; 0: it depends on the lease
}

// Ready reports whether the node votes, or would when it is asked to; the other states are faults.
func (n *NodeStatus) Ready() bool { return n.State == NodeVoting || n.State == NodeUnused }

// A RefusalError is the error reply of a node that was reached and did not do what it
// was asked: its code, as in "OOM", or the whole text where it has none of its own.
type RefusalError struct{ Text string }

func (e *RefusalError) Error() string { return e.Text }

// Brief is the state, and behind it in brackets why the node is down or refuses:
// "refuses (OOM)". What is before " (" is one of the NodeStates.
func (n *NodeStatus) Brief() string { return brief(n.State, n.Err) }

// Standing is Brief and, for a node that is down or refuses, since when.
func (n *NodeStatus) Standing() string { return standing(n.State, n.Err, n.Since) }

// Standing is what NodeStatus.Standing is.
func (n *NodeView) Standing() string { return standing(n.State, n.Err, n.Since) }

func brief(state NodeState, err error) string {
	if why := WhySilent(err); why != "" && (state == NodeDown || state == NodeRefusing) {
		return fmt.Sprintf("%s (%s)", state, why)
	}
	return string(state)
}

func standing(state NodeState, err error, since time.Time) string {
	if (state != NodeDown && state != NodeRefusing) || since.IsZero() {
		return brief(state, err)
	}
	return brief(state, err) + " since " + since.UTC().Format(time.RFC3339)
}
