package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// readAdopt reads one pattern of keys that are locks. Its error has every fault in one line.
func (o *options) readAdopt(text string) error {
	p, err := pattern.Parse(text)
	if err != nil {
		return fmt.Errorf("%q: %s", text, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	o.adopt = append(o.adopt, p)
	return nil
}

// adoptFaults are the faults between patterns, and between one and other settings.
func (o *options) adoptFaults() (bad faults) {
	for i, p := range o.adopt {
		switch {
		case p.NoExpiry == 0, p.NoExpiry == idiom.Forever:
		case o.maxTTL != 0 && p.NoExpiry > o.maxTTL:
			bad = append(bad, fmt.Errorf("adopt: %q: no-expiry=lease:%s is over max-ttl, %s", p.Glob, p.NoExpiry, o.maxTTL))
		case p.NoExpiry < o.minTTL:
			bad = append(bad, fmt.Errorf("adopt: %q: no-expiry=lease:%s is under min-ttl, %s", p.Glob, p.NoExpiry, o.minTTL))
		}
		if p.Literal() != "" && o.prefix != "" && p.MatchesPrefix(o.prefix) {
			bad = append(bad, fmt.Errorf("adopt: %q matches keys of the proxy's own, which begin with key-prefix, %q: name yours more closely, or choose another key-prefix", p.Glob, o.prefix))
		}
		for _, earlier := range o.adopt[:i] {
			if earlier.Hides(p) {
				bad = append(bad, fmt.Errorf("adopt: %q is never used: all its keys match %q, which stands before it; put it first, or leave it out", p.Glob, earlier.Glob))
				break
			}
		}
	}
	return bad
}

// adoptsKeys reports whether the lock nodes decide about keys of some pattern.
func (o *options) adoptsKeys() bool {
	return slices.ContainsFunc(o.adopt, func(p *pattern.Pattern) bool { return p.Mode.Adopts() })
}

// adoptWarnings are of patterns that are legal but unwise.
func (o *options) adoptWarnings() (all []string) {
	for _, p := range o.adopt {
		if p.Literal() == "" {
			all = append(all, fmt.Sprintf("adopt: %q begins with no literal text: every argument of every command is compared with it, and it may match keys that are no locks", p.Glob))
		}
	}
	if n := len(o.nodes); o.adoptsKeys() && n < 3 && !o.store.IsEtcd() {
		all = append(all, fmt.Sprintf("adopt: with %s adopted locks cannot be had while one is down, and are no safer than on one Redis: name three or five", plural(n, "lock node")))
	}
	return all
}

// logAdoption logs which keys are locks, a line for each pattern.
func logAdoption(log *slog.Logger, patterns []*pattern.Pattern) {
	for _, p := range patterns {
		db, flush := "*", "keep"
		if p.DB >= 0 {
			db = fmt.Sprint(p.DB)
		}
		if p.Flush {
			flush = "release"
		}
		log.Info("pattern of adopted keys", "pattern", p.Glob, "db", db, "mode", p.Mode.String(), "as", p.As.String(), "no_expiry", p.NoExpiryText(), "flush", flush, "guard", p.Guard, "timestamps", cmp.Or(string(p.Deadlines), "off"), "fence_key", p.FenceKey)
	}
}

// newObserver returns nil if no setting asks for a report on keys that are used as locks.
func newObserver(o options, heard *idiom.Heard) (*observe.Observer, error) {
	if !o.adoptReport && len(o.adopt) == 0 {
		return nil, nil
	}
	opt := observe.Options{All: o.adoptReport, MinTTL: o.minTTL, MaxTTL: o.maxTTL, Dialect: heard.Dialect}
	for _, p := range o.adopt {
		mode := map[pattern.Mode]observe.Mode{pattern.Observe: observe.Observed, pattern.Both: observe.Adopted, pattern.On: observe.Adopted}[p.Mode]
		opt.Patterns = append(opt.Patterns, observe.Pattern{Glob: p.Glob, Literal: p.Literal(), Match: p.Matches, Mode: mode, As: p.As, NoExpiry: p.NoExpiry, Deadlines: p.Deadlines, FenceOf: p.FenceOf})
	}
	return observe.New(opt)
}
