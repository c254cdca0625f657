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
	for _, tt := range []struct {
		name     string
		c        *Config
		happened []string
	}{
		{"a late vote", late(), []string{granted, lowered, undone, forgot}},
		{"somebody else wants the name", rivals(), []string{granted, undone, forgot}},
		{"a late vote beside a rival", late().with(func(c *Config) { c.Rivals = 1 }), []string{granted, lowered, forgot}},
		{"votes are lost", late().with(func(c *Config) { c.Rivals, c.Lossy = 1, true }), []string{granted, lowered, forgot}},
		{"two rivals", rivals().with(func(c *Config) { c.Rivals, c.Behind = 2, true }), []string{granted, forgot}},
		{"a re-entry", entering(), []string{entered, lowered, forgot}},
		{"a re-entry with a smaller proposal", rivals().with(func(c *Config) { c.Again, c.Behind = true, true }), []string{entered, raised, forgot}},
		{"two LOCKs at once", entering().with(func(c *Config) { c.AtOnce = true }), []string{entered, granted, lowered, refused}},
		{"it is given back", givingBack(), []string{granted, gaveBack, lowered}},
		{"leases lapse", lapsing(), []string{granted, lapsed, lowered, refused}},
		{"leases lapse, and it is given back", rivals().with(func(c *Config) { c.Lapses, c.Behind, c.Releases = 2, true, true }), []string{granted, lapsed, gaveBack}},
		{"a re-entry is undone, or the first LOCK", undoing(), []string{entered, gaveBack, remembers, forgot}},
		{"counters are gone", old(), []string{granted, forgot}},
		{"a node forgets", late().with(func(c *Config) { c.Rivals, c.Losses = 1, 1 }), []string{granted, lost, lowered}},
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
