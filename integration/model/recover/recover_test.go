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

func TestSoundRulesHold(t *testing.T) {
	for _, tt := range []struct {
		name     string
		c        *Config
		happened []string
	}{
		{"a holder and a rival, and clocks differ", world("ha", 3, drifting, lossy), []string{granted, marked, lost}},
		{"two rivals, and rounds are slow", world("aa", 3, slower, lossy), []string{granted, marked, back}},
		{"two readers, of whom one renews, and a writer", world("ssa", 3, renewing, restoring), []string{granted, renewed, putBack, restored}},
		{"a writer that renews, and a reader", world("hr", 3, renewing, restoring), []string{shared, renewed, marked, restored}},
		{"five nodes", world("ha", 2, five), []string{granted, marked, back}},
		{"five nodes, and an operator ends the lock", world("e", 2, ending, restoring, five), []string{renewed, answered, marked}},
		{"a lock is kept beside a rival, and rounds are slow", world("ha", 3, renewing, slower, lossy), []string{granted, renewed, putBack, marked}},
		{"two nodes forget, or one twice, and may be back without a copy", world("ha", 2, losing, staying, lossy), []string{granted, marked, fellBack}},
		{"an operator ends a lock that is kept", world("h", 3, ending, lossy), []string{renewed, answered, putBack, marked}},
		{"the same, it is restored, and rounds are slow", world("e", 4, ending, restoring, slower), []string{renewed, answered, restored, restoredLate}},
		{"and a node forgets twice, or two do", world("e", 3, ending, restoring, losing), []string{renewed, answered, answeredInDoubt, restored, restoredLate}},
		{"or goes back to an older memory", world("e", 3, ending, restoring, saving), []string{renewed, answered, restored, cleared}},
		{"shorter renewals of a lock that is restored, beside a rival", world("ha", 4, renewing, shorter, restoring, slower), []string{granted, renewed, restored}},
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
