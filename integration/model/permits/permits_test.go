package main

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// search visits at most 4 million states, or under -short as many as take a moment.
func search(t *testing.T, c *Config) explore.Result {
	t.Helper()
	return explore.Test(t, 4_000_000, 100_000, c.search)
}

func TestSoundRulesHold(t *testing.T) {
	for _, tt := range []struct {
		name     string
		c        *Config
		happened []string
	}{
		{"two owners, one seat", world("pp"), []string{permitGranted, refused, lowered, forgotten, gaveBack}},
		{"two owners, two seats", world("pq"), []string{beside, lowered, forgotten}},
		{"one enters again with the other's seat", world("gp"), []string{beside, entered, otherSeat}},
		{"a LOCK left behind in another seat", world("sp"), []string{permitGranted, otherSeat, refused}},
		{"a permit and a writer", world("pw"), []string{permitGranted, writeGranted, lowered, forgotten}},
		{"a permit and a plain reader", world("pr"), []string{permitGranted, readGranted}},
		{"an owner reads, and asks for a permit", world("xp"), []string{permitGranted, otherSeat}},
		{"a permit beside the owner's writing", world("dp"), []string{permitGranted, writeGranted}},
		{"clocks differ", world("pp", drifting), []string{permitGranted, refused}},
		{"votes are lost, and a node is ahead", world("pp", lossy, behind), []string{permitGranted, lowered}},
		{"a node forgets", world("pp", losing), []string{permitGranted, lost, restored}},
		{"a clock is stepped back", world("cp", stepping), []string{permitGranted, entered, stepped}},
		{"renewals, one seat", world("hp", renewing), []string{permitGranted, refused, readRenewed, readBack}},
		{"renewals and a writer", world("hw", renewing), []string{writeGranted, readRenewed, writeRenewed, readBack, writeBack}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := search(t, tt.c)
			res.Holds(t)
			res.Happened(t, tt.happened...)
		})
	}
}

func TestEachRuleIsNeeded(t *testing.T) {
	explore.EachIsNeeded(t, variants, func(t *testing.T, c Config, take func(*Rules)) explore.Result {
		take(&c.Rules)
		return search(t, &c)
	})
}
