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

func TestSoundRulesHold(t *testing.T) {
	for _, tt := range []struct {
		name     string
		c        Config
		happened []string
	}{
		{"an end, beside a keeper and a helper", ending(), []string{"EXPIRE is answered", "a keeper has renewed it", "a helper has renewed it", "a node refuses a renewal"}},
		{"an end, beside two helpers", helping(), []string{"EXPIRE is answered", "a helper has renewed it", "it lets the lock be"}},
		{"an end that is tried twice", endingTwice(), []string{"EXPIRE is answered", "a helper has renewed it"}},
		{"an end that is over", lapsing(), []string{"EXPIRE is answered", "the lease is over", "a keeper has renewed it", "it may reinstate"}},
		{"a release, and the next grant", releasing(), []string{"the release is answered", "a node grants the next", "a keeper has renewed it", "it may reinstate"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := search(t, tt.c)
			res.Holds(t)
			res.Happened(t, tt.happened...)
		})
	}
}

func TestEachRuleIsNeeded(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			v.take(&v.world.Rules)
			res := search(t, v.world)
			res.Breaks(t, v.breaks)
		})
	}
}
