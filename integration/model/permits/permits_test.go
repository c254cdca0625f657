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

func TestEachRuleIsNeeded(t *testing.T) {
	for _, v := range variants {
		if v.world == nil {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			c := *v.world
			v.take(&c.Rules)
			res := search(t, &c)
			res.Breaks(t, v.breaks)
		})
	}
}
