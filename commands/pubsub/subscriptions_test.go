package pubsub

import (
	"slices"
	"strings"
	"testing"
)

func words(line string) (args [][]byte) {
	for _, w := range strings.Fields(line) {
		args = append(args, []byte(w))
	}
	return args
}

func TestSubscriptions(t *testing.T) {
	tests := []struct {
		name, commands string // one after the other, between ;
		want           [3]int // channels, patterns, shard channels
	}{
		{"none", "GET a; PING", [3]int{}},
		{"unsubscribe from nothing", "UNSUBSCRIBE; PUNSUBSCRIBE a", [3]int{}},
		{"each kind", "SUBSCRIBE a b; psubscribe a*; SSUBSCRIBE a", [3]int{2, 1, 1}},
		{"twice is once", "SUBSCRIBE a a; SUBSCRIBE a", [3]int{1, 0, 0}},
		{"one by name", "SUBSCRIBE a b; UNSUBSCRIBE b c", [3]int{1, 0, 0}},
		{"all of a kind", "SUBSCRIBE a b; PSUBSCRIBE a*; UNSUBSCRIBE", [3]int{0, 1, 0}},
		{"names of another kind", "SUBSCRIBE a; SUNSUBSCRIBE a; PUNSUBSCRIBE a", [3]int{1, 0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s Subscriptions
			for line := range strings.SplitSeq(tt.commands, ";") {
				s.Note(words(line))
			}
			if got := s.Counts(); got != tt.want || s.Any() != (tt.want != [3]int{}) {
				t.Errorf("%s: %v, any: %v", tt.commands, got, s.Any())
			}
		})
	}
	var s Subscriptions
	s.Note(words("SUBSCRIBE b a"))
	var names []string
	for _, n := range s.names(channels) {
		names = append(names, string(n))
	}
	if slices.Sort(names); !slices.Equal(names, []string{"a", "b"}) || !s.has(channels, "a") || s.has(patterns, "a") {
		t.Errorf("names %q", names)
	}
}

func TestParse_Begins(t *testing.T) {
	for command, want := range map[string]bool{"SUBSCRIBE": true, "psubscribe": true, "ssubscribe": true, "UNSUBSCRIBE": false, "pUnsubscribe": false, "SUNSUBSCRIBE": false} {
		if _, begins, _ := parse([]byte(command)); begins != want {
			t.Errorf("%s: not %v", command, want)
		}
	}
}
