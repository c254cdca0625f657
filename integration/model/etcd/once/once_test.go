package main

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

func search(t *testing.T, c Config) explore.Result {
	t.Helper()
	return explore.Test(t, 6_000_000, 6_000_000, c.search)
}

func TestSoundRulesHold(t *testing.T) {
	res := search(t, Config{soundRules()})
	res.Holds(t)
	res.Happened(t, given, refused, again, undone, late, vanished)
}

func TestEachRuleIsNeeded(t *testing.T) {
	for name, breaks := range map[string]string{"mark": "N", "refused": "N", "own": "L", "same": "N", "undo": "N", "before": "N", "longer": "N"} {
		t.Run(name, func(t *testing.T) {
			c := Config{soundRules()}
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
