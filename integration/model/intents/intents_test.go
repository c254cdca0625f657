package main

import (
	"fmt"
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

func TestSoundRulesHold(t *testing.T) {
	for _, c := range []Config{times(1, 2), times(3, 8), times(8, 16), {Kinds: "M"}, {Kinds: "MS"}, {Kinds: "MSS"}, {Kinds: "MM"}, {Kinds: "MMS"}, {Kinds: "MMM"}} {
		t.Run(fmt.Sprint(c.Kinds, c.Hold), func(t *testing.T) {
			c.Rules = soundRules()
			res := explore.Test(t, 2_000_000, 100_000, c.search)
			res.Holds(t)
		})
	}
}

// TestIntentsThatAreTooShort: what is kept for longer than the longest intent may be taken again and again, each after the other.
func TestIntentsThatAreTooShort(t *testing.T) {
	c := times(8, 4)
	c.Rules = soundRules()
	explore.Test(t, 100_000, 100_000, c.search).Breaks(t, "E")
}

func TestEachRuleIsNeeded(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			c := v.world
			c.Rules = soundRules()
			v.take(&c.Rules)
			explore.Test(t, 2_000_000, 100_000, c.search).Breaks(t, "E")
		})
	}
}
