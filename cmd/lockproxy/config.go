package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/topology"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// A config is the settings that were given, by name, not validated yet.
type config map[string]given

// A given is the raw text of one setting.
type given struct {
	values []string
	from   string // where it was given, for faults: --min-ttl, LOCKPROXY_MIN_TTL, lockproxy.yaml:3
	file   bool   // from is a file that holds nothing else
}

// faults are all that is wrong with the settings, in the order of --help.
type faults []error

func (f faults) Error() string {
	lines := make([]string, 0, len(f)+1)
	lines = append(lines, plural(len(f), "fault")+" in the settings:")
	for _, err := range f {
		lines = append(lines, "  "+err.Error())
	}
	return strings.Join(lines, "\n")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// validate reads raw settings into o. It touches no network, and no files but those that
// settings about TLS name. It returns bad, the faults found so far, with all others, in
// words that never repeat a URL; with any, o is not to be used.
func (c config) validate(o *options, bad faults) faults {
	all := o.settings()
	bad = append(bad, c.read(all)...)
	if _, isGiven := c["upstream"]; !isGiven {
		bad = append(bad, errors.New("upstream: not set; give --upstream redis://host:port, LOCKPROXY_UPSTREAM, or upstream: in the file"))
	}
	bad = append(bad, o.durationFaults()...)
	bad = append(bad, o.upstreamFaults()...)
	bad = append(bad, o.adminFaults()...)
	bad = append(bad, o.adoptFaults()...)
	bad = append(bad, o.store.Faults(func(name string) bool { _, is := c[name]; return is },
		slices.ContainsFunc(o.adopt, func(p *pattern.Pattern) bool { return p.Mode == pattern.Both }))...)
	bad = append(bad, o.readTLS()...)
	if len(bad) == 0 {
		bad = append(bad, o.unusedTLS()...)
	}
	if len(bad) == 0 {
		o.complete()
		o.exposed = c.exposures(o, all)
	}
	return bad
}

// read reads each setting's values, or its default.
func (c config) read(all []setting) (bad faults) {
	for _, s := range all {
		g, isGiven := c[s.name]
		if !isGiven && s.value != "" {
			g.values = []string{s.value}
		}
		for _, text := range g.values {
			if err := s.read(text); err != nil {
				bad = append(bad, fmt.Errorf("%s: %w", g.label(s.name), err))
			}
		}
	}
	return bad
}

// label names a setting and, where that is not the same, where it was given.
func (g given) label(name string) string {
	if g.from == "" || g.from == "--"+name {
		return name
	}
	return name + " (" + g.from + ")"
}

// durationFaults are the faults between durations. One that could not be read is zero,
// and has none.
func (o *options) durationFaults() (bad faults) {
	if o.maxTTL == 0 {
		return nil
	}
	if o.minTTL > o.maxTTL {
		bad = append(bad, fmt.Errorf("min-ttl: %s is over max-ttl, %s", o.minTTL, o.maxTTL))
	}
	if o.maxHold != 0 && o.maxHold < o.minTTL {
		bad = append(bad, fmt.Errorf("max-hold: %s is under min-ttl, %s", o.maxHold, o.minTTL))
	}
	if o.nodeTimeout >= o.maxTTL {
		bad = append(bad, fmt.Errorf("node-timeout: %s is not shorter than the longest lease, max-ttl, %s", o.nodeTimeout, o.maxTTL))
	}
	return bad
}

// upstreamFaults are the faults between settings of the upstream.
func (o *options) upstreamFaults() (bad faults) {
	if o.upstream == nil || o.mode == "" {
		return nil
	}
	if err := topology.CheckMode(o.upstream, o.mode); err != nil {
		return faults{fmt.Errorf("upstream-mode: %w", err)}
	}
	changing := o.mode == topology.ModeCluster || !o.upstream.Single()
	if changing && len(o.nodes) == 0 && !o.store.IsEtcd() {
		bad = append(bad, errUnsafeLockNode)
	}
	if !o.hasSentinels() && (o.sentinelUser != "" || o.sentinelPassword != "") {
		bad = append(bad, errors.New("sentinel-user, sentinel-password: neither the upstream's URL nor a lock node's names sentinels (?master_set=…)"))
	}
	return bad
}

// hasSentinels reports whether the upstream or a lock node has sentinels.
func (o *options) hasSentinels() bool {
	return slices.ContainsFunc(append(o.nodes[:len(o.nodes):len(o.nodes)], o.upstream), func(s *backends.Server) bool { return s.MasterSet() != "" })
}

// errUnsafeLockNode: locks would be lost with a master.
var errUnsafeLockNode = errors.New("lock-node: not set; a Cluster, or a master that another may replace, is no safe lock node, so name servers that are")

// complete fills in defaults that depend on other settings, and adds a warning for each
// choice that is legal but unwise.
func (o *options) complete() {
	if len(o.nodes) == 0 && !o.store.IsEtcd() {
		o.upstreamVotes = true
		o.nodes = []*backends.Server{o.upstream}
	}
	for _, n := range o.nodes {
		if n.MasterSet() != "" {
			o.warnings = append(o.warnings, n.String()+": a lock node whose master sentinels choose is weaker than one that stays the same: replication is asynchronous, and a failover may forget locks and fences")
		}
	}
	if n := len(o.nodes); n > 0 && n%2 == 0 {
		o.warnings = append(o.warnings, fmt.Sprintf("%d lock nodes survive the loss of %d, as %d would: an even number only adds a node that can fail", n, n/2-1, n-1))
	}
	o.warnings = append(o.warnings, o.adoptWarnings()...)
}
