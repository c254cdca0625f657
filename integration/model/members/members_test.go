package members

import (
	"strings"
	"testing"
)

func limit(t *testing.T) int {
	if testing.Short() {
		return 60_000
	}
	return 250_000
}

// holds wants no promise broken in the states there is time for, which are far more than
// those in which a rule that is taken away is missed.
func holds(t *testing.T, res Result) {
	t.Helper()
	t.Logf("%d states, all: %v", res.States, res.Exhausted)
	switch {
	case res.Broken != "":
		t.Fatalf("%s\n%s", res.Broken, strings.Join(res.Trace, "\n"))
	case res.Grants == 0:
		t.Error("nothing was granted")
	}
}

func breaks(t *testing.T, res Result, promise string) {
	t.Helper()
	switch {
	case res.Broken == "" && !res.Exhausted && testing.Short():
		t.Skipf("undecided after %d states", res.States)
	case !strings.HasPrefix(res.Broken, promise):
		t.Errorf("%q is broken in %d states, want %q", res.Broken, res.States, promise)
	default:
		t.Logf("%s\n%s", res.Broken, strings.Join(res.Trace, "\n"))
	}
}

func TestSetsHold(t *testing.T) {
	for name, c := range map[string]func(*Sets){
		"a node more":               func(c *Sets) { c.Begun = 0 },
		"and one less":              func(*Sets) {},
		"with a lease of before":    func(c *Sets) { c.Held, c.Begun = true, 2 },
		"with a fence of two nodes": func(c *Sets) { c.Fence, c.Begun = 2, 2 },
		"where a node forgets":      func(c *Sets) { c.Losses, c.Begun = 1, 2 },
		"what runs is read":         func(c *Sets) { c.Reads, c.Held, c.Lease = true, true, 2 },                             // of 1.8 million states
		"and one missed it":         func(c *Sets) { c.Reads, c.Held, c.Missed, c.Lease, c.Begun = true, true, true, 2, 2 }, // 0.9
		"and a node forgets":        func(c *Sets) { c.Reads, c.Held, c.Lease, c.Losses, c.Begun = true, true, 2, 1, 2 },    // 5.8
		"a node leaves and returns": func(c *Sets) { c.Returns, c.Reads, c.Held, c.Lease = true, true, true, 2 },            // 1.9
	} {
		t.Run(name, func(t *testing.T) {
			s := sound()
			c(&s)
			holds(t, s.Search(limit(t)))
		})
	}
}

func TestEachRuleOfSetsIsNeeded(t *testing.T) {
	for name, tt := range map[string]struct {
		takeAway func(*Sets)
		promise  string
	}{
		"nodes know their set":      {func(c *Sets) { c.Known, c.Held = false, true }, "two valid holders"},
		"one node at a time":        {func(c *Sets) { c.Overlaps, c.Held, c.Begun = false, true, 1 }, "two valid holders"},
		"leases of before are over": {func(c *Sets) { c.Waits, c.Held, c.Begun = false, true, 2 }, "two valid holders"},
		"a majority is read":        {func(c *Sets) { c.ReadAll, c.Reads, c.Held, c.Lease, c.Begun = false, true, true, 2, 2 }, "two valid holders"},
		"after the last change":     {func(c *Sets) { c.ReadLate, c.Reads, c.Held, c.Lease, c.Begun = false, true, true, 2, 2 }, "two valid holders"},
		"nodes that missed it":      {func(c *Sets) { c.ReadTold, c.Reads, c.Held, c.Missed, c.Lease, c.Begun = false, true, true, true, 2, 2 }, "two valid holders"},
		"fences are told":           {func(c *Sets) { c.Floors, c.Fence, c.Begun = false, 2, 2 }, "fence"},
		"nodes that forgot sit out": {func(c *Sets) { c.SitsOut, c.Losses, c.Held = false, 1, true }, "two valid holders"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sound()
			tt.takeAway(&s)
			breaks(t, s.Search(limit(t)), tt.promise)
		})
	}
}

func TestMaxTTLHolds(t *testing.T) {
	holds(t, MaxTTL{Kept: true, Told: true, Renewed: 2, Losses: 2}.Search(limit(t)))
}

func TestEachRuleOfMaxTTLIsNeeded(t *testing.T) {
	for name, c := range map[string]MaxTTL{
		"nodes keep the longest":            {Told: true, Renewed: 2, Losses: 2},
		"a majority tells what it knows of": {Kept: true, Renewed: 2, Losses: 2},
	} {
		t.Run(name, func(t *testing.T) { breaks(t, c.Search(limit(t)), "two valid holders") })
	}
}
