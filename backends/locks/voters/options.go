package voters

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
)

// maxQuorumTimeout is how long a round waits by default until a quorum has answered.
const maxQuorumTimeout = 200 * time.Millisecond

// How a set of nodes without any node record begins.
const (
	BootstrapAuto   = "auto"   // taken for new as soon as every node answers
	BootstrapStrict = "strict" // they sit out a quarantine, unless Init says that they are new
)

// What a node that restarted does when there are fewer than three nodes.
const (
	GraceSafe      = "safe"      // it sits out a quarantine of MaxTTL, as with three and more
	GraceAvailable = "available" // it votes at once: a lease it forgot may be granted again
)

// Options say which the lock nodes are, and how they are asked. Only Nodes has no default.
type Options struct {
	// Required.
	Nodes []*backends.Server // the masters, or sentinels and the name of theirs; an even number tolerates no more failures than one less

	// Optional.
	MaxTTL       time.Duration // longest lease, and quarantine of a node that forgot if no copy ends it, unless a proxy with a longer one is there; default 60 s
	NodeTimeout  time.Duration // how long a round waits for a node; default lease/200, within 5 and 50 ms, and up to 200 ms where no quorum is heard of
	Retention    time.Duration // how long fences outlive the last lease of a name; default, and least, LeastRetention
	Skew         time.Duration // by how much clocks of proxies and nodes may differ; default 1 s
	Prefix       string        // of every key on the nodes; the same at every proxy; default "lockproxy:"
	Bootstrap    string        // BootstrapAuto (default) or BootstrapStrict
	OnDemand     bool          // a node without a record is enlisted only when a lock is asked for, see locks.NodeUnused
	RestartGrace string        // GraceAvailable (default) or GraceSafe; only matters with fewer than three nodes
	ReplicaAcks  int           // how many replicas of a node must have a grant or a renewal before it counts there; default 0
	Rounds       int           // LOCK, RENEW and UNLOCK rounds undecided at once; further callers queue; default 32

	SentinelUser, SentinelPassword string // for the sentinels of nodes that have some; both empty: none

	Log  *slog.Logger                // transitions of nodes; default slog.Default()
	Tune func(*rueidis.ClientOption) // may change how nodes are dialled; default nil

	Now        func() time.Duration // tests: the clock; default SinceStart
	RoundLimit time.Duration        // tests in which no node copies, on a busy machine: default RoundLimit
	Random     locks.RandSource     // for tests: where random values come from; default: values that cannot be guessed
}

// withDefaults fills in what is zero and reports every fault at once.
func (o Options) withDefaults() (Options, error) {
	o.MaxTTL = cmp.Or(o.MaxTTL, time.Minute)
	o.Retention = cmp.Or(o.Retention, LeastRetention)
	o.Skew = cmp.Or(o.Skew, time.Second)
	o.Prefix = cmp.Or(o.Prefix, "lockproxy:")
	o.Bootstrap = cmp.Or(o.Bootstrap, BootstrapAuto)
	o.RestartGrace = cmp.Or(o.RestartGrace, GraceAvailable)
	o.Rounds = cmp.Or(o.Rounds, 32)
	o.RoundLimit = cmp.Or(o.RoundLimit, RoundLimit)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = locks.SinceStart
	}
	return o, o.check()
}

// LeastRetention is the shortest Options.Retention.
const LeastRetention = 10 * time.Minute

func (o *Options) check() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(len(o.Nodes) == 0, "no lock nodes")
	refuse(o.NodeTimeout < 0, "node timeout %v is negative", o.NodeTimeout)
	refuse(o.Retention < LeastRetention, "retention of fences %v is under %v", o.Retention, LeastRetention)
	refuse(o.Skew < 0, "skew %v is negative", o.Skew)
	refuse(o.ReplicaAcks < 0, "%d replicas is negative", o.ReplicaAcks)
	refuse(o.Rounds < 0, "%d rounds at once is negative", o.Rounds)
	refuse(o.Bootstrap != BootstrapAuto && o.Bootstrap != BootstrapStrict,
		"bootstrap %q is neither %s nor %s", o.Bootstrap, BootstrapAuto, BootstrapStrict)
	refuse(o.RestartGrace != GraceSafe && o.RestartGrace != GraceAvailable,
		"restart-grace %q is neither %s nor %s", o.RestartGrace, GraceSafe, GraceAvailable)
	if err := CheckPrefix(o.Prefix); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// CheckPrefix is an error if a prefix of keys cannot be used.
func CheckPrefix(prefix string) error {
	if at := nested.FindStringIndex(prefix); at != nil {
		return fmt.Errorf("key prefix %q: keys under it would be those of locks under the prefix %q; leave out %q",
			prefix, prefix[:at[0]+1], prefix[at[0]+1:at[1]])
	}
	return nil
}

// nested matches a prefix that begins like a lock or fence key of a shorter prefix: every key
// under it, even the node record, would be the key of a lock under the shorter one. No other
// two prefixes share a key: the number in a key is a database, without leading zeros.
var nested = regexp.MustCompile(`(?s).(lock|fence|read|doubt):(0|[1-9][0-9]*):`)

// grace is the restart-grace for the scripts.
func (o *Options) grace() string { return GraceOf(len(o.Nodes), o.RestartGrace) }

// GraceOf is the restart-grace of so many nodes, where grace is what an operator has chosen: a majority of three or more needs no leniency.
func GraceOf(nodes int, grace string) string {
	if nodes >= 3 {
		return GraceSafe
	}
	return cmp.Or(grace, GraceAvailable)
}

// Timeouts are those of a round for a lease of ttl. If not even a quorum has answered within Node, probably this
// machine is slow, and to wait longer delays nothing but an error: so by default Quorum is longer.
func (o *Options) Timeouts(ttl time.Duration) Timeouts {
	if longest := o.fixedTimeout(); longest > 0 {
		return Timeouts{Node: longest, Quorum: longest}
	}
	node := min(max(ttl/200, 5*time.Millisecond), 50*time.Millisecond)
	longest := maxQuorumTimeout
	if o.ReplicaAcks > 0 {
		longest *= 2 // replicas are heard of within a quarter of it
	}
	return Timeouts{Node: node, Quorum: max(node, min(longest, ttl/4))}
}

// fixedTimeout is how long any round waits for a node; 0: it depends on the lease.
func (o *Options) fixedTimeout() time.Duration {
	return min(o.NodeTimeout, cmp.Or(o.RoundLimit, RoundLimit)*3/4) // from the limit on the votes are worth nothing
}
