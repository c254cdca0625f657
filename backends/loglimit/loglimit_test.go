package loglimit

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLimit_Due: each letter is a line that is due, with a digit where some were left out before it; a dot is a line that is left
// out, a space a second without one.
func TestLimit_Due(t *testing.T) {
	fast := Rule{First: 3, Then: 1, Window: 5 * time.Second}
	for _, tt := range []struct {
		name string
		rule Rule
		want string
	}{
		{"first of a storm", fast, "LLL.."},
		{"one a window while it lasts", fast, "LLL..2....4....4"},
		{"slow lines are all written", Rule{1, 1, 2 * time.Second}, "L L L L"},
		{"a window after a pause begins anew", fast, "LLL      LLL."},
		{"that lines were left out is told once, after the pause", fast, "LLL..       2."},
		{"as many in each window", Rule{2, 2, 4 * time.Second}, "LL..2L..2L"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l Limit
			var got strings.Builder
			for i, c := range tt.want {
				if c == ' ' {
					got.WriteRune(c)
					continue
				}
				switch leftOut, due := l.Due(tt.rule, time.Time{}.Add(time.Duration(i)*time.Second)); {
				case !due:
					got.WriteRune('.')
				case leftOut == 0:
					got.WriteRune('L')
				default:
					fmt.Fprint(&got, leftOut)
				}
			}
			if got.String() != tt.want {
				t.Errorf("%q, want %q", got.String(), tt.want)
			}
		})
	}
}

// TestLimit_LastState: after a storm the last change has a line when nothing has changed for ten seconds, and only one.
func TestLimit_LastState(t *testing.T) {
	var l Limit
	now := time.Now()
	for range Changes.First + 3 {
		now = now.Add(time.Second)
		l.State(true, now)
	}
	var due []string
	for second := range 30 {
		now = now.Add(time.Second)
		if leftOut, write := l.State(false, now); write {
			due = append(due, fmt.Sprint(leftOut, " at ", second+1))
		}
	}
	if len(due) != 1 || due[0] != "2 at 10" {
		t.Errorf("lines after the storm, with how many were left out: %v, want one with 2", due)
	}
}

// TestKinds_Bounded: however many kinds there are.
func TestKinds_Bounded(t *testing.T) {
	var k Kinds[string]
	now := time.Now()
	for i := range 3 * maxKinds {
		k.Due(strings.Repeat("x", i), "others", OnceAMinute, now)
	}
	if len(k.limits) > maxKinds+1 {
		t.Errorf("%d kinds are told apart", len(k.limits))
	}
	if leftOut, due := k.Due("new", "others", OnceAMinute, now.Add(time.Minute)); !due || leftOut != 2*maxKinds-1 {
		t.Errorf("the rest: %d, %t", leftOut, due)
	}
}
