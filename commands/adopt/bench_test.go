package adopt

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// BenchmarkConcerns is what every command pays while there are patterns, and none matches.
func BenchmarkConcerns(b *testing.B) {
	for _, tt := range []struct{ name, patterns, command string }{
		{"GET, 1 pattern", "lock:*", "GET page:123456"},
		{"GET, 4 near misses", "lock:* lease:* {job}:lock:* locked:*", "GET lost:123456"},
		{"SET EX, 1 pattern", "lock:*", "SET page:123456 some-value EX 60"},
		{"MSET of 200, 1 pattern", "lock:*", "MSET" + strings.Repeat(" page:123456 some-value", 200)},
	} {
		b.Run(tt.name, func(b *testing.B) {
			var all []*pattern.Pattern
			for text := range strings.FieldsSeq(tt.patterns) {
				p, err := pattern.Parse(text)
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, p)
			}
			a, err := New(all, Options{})
			if err != nil {
				b.Fatal(err)
			}
			var args [][]byte
			for word := range strings.FieldsSeq(tt.command) {
				args = append(args, []byte(word))
			}
			b.ReportAllocs()
			for b.Loop() {
				if a.Concerns(args) {
					b.Fatal("it concerns adoption")
				}
			}
		})
	}
}

// BenchmarkCall is making a call of a script: one that is known, and one that is seen for the first time.
func BenchmarkCall(b *testing.B) {
	p, err := pattern.Parse("lock:*")
	if err != nil {
		b.Fatal(err)
	}
	a, err := New([]*pattern.Pattern{p}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	c := &client{a: a, proto: 2}
	for _, seen := range []bool{true, false} {
		b.Run(fmt.Sprint("known ", seen), func(b *testing.B) {
			n := 0
			for b.Loop() {
				text := compareAndDelete
				if !seen {
					n++
					text += fmt.Sprint(" -- ", n)
				}
				words := [][]byte{[]byte("EVAL"), []byte(text), []byte("1"), []byte("lock:a"), []byte("me")}
				call, err := a.Call(c, words, Keys{[]int{3}, true})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := call.Run(idiom.State{}, time.Now()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPattern(b *testing.B) {
	for _, glob := range []string{"lock:*", "lock:*:user:?*"} {
		b.Run(glob, func(b *testing.B) {
			p, err := pattern.Parse(glob)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if !p.Matches(0, "lock:eu-west:user:4711") {
					b.Fatal("no match")
				}
			}
		})
	}
}

// TestPatterns_FirstCounts: a pattern that is not on keeps its keys out of those behind it.
func TestPatterns_FirstCounts(t *testing.T) {
	p := proxies(t, 1, "lock:public:* mode=off", "lock:seen:* mode=observe", "lock:db:* db=7 mode=off", "lock:*")[0]
	for key, want := range map[string]string{"lock:a": "$-1", "lock:public:a": "no lock", "lock:seen:a": "no lock", "lock:db:a": "$-1"} {
		if got := p.do("GET", key); got != want {
			t.Errorf("%s: %s, not %s", key, got, want)
		}
	}
}
