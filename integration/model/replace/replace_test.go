package main

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// search visits at most 3 million states, or under -short as many as take a moment.
func search(t *testing.T, c *Config) explore.Result {
	t.Helper()
	return explore.Test(t, 3_000_000, 100_000, c.search)
}

func TestSoundRulesHold(t *testing.T) {
	tests := []struct {
		name     string
		c        *Config
		happened []string
	}{
		{"somebody else wants the lock", beside(), []string{replaced, granted, undone}},
		{"the grant is renewed meanwhile", renewing(), []string{replaced, renewed, undone}},
		{"its owner unlocks", unlocking(), []string{replaced, unlocked, undone}},
		{"its owner unlocks, and a node forgets", unlockingForgotten(), []string{replaced, unlocked, undone}},
		{"its owner unlocks once", unlockingOnce(), []string{replaced, unlocked, undone}},
		{"two replace it", twice(), []string{replaced, undone}},
		{"the second replaces the first", chain(), []string{replaced, undone}},
		{"a node forgets", forgetting(), []string{replaced, granted, undone}},
	}
	for _, tt := range tests {
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
