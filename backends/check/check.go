// Package check finds what in an upstream and a set of lock nodes, or an etcd, would hurt.
//
// It changes nothing: no key, no setting, no script cache and no node record. What a server
// does not show is a finding too. [Run] probes each server in a goroutine of its own, judges
// the facts, and returns when all goroutines have ended.
package check

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/topology"
)

const (
	// findTimeout bounds finding the masters of an upstream, or of a lock node with
	// sentinels.
	findTimeout = 4 * time.Second
	// serverTimeout bounds all calls to one server.
	serverTimeout = 8 * time.Second
	// callTimeout bounds one call, and connecting.
	callTimeout = 2 * time.Second
)

// A Severity is how much a finding hurts.
type Severity string

// The severities, least first.
const (
	Note    Severity = "note"    // worth knowing; nothing need be done
	Warning Severity = "warning" // it hurts once something else goes wrong
	Error   Severity = "error"   // it hurts now, or breaks what locks promise
)

// A Finding is one thing that would hurt.
type Finding struct {
	Severity Severity `json:"severity"`
	ID       string   `json:"id"`            // the kind of finding, in lower case; does not change
	Where    string   `json:"where"`         // a server, "lock nodes", "etcd", "upstream" or "settings"
	Problem  string   `json:"problem"`       // the fault and its effect
	Fix      string   `json:"fix,omitempty"` // a command to type or a setting to change; empty: none
}

// A Measurement is the software, round trips and clock of one server.
type Measurement struct {
	Where     string  `json:"where"`
	Software  string  `json:"software,omitempty"` // Redis, Valkey or etcd; empty: not known
	Version   string  `json:"version,omitempty"`
	MedianMS  float64 `json:"median_ms"` // of the round trips; 0: there was none
	LongestMS float64 `json:"longest_ms"`
	ClockMS   float64 `json:"clock_ms"`  // by which its clock is ahead of this machine's
	WithinMS  float64 `json:"within_ms"` // the error of ClockMS, up or down; 0: its clock is not known
}

// A Report is the result of Run.
type Report struct {
	Servers  []Measurement `json:"servers"`
	Findings []Finding     `json:"findings"` // the worst first
}

// Worst is the highest severity of the findings; empty: there are none.
func (r *Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return ""
	}
	return r.Findings[0].Severity
}

// Options are the servers to check and the proxy's settings. Upstream is required, and at least one of
// Nodes, or Members.
type Options struct {
	Upstream      *backends.Server
	Mode          string             // of the upstream, as in topology.Options
	Nodes         []*backends.Server // the lock nodes
	UpstreamVotes bool               // the upstream is the lock node, as none is given

	// Members looks at the members of the etcd that keeps the locks; nil: lock nodes do.
	Members func(context.Context) []Member

	SentinelUser, SentinelPassword string

	MaxTTL       time.Duration
	NodeTimeout  time.Duration // 0: a 200th of the lease, within 5 and 50 ms
	Prefix       string        // of the keys on lock nodes
	Strict       bool          // lock nodes that are all empty are not taken for new
	Available    bool          // fewer than three lock nodes vote at once after they lost their memory
	ReplicaAcks  int
	MaxClients   int  // of the proxy
	Unshared     bool // each client has an upstream connection of its own
	Certificates []Certificate
	Exposed      []string // settings that expose more than they should, as messages
	Unguarded    bool     // clients on other machines need no certificate

	// Conflicts are those between proxies by what they have announced, and with these settings, if their upstream has these
	// replication ids. nil: none is looked for.
	Conflicts func(upstream []string, announced []Announcement) []string
}

// An Announcement is what a proxy has left at a lock node for the others.
type Announcement struct{ ID, Text string }

// A Certificate is one of the proxy's, with the setting that names its file.
type Certificate struct {
	Setting string
	Leaf    *x509.Certificate
}

// votesAfterLoss reports whether a lock node votes at once after it lost its memory.
func (o *Options) votesAfterLoss() bool { return len(o.Nodes) < 3 && o.Available }

// afterLoss says when a lock node that lost its memory votes again.
func (o *Options) afterLoss() string {
	switch {
	case o.votesAfterLoss():
		return "with restart-grace available it votes at once, and grants held locks again"
	case len(o.Nodes) < 3:
		return "it sits out max-ttl, " + o.MaxTTL.String()
	}
	return "it votes again within seconds if a majority of the lock nodes remembers, else after max-ttl, " + o.MaxTTL.String()
}

