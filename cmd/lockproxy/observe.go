package main

import (
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

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
