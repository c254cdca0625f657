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

func world() Config { return Config{Rules: soundRules(), TTL: 2, Ticks: 5, Asks: 1} }

func TestSoundRulesHold(t *testing.T) {
	res := search(t, world())
	res.Holds(t)
	res.Happened(t, reads, writes, renewed, instead, late)
}

func TestEachRuleIsNeeded(t *testing.T) {
	for _, name := range []string{"writer", "range", "clear", "ended"} {
		t.Run(name, func(t *testing.T) {
			c := world()
			for _, r := range rulesOf(&c.Rules) {
				if r.Name == name {
					r.Take()
				}
			}
			res := search(t, c)
			res.Breaks(t, "X")
		})
	}
}
