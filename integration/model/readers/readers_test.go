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
		{"two readers", world("rr"), []string{readGranted, undone, forgotten, gaveBack}},
		{"two writers", world("ww"), []string{writeGranted, lowered, forgotten}},
		{"a reader and a writer", world("rw"), []string{readGranted, writeGranted, lowered, forgotten}},
		{"clocks differ", world("rw", drifting), []string{readGranted, writeGranted}},
		{"a writer leaves an intent", world("hrw", intending), []string{readGranted, writeGranted, intended, waits}},
		{"votes are lost, and a node is ahead", world("rw", lossy, behind), []string{readGranted, writeGranted, lowered}},
		{"a node forgets", world("rw", losing), []string{readGranted, writeGranted, lost, restored}},
		{"an owner reads twice", world("a", behind, lossy, losing), []string{readGranted, lowered, lost, restored}},
		{"an owner enters again", world("e", behind), []string{readGranted, entered}},
		{"renewals", world("hw", renewing), []string{writeGranted, readRenewed, writeRenewed, readBack, writeBack}},
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
