package main

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// search visits at most 1 million states, or under -short as many as take a moment.
func search(t *testing.T, c *Config) explore.Result {
	t.Helper()
	return explore.Test(t, 1_000_000, 100_000, c.search)
}

func TestSoundRulesHold(t *testing.T) {
	for _, kinds := range []string{"AAAA", "AAab", "AABB", "AAbd", "oAbb", "oAbd"} {
		t.Run(kinds, func(t *testing.T) {
			res := search(t, &Config{Rules: soundRules(), Kinds: kinds})
			res.Holds(t)
			res.Happened(t, granted, refused, cameIn)
		})
	}
}

func TestEachRuleIsNeeded(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			c := Config{Rules: soundRules(), Kinds: v.world}
			v.take(&c.Rules)
			res := search(t, &c)
			res.Breaks(t, "D")
		})
	}
}
