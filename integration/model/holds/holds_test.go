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
	tests := []struct {
		name     string
		c        *Config
		happened []string
	}{
		{"one proxy", world(2, 1, 0, oneProxy, noRival), []string{renewed, nowFree, holdLeft}},
		{"two proxies", world(2, 1, 0, noRival), []string{renewed, nowFree, holdLeft}},
		{"a rival", world(2, 1, 0, oneProxy), []string{renewed, grantedB, nowFree, holdLeft}},
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
