// Package check answers what about an upstream and a set of lock nodes would hurt.
//
// It looks and changes nothing: no key, no setting, no script cache and no node
// record. Whatever a server does not let it see is said, never taken for fine. Run
// starts a goroutine for each server and returns when all have ended.
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
	// findFor bounds the search for the masters of an upstream, or of a lock node that
	// sentinels choose.
	findFor = 4 * time.Second
	// askFor bounds all questions to one server.
	askFor = 8 * time.Second
	// callFor bounds one of them, and the opening of a connection.
	callFor = 2 * time.Second
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
	ID       string   `json:"id"`            // what kind of finding this is, in lower case; does not change
	Where    string   `json:"where"`         // a server, "lock nodes", "upstream" or "settings"
	Problem  string   `json:"problem"`       // what is there, and what it would do
	Fix      string   `json:"fix,omitempty"` // a command to type or a setting to change; empty: there is nothing to do
}

// A Look is what was measured at one server.
type Look struct {
	Where     string  `json:"where"`
	Software  string  `json:"software,omitempty"` // Redis or Valkey; empty: it does not say
	Version   string  `json:"version,omitempty"`
	MedianMS  float64 `json:"median_ms"` // of the round trips; 0: none was made
	LongestMS float64 `json:"longest_ms"`
	ClockMS   float64 `json:"clock_ms"`  // how far its clock is ahead of this machine's
	WithinMS  float64 `json:"within_ms"` // the error of ClockMS, up or down; 0: its clock is not known
}

// A Report is what Run saw.
type Report struct {
	Servers  []Look    `json:"servers"`
	Findings []Finding `json:"findings"` // the worst first
}

// Worst is the largest severity among the findings; empty: there are none.
func (r *Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return ""
	}
	return r.Findings[0].Severity
}

// Options say what to look at and what it is for. Upstream and at least one of Nodes
// are required; the rest as the proxy has it.
type Options struct {
	Upstream *backends.Server
	Mode     string             // of the upstream, as in topology.Options
	Nodes    []*backends.Server // the lock nodes
	Voting   bool               // the upstream is the lock node, as none was named

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
	Exposed      []string // what of the settings shows more than it should, in words for people
	Unguarded    bool     // clients come from other machines and show no certificate
}

// A Certificate is one that the proxy shows, and the setting that names its file.
type Certificate struct {
	Setting string
	Leaf    *x509.Certificate
}

// quorum is how many lock nodes decide.
func (o *Options) quorum() int { return len(o.Nodes)/2 + 1 }

// lenient says that a lock node votes at once after it lost its memory.
func (o *Options) lenient() bool { return len(o.Nodes) < 3 && o.Available }

// Run looks at all servers at once. One that hangs holds it up for some seconds at most.
func Run(ctx context.Context, o Options) *Report {
	targets, found := o.targets(ctx)
	all := make([]*facts, len(targets))
	var asking sync.WaitGroup
	for i, t := range targets {
		asking.Go(func() { all[i] = ask(ctx, t, &o) })
	}
	asking.Wait()
	r := &Report{Servers: []Look{}, Findings: []Finding{}} // lists in JSON, also without an entry
	r.Findings = append(append(r.Findings, found...), judge(all, &o, time.Now())...)
	for _, f := range all {
		r.Servers = append(r.Servers, f.look())
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return rank(b.Severity) - rank(a.Severity) })
	return r
}

func rank(s Severity) int { return slices.Index([]Severity{Note, Warning, Error}, s) }

// A target is a server to look at, in its part.
type target struct {
	server *backends.Server
	node   bool // a lock node; else a master of the upstream
	chosen bool // sentinels say which server it is
}

// where is what findings call it.
func (t target) where() string {
	if t.node {
		return "lock node " + t.server.String()
	}
	return "upstream " + t.server.String()
}

// targets are the servers to look at: the masters of the upstream, then the lock
// nodes. A server that is both comes twice, unless it is the lock node for want of
// others. Found are the faults of those that cannot be told.
func (o *Options) targets(ctx context.Context) (out []target, found []Finding) {
	type search struct {
		seed    *backends.Server
		mode    string
		node    bool
		masters []*backends.Server
		err     error
	}
	var all []*search
	if !o.Voting {
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

// masters are the servers that seed stands for.
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
	ctx, cancel := context.WithTimeout(ctx, findFor)
	defer cancel()
	last, ended := watcher.Initial(), make(chan struct{})
	go func() {
		defer close(ended)
		_ = watcher.Run(ctx, func(t *topology.Topology) { last = t }) // ends when told to
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
