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

func world() Config {
	return Config{Rules: soundRules(), Owners: 2, Seats: 1, TTL: 2, Ticks: 5, Asks: 1, Renewals: 1}
}

func TestSoundRulesHold(t *testing.T) {
	res := search(t, world())
	res.Holds(t)
	res.Happened(t, granted, renewed, instead, given, vanished, late)
}

func TestSoundRulesHold_SeveralSeats(t *testing.T) {
	c := world()
	c.Seats, c.Ticks, c.Renewals = 2, 4, 0
	res := search(t, c)
	res.Holds(t)
	res.Happened(t, granted, instead, beside, given, vanished, late)
}

func TestEachRuleIsNeeded(t *testing.T) {
	for _, name := range []string{"seat", "clear", "both", "lease", "ended"} {
		t.Run(name, func(t *testing.T) {
			c := world()
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
