package main

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// search visits at most 2 million states, or under -short as many as take a moment, and
// then skips the test.
func search(t *testing.T, c *Config) explore.Result {
	t.Helper()
	limit := 2_000_000
	if testing.Short() {
		limit = 100_000
	}
	res := c.search(limit)
	t.Logf("%d states", res.States)
	if testing.Short() && res.Broken == "" && !res.Exhausted {
		t.Skipf("undecided after %d states", res.States)
	}
	return res
}

func TestSoundRulesHold(t *testing.T) {
	tests := []struct {
		name     string
		c        *Config
		happened []string // without which the search proves nothing
	}{
		{"one proxy", world(2, 1, 0, oneProxy, noRival), []string{renewed, nowFree, holdLeft}},
		{"two proxies", world(2, 1, 0, noRival), []string{renewed, nowFree, holdLeft}},
		{"a rival", world(2, 1, 0, oneProxy), []string{renewed, grantedB, nowFree, holdLeft}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := search(t, tt.c)
			if res.Broken != "" {
				t.Fatalf("%s\n%s", res.Broken, strings.Join(res.Trace, "\n"))
			}
			if !res.Exhausted {
				t.Fatalf("not exhausted after %d states", res.States)
			}
			for _, what := range tt.happened {
				if res.Counts[what] == 0 {
					t.Errorf("never happened: %s", what)
				}
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
			c := *v.world
			v.take(&c.Rules)
			res := search(t, &c)
			if !strings.HasPrefix(res.Broken, v.breaks+":") {
				t.Fatalf("want %s broken; got %q after %d states", v.breaks, res.Broken, res.States)
			}
		})
	}
}
