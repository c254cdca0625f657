package inspect

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0ms": 0, "999ms": 999 * time.Millisecond, "1.0s": time.Second, "59.9s": time.Minute - time.Millisecond, "1m00s": time.Minute,
		"59m59s": time.Hour - time.Millisecond, "1h00m": time.Hour, "23h59m": 24*time.Hour - time.Second, "1d00h": 24 * time.Hour, "11d13h": 277 * time.Hour,
	} {
		if got := short(d.Milliseconds()); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestTable_EmptyCellsAndColumns(t *testing.T) {
	var b strings.Builder
	if err := table(&b, []string{"A", "B", "C", "D"}, [][]string{{"1", "", "", "x"}, {"", "", "333", ""}}); err != nil {
		t.Fatal(err)
	}
	if want := "A  C    D\n1       x\n   333\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestSort(t *testing.T) {
	locks := []Lock{{Name: "b", Held: 1, Remaining: 9, Waiters: 1}, {Name: "a", Held: 2, Remaining: 8, Waiters: 1}, {Name: "c", Held: 3, Remaining: 7}}
	for by, want := range map[string]string{"name": "abc", "held": "cab", "left": "cab", "waiting": "bac"} {
		sorted := slices.Clone(locks)
		Sort(sorted, by)
		var got string
		for _, l := range sorted {
			got += l.Name
		}
		if got != want {
			t.Errorf("%s: %s, want %s", by, got, want)
		}
	}
}

// A picture never scrolls the terminal, and leaves nothing of the one before.
func TestTop_FitsTheTerminal(t *testing.T) {
	top := Top{Size: func() (columns, lines int) { return 5, 2 }}
	if got, want := top.fit("one\n作業作業作業\nthree\n"), "\x1b[Hone\x1b[K\r\n作業作業作\x1b[K\x1b[J"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTop_Rates(t *testing.T) {
	var top Top
	at := time.Now()
	for _, tt := range []struct {
		grants, uptime string
		after          time.Duration
		want           string
	}{
		{"100", "50", 0, "grants 2.0 "},                // since the start
		{"130", "52", 2 * time.Second, "grants 15.0 "}, // since the last picture
		{"130", "53", 3 * time.Second, "grants 0.0 "},
		{"4", "1", 5 * time.Second, "grants 2.0 "}, // it has been started again
	} {
		got := top.rates(map[string]string{"grants": tt.grants, "uptime_in_seconds": tt.uptime}, at.Add(tt.after))
		if !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
