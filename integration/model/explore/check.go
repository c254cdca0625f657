package explore

import (
	"strings"
	"testing"
)

// Test searches at most limit states, or under -short no more than short, and then skips the test if
// that decided nothing.
func Test(t *testing.T, limit, short int, search func(limit int) Result) Result {
	t.Helper()
	if testing.Short() {
		limit = short
	}
	res := search(limit)
	t.Logf("%d states", res.States)
	if testing.Short() && res.Broken == "" && !res.Exhausted {
		t.Skipf("undecided after %d states", res.States)
	}
	return res
}

// Holds wants every state to have been visited and no promise to be broken.
func (r Result) Holds(t *testing.T) {
	t.Helper()
	if r.Broken != "" {
		t.Fatalf("%s\n%s", r.Broken, strings.Join(r.Trace, "\n"))
	}
	if !r.Exhausted {
		t.Fatalf("not exhausted after %d states", r.States)
	}
}

// Breaks wants this promise to be broken.
func (r Result) Breaks(t *testing.T, promise string) {
	t.Helper()
	if !strings.HasPrefix(r.Broken, promise+":") {
		t.Fatalf("want %s broken; got %q after %d states", promise, r.Broken, r.States)
	}
	t.Logf("%s: %d steps", r.Broken, len(r.Trace)-1)
}

// Happened wants every one of these to be counted: without them the search proves nothing.
func (r Result) Happened(t *testing.T, steps ...string) {
	t.Helper()
	for _, what := range steps {
		if r.Counts[what] == 0 {
			t.Errorf("never happened: %s", what)
		}
	}
}

// EachIsNeeded takes each rule away that a search has found to be needed, and wants the promise broken that it keeps. search is given a
// copy of the variant's world, in whose rules take is to be called.
func EachIsNeeded[R, C any](t *testing.T, variants []Variant[R, C], search func(t *testing.T, world C, take func(*R)) Result) {
	for _, v := range variants {
		if v.World == nil {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			search(t, *v.World, v.Take).Breaks(t, v.Breaks)
		})
	}
}
