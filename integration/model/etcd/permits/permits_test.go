package main

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// search visits at most 6 million states, or under -short as many as take a moment.
func search(t *testing.T, c Config) explore.Result {
	t.Helper()
	return explore.Test(t, 6_000_000, 100_000, c.search)
}

func world(kinds string, permits, ticks, renewals int) Config {
	return Config{Rules: soundRules(), Kinds: kinds, Permits: permits, TTL: 2, Ticks: ticks, Asks: 1, Renewals: renewals}
}

func TestSoundRulesHold(t *testing.T) {
	for name, w := range map[string]struct {
		Config
		happened []string
	}{
		"one permit":        {world("pp", 1, 5, 1), []string{granted, renewed, instead, given, late}},
		"two of three":      {world("ppp", 2, 4, 0), []string{granted, instead, beside, given, late}},
		"one who reads":     {world("rp", 1, 5, 0), []string{granted, reads, instead, given, late}},
		"both, two permits": {world("rp", 2, 4, 0), []string{granted, reads, beside}},
	} {
		t.Run(name, func(t *testing.T) {
			res := search(t, w.Config)
			res.Holds(t)
			res.Happened(t, w.happened...)
		})
	}
}

func TestEachRuleIsNeeded(t *testing.T) {
	for name, c := range map[string]Config{
		"created": world("pp", 1, 5, 1), "counted": world("pp", 1, 5, 1), "same": world("pp", 1, 5, 1), "ended": world("pp", 1, 5, 1), "kind": world("rp", 1, 4, 0),
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range rulesOf(&c.Rules) {
				if r.Name == name {
					r.Take()
				}
			}
			res := search(t, c)
			res.Breaks(t, "S")
		})
	}
}
