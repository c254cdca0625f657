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

// A node's fault is said once, and how fast it answers only while it does.
func TestQuorum_Write(t *testing.T) {
	voting := Node{Address: "n1", Up: true, State: "voting", Answered: 332, Fence: 9}
	down := Node{Address: "n2", State: "down (connection refused)", For: 1000, Answered: 332, Error: "connection refused"}
	forgot := Node{Address: "n4", Up: true, State: "quarantine", Quarantine: 58000, Error: "quarantine for 58s"}
	doubts := Node{Address: "n5", Up: true, State: "voting", Doubt: 754000}
	list := Node{Address: "n3", Up: true, State: "other list", Answered: 1000, Error: "has n1,n2"}
	for _, tt := range []struct {
		other Node
		want  string
	}{
		{down, "NODE  STATE                      FOR   ANSWERED IN  QUEUED  LARGEST FENCE\n" +
			"n1    voting                     0ms   332µs        0       9\n" +
			"n2    down (connection refused)  1.0s  –            0       0\n"},
		{forgot, "NODE  STATE       FOR  QUARANTINE  ANSWERED IN  QUEUED  LARGEST FENCE\n" +
			"n1    voting      0ms              332µs        0       9\n" +
			"n4    quarantine  0ms  58.0s       0s           0       0\n"},
		{doubts, "NODE  STATE   FOR  IN DOUBT  ANSWERED IN  QUEUED  LARGEST FENCE\n" +
			"n1    voting  0ms            332µs        0       9\n" +
			"n5    voting  0ms  12m34s    0s           0       0\n"},
		{list, "NODE  STATE       FOR  ANSWERED IN  QUEUED  LARGEST FENCE  ERROR\n" +
			"n1    voting      0ms  332µs        0       9\n" +
			"n3    other list  0ms  1ms          0       0              has n1,n2\n"},
	} {
		var b strings.Builder
		if err := (Quorum{Voting: 1, Needed: 2, Nodes: []Node{voting, tt.other}}).Write(&b); err != nil {
			t.Fatal(err)
		}
		if want := "1 of 2 nodes vote, 2 are needed: NO QUORUM: no lock is granted\n" + tt.want; b.String() != want {
			t.Errorf("got\n%s\nwant\n%s", b.String(), want)
		}
	}
}

// Where the next loss costs the majority, that is said; not where all vote.
func TestQuorum_WriteSpare(t *testing.T) {
	for _, tt := range []struct {
		voting, nodes int64
		want          string
	}{
		{1, 1, "1 of 1 nodes vote, 1 are needed: a majority votes"},
		{2, 2, "2 of 2 nodes vote, 2 are needed: a majority votes"},
		{3, 5, "3 of 5 nodes vote, 3 are needed: one loss more, and no lock is granted"},
		{4, 5, "4 of 5 nodes vote, 3 are needed: a majority votes"},
	} {
		var b strings.Builder
		if err := (Quorum{Voting: tt.voting, Needed: tt.nodes/2 + 1, Nodes: make([]Node, tt.nodes)}).Write(&b); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := strings.Cut(b.String(), "\n"); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// Of a name that is only shared nothing is said of an owner; those who share have a column only if there are any.
func TestWriteLocks_Readers(t *testing.T) {
	held := Lock{Name: "a", Owner: "o", Held: 1000, Remaining: 2000, Holds: 1, Votes: 3, Fence: 7}
	both, read := held, Lock{Name: "c", Remaining: 3000, Readers: 12, Waiters: 1}
	both.Name, both.Readers = "b", 1
	for want, locks := range map[string][]Lock{
		"NAME  OWNER  HELD  LEFT  WAITING  HOLDS  VOTES  FENCE\na     o      1.0s  2.0s  0        1      3      7\n": {held},
		"NAME  OWNER  HELD  LEFT  WAITING  HOLDS  SHARED  VOTES  FENCE\n" +
			"a     o      1.0s  2.0s  0        1              3      7\n" +
			"b     o      1.0s  2.0s  0        1      1       3      7\n" +
			"c                  3.0s  1               12\n": {held, both, read},
	} {
		var b strings.Builder
		if err := WriteLocks(&b, locks); err != nil || b.String() != want {
			t.Errorf("%v, got\n%s\nwant\n%s", err, b.String(), want)
		}
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
