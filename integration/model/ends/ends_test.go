package main

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// search visits at most 5 million states, or under -short as many as take a moment.
func search(t *testing.T, c *Config) explore.Result {
	t.Helper()
	return explore.Test(t, 5_000_000, 100_000, c.search)
}

func TestSoundRulesHold(t *testing.T) {
	tests := []struct {
		name     string
		c        *Config
		happened []string
	}{
		{"a long and a short hold, and a rival", twoHolds(), []string{unlocked, grantedB}},
		{"a hold renewed through the other proxy, and a rival", renewedElsewhere(), []string{unlocked, grantedB}},
		{"a second hold is taken", reentering(), []string{locked, unlocked}},
		{"the lease is shortened, and a rival", shortened(), []string{renewed, unlocked, grantedB}},
		{"a hold that one node lacks is renewed, and a rival", renewingPartly(), []string{renewed, unlocked, grantedB}},
		{"so is one by a proxy that does not know of it", renewingApart(), []string{renewed, unlocked, grantedB}},
		{"a shortened lease lapses", lapsing(), []string{renewed}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := search(t, tt.c)
			res.Holds(t)
			if n := res.Counts[noRoom]; n > 0 {
				t.Errorf("%d steps left out for want of room", n)
			}
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
