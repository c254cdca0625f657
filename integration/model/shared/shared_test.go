package main

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// search visits at most 3 million states, or under -short as many as take a moment.
func search(t *testing.T, c Config) explore.Result {
	t.Helper()
	return explore.Test(t, 3_000_000, 100_000, c.search)
}

func world() Config { return Config{Rules: soundRules(), Changes: 2, Commands: 3} }

func TestSoundRulesHold(t *testing.T) {
	res := search(t, world())
	res.Holds(t)
	res.Happened(t, replies, changes)
}

func TestEachRuleIsNeeded(t *testing.T) {
	for name, breaks := range map[string]string{"arrived": "A", "changed": "B", "ordered": "B"} {
		t.Run(name, func(t *testing.T) {
			c := world()
			for _, r := range rulesOf(&c.Rules) {
				if r.Name == name {
					r.Take()
				}
			}
			res := search(t, c)
			res.Breaks(t, breaks)
		})
	}
}
