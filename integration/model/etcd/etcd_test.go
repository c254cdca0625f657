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

func world() Config { return Config{Rules: soundRules(), TTL: 2, Ticks: 7, Renewals: 1} }

func TestSoundRulesHold(t *testing.T) {
	res := search(t, world())
	res.Holds(t)
	res.Happened(t, granted, renewed, removed, vanished, taken)
}

func TestEachRuleIsNeeded(t *testing.T) {
	for name, breaks := range map[string]string{"guard": "V", "began": "V", "void": "V", "seen": "V", "answer": "V", "lease": "V", "etcd": "F"} {
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
