package main

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// search visits at most 5 million states, or under -short as many as take a moment.
func search(t *testing.T, c Config) explore.Result {
	t.Helper()
	return explore.Test(t, 5_000_000, 200_000, func(limit int) explore.Result { return Search(c, limit) })
}

func TestSoundRulesHold(t *testing.T) {
	tests := []struct {
		name                       string
		c                          Config
		renewed, granted, unlocked bool // what must have happened for the search to prove anything
	}{
		{"one renewal over any proxy", small(), true, true, false},
		{"an old short renewal is under way", pending(small(), 1), true, true, false},
		{"a node forgets", losing(small()), true, true, false},
		{"a session and a foreign unlock", session(), true, false, true},
		{"renewals after the lease has lapsed", lapsing(2), true, false, false},
		{"renewals after a longer lease has lapsed", longer(lapsing(2)), true, false, false},
		{"more renewals after it has lapsed, all through one proxy", throughOneProxy(lapsing(3)), true, false, false},
		{"an operator takes a renewed lock away", forcedRenewal(), true, true, false},
		{"an operator takes a session's lock away", forcedSession(), true, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := search(t, tt.c)
			res.Holds(t)
			if n := res.Counts[noRoom]; n > 0 {
				t.Errorf("%d steps left out for want of a round", n)
			}
			if res.Counts[renewed] > 0 != tt.renewed || res.Counts[granted] > 0 != tt.granted || res.Counts[unlocked] > 0 != tt.unlocked {
				t.Errorf("happened: %v", res.Counts)
			}
		})
	}
}

func TestEachRuleIsNeeded(t *testing.T) {
	for _, v := range variants {
		if v.world == nil {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			c := v.world()
			v.take(&c.Rules)
			res := search(t, c)
			if !strings.HasPrefix(res.Broken, v.breaks) || res.Broken == "" {
				t.Fatalf("want %s broken; got %q after %d states", v.breaks, res.Broken, res.States)
			}
			if last := res.Trace[len(res.Trace)-1]; !strings.Contains(last, res.Broken) {
				t.Errorf("the trace ends with %q", last)
			}
		})
	}
}

func TestNthLargest(t *testing.T) {
	tests := []struct {
		v    []int
		n    int
		want int
	}{
		{[]int{3}, 1, 3},
		{[]int{1, 3, 2}, 2, 2},
		{[]int{2, 2, 0}, 2, 2},
		{[]int{5, 0, 1}, 3, 0},
	}
	for _, tt := range tests {
		if got := nthLargest(append([]int(nil), tt.v...), tt.n); got != tt.want {
			t.Errorf("nthLargest(%v, %d) = %d, want %d", tt.v, tt.n, got, tt.want)
		}
	}
}