// A Member is what is known of one member of etcd.
type Member struct {
	Address string
	Err     error // it does not answer
	Denied  error // it does not let the user in, or to the keys of locks
	Refused error // it would not do a LOCK
	Damaged error // about a key of a lock that cannot be read

	Version            string
	Cluster, ID        string
	Leader             string // an ID; empty: it knows of none
	Learner            bool
	Alarms             []string
	Size, Quota        int64 // of the database, in bytes; 0: not known
	RoundTrips         []time.Duration
	Secure, Credential bool // reached over TLS, with a user
}

// Run checks all servers at once. One that hangs delays it by findTimeout and serverTimeout at
// most.
func Run(ctx context.Context, o Options) *Report {
	targets, found := o.targets(ctx)
	all := make([]*facts, len(targets))
	var asking sync.WaitGroup
	for i, t := range targets {
		asking.Go(func() { all[i] = probe(ctx, t, &o) })
	}
	var members []Member
	if o.Members != nil {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, serverTimeout)
			defer cancel()
			members = o.Members(ctx)
		})
	}
	asking.Wait()
	r := &Report{Servers: []Measurement{}, Findings: []Finding{}} // lists in JSON, also without an entry
	r.Findings = append(append(r.Findings, found...), judge(all, &o, time.Now())...)
	for _, f := range all {
		r.Servers = append(r.Servers, f.measurement())
	}
	if o.Members != nil {
		r.Findings = append(r.Findings, judgeMembers(members, &o)...)
		for _, m := range members {
			r.Servers = append(r.Servers, m.measurement())
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return rank(b.Severity) - rank(a.Severity) })
	return r
}

func rank(s Severity) int { return slices.Index([]Severity{Note, Warning, Error}, s) }

// A target is a server to check, in its role.
type target struct {
	server *backends.Server
	node   bool // a lock node; else a master of the upstream
	chosen bool // by sentinels
}

// where is its name in findings.
func (t target) where() string {
	if t.node {
		return "lock node " + t.server.String()
	}
	return "upstream " + t.server.String()
}

// targets are the servers to check: the masters of the upstream, then the lock nodes. A
// server that is both is there twice, unless it is the lock node by default. found are the
// faults of those without a master.
func (o *Options) targets(ctx context.Context) (out []target, found []Finding) {
	type search struct {
		seed    *backends.Server
		mode    string
		node    bool
		masters []*backends.Server
		err     error
	}
	var all []*search
	if !o.UpstreamVotes {
		all = append(all, &search{seed: o.Upstream, mode: o.Mode})
	}
	for _, n := range o.Nodes {
		mode := topology.ModeStandalone
		if n.MasterSet() != "" {
			mode = topology.ModeSentinel
		}
		all = append(all, &search{seed: n, mode: mode, node: true})
	}
	var searching sync.WaitGroup
	for _, s := range all {
		searching.Go(func() { s.masters, s.err = o.masters(ctx, s.seed, s.mode) })
	}
	searching.Wait()
	for _, s := range all {
		if s.err != nil {
			at := target{server: s.seed, node: s.node}
			found = append(found, Finding{Error, "no-master", at.where(), s.err.Error(), "look at the sentinels, or at the servers that the URL names, with ROLE and SENTINEL MASTER"})
		}
		for _, m := range s.masters {
			out = append(out, target{m, s.node, s.seed.MasterSet() != ""})
		}
	}
	return out, found
}

// masters are the servers that seed names.
func (o *Options) masters(ctx context.Context, seed *backends.Server, mode string) ([]*backends.Server, error) {
	if mode == topology.ModeStandalone {
		return []*backends.Server{seed}, nil
	}
	watcher, err := topology.New(seed, topology.Options{
		Mode: mode, SentinelUser: o.SentinelUser, SentinelPassword: o.SentinelPassword,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	last, ended := watcher.Initial(), make(chan struct{})
	go func() {
		defer close(ended)
		_ = watcher.Run(ctx, func(t *topology.Topology) { last = t }) // ends with ctx
	}()
	select {
	case <-watcher.Probed():
	case <-ctx.Done():
	}
	cancel()
	<-ended
	var masters []*backends.Server
	for _, s := range last.Shards {
		if s.Master != nil {
			masters = append(masters, s.Master)
		}
	}
	if len(masters) == 0 {
		return nil, fmt.Errorf("nobody says who is the master, so nothing there was looked at (%s)", watcher.Mode())
	}
	return masters, nil
}
