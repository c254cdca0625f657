package locks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestTopK(t *testing.T) {
	t.Parallel()
	var h topNames
	now := 5 * time.Minute
	for i := range 60_000 { // ten minutes of 100 LOCKs a second, most of them of names that come once
		now += 10 * time.Millisecond
		switch {
		case i%10 == 0:
			h.answered(Key{DB: 0, Name: "often"}, i%20 == 0, 0, now)
		case i%1000 == 1:
			h.answered(Key{DB: 1, Name: "slow"}, true, 20*time.Second, now)
		default:
			h.answered(Key{DB: 0, Name: fmt.Sprint("once:", i)}, true, time.Millisecond, now)
		}
	}
	asked, waited := h.asked.top(3, now), h.waited.top(3, now)
	if len(asked) != 3 || asked[0].Name != "often" || math.Abs(asked[0].Grants-300) > 30 || math.Abs(asked[0].Refusals-300) > 30 {
		t.Errorf("asked for: %+v", asked)
	}
	if len(waited) != 1 || waited[0].Name != "slow" || waited[0].DB != 1 || waited[0].Waited < 100*time.Second || waited[0].Waited > 140*time.Second {
		t.Errorf("waited for: %+v", waited)
	}
	if n := len(h.asked.byKey); n != hotNames || len(h.asked.entries) != n {
		t.Errorf("%d names known", n)
	}
	if later := h.asked.top(1, now+time.Minute); math.Abs(later[0].Grants-150) > 15 {
		t.Errorf("a minute later: %+v", later)
	}
	if later := h.asked.top(10, now+time.Hour); later != nil {
		t.Errorf("an hour later: %+v", later)
	}
}

// TestTopK_Bounded: no count is too large, however many other names come between, and
// also after the weights are scaled down.
func TestTopK_Bounded(t *testing.T) {
	t.Parallel()
	var h topNames
	rnd := rand.New(rand.NewPCG(1, 2))
	times := map[Key]int{}
	now := time.Duration(0)
	for range 20_000 {
		at := Key{DB: 0, Name: fmt.Sprint(int(math.Exp(rnd.Float64() * 9)))}
		times[at]++
		h.answered(at, true, 0, now)
	}
	f := math.Ln2 * float64(time.Minute) / float64(hotHalfLife)
	sure := 0
	for _, n := range h.asked.top(hotNames, now) {
		if had := float64(times[n.Key]) * f; n.Grants > had+0.001 {
			t.Errorf("%s is said to have had %.1f, and had %.1f", n.Name, n.Grants, had)
		} else if n.Grants > had*0.99 {
			sure++
		}
	}
	if sure < 100 {
		t.Errorf("only %d are known well", sure)
	}
	h.answered(Key{DB: 0, Name: "later"}, true, 0, now+2*time.Hour)
	if got := h.asked.top(5, now+2*time.Hour); len(got) != 1 || got[0].Name != "later" || math.Abs(got[0].Grants-f) > 0.001 {
		t.Errorf("after two hours: %+v", got)
	}
	h.answered(Key{DB: 0, Name: string(make([]byte, hotBytes+1))}, true, 0, now+2*time.Hour)
	if got := h.asked.top(5, now+2*time.Hour); len(got) != 1 {
		t.Errorf("a long name is known: %d", len(got))
	}
}
