package main

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// search visits at most 2 million states, or under -short as many as take a moment.
func search(t *testing.T, c *Config) explore.Result {
	t.Helper()
	return explore.Test(t, 2_000_000, 100_000, c.search)
}

func TestSoundRulesHold(t *testing.T) {
	for _, tt := range []struct {
		name     string
		c        *Config
		happened []string
	}{
		{"two owners want both names", world("AA"), []string{grantedAll, heldTold, refused, lowered, forgotten, gaveBack}},
		{"votes are lost, and a node is ahead", world("AA", lossy, behind), []string{grantedAll, heldTold, lowered}},
		{"another owner wants one of them", world("Ab"), []string{grantedAll, grantedOne, heldTold, lowered, forgotten}},
		{"clocks differ", world("Ab", drifting), []string{grantedAll, grantedOne, refused}},
		{"messages are executed twice", world("Ab", twice), []string{grantedAll, grantedOne, refused}},
		{"a node forgets", world("Ab", losing), []string{grantedAll, grantedOne, lost, restored}},
		{"one name has less time left", world("Sb", longer), []string{grantedAll, grantedOne}},
		{"an owner who has one of them", world("eb"), []string{entered, grantedAll, grantedOne, heldTold}},
		{"renewals, and a name is given back", world("H", renewing), []string{gaveBack, renewed, putBack}},
		{"renewals beside another owner", world("Kb", func(c *Config) { c.Renewals = 1 }), []string{grantedOne, gaveBack, renewed, putBack}},
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
