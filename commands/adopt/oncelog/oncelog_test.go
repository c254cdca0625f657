package oncelog

import (
	"strings"
	"testing"
	"time"
)

// TestLimiter_Bounded: however many kinds there are.
func TestLimiter_Bounded(t *testing.T) {
	var l Limiter
	now := time.Now()
	for i := range 3 * maxKinds {
		l.Due(Kind{"lock:*", strings.Repeat("x", i)}, now)
	}
	if len(l.kinds) > maxKinds+1 {
		t.Errorf("%d kinds are told apart", len(l.kinds))
	}
	if leftOut, due := l.Due(Kind{"lock:*", "new"}, now.Add(every)); !due || leftOut != 2*maxKinds-1 {
		t.Errorf("the rest: %d, %t", leftOut, due)
	}
}
