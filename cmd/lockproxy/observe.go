package main

import (
	"github.com/lockproxy/lockproxy/commands/adopt"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
)

// newObserver returns nil if no setting asks for a report on keys that are used as locks.
func newObserver(o options, heard *idiom.Heard) (*observe.Observer, error) {
	if !o.adoptReport && len(o.adopt) == 0 {
		return nil, nil
	}
	opt := observe.Options{All: o.adoptReport, MinTTL: o.minTTL, MaxTTL: o.maxTTL, Dialect: heard.Dialect}
	for _, p := range o.adopt {
		mode := map[adopt.Mode]observe.Mode{adopt.Observe: observe.Observed, adopt.Both: observe.Adopted, adopt.On: observe.Adopted}[p.Mode]
		opt.Patterns = append(opt.Patterns, observe.Pattern{Glob: p.Glob, Literal: p.Literal(), Match: p.Matches, Mode: mode, As: p.As, NoExpiry: p.NoExpiry, Deadlines: p.Deadlines, FenceOf: p.FenceOf})
	}
	return observe.New(opt)
}
