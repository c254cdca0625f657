package commands

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands/adopt"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// BenchmarkIsAdopted is what adoption costs a command whose key is no lock: without patterns, and with some.
func BenchmarkIsAdopted(b *testing.B) {
	for _, tt := range []struct{ name, patterns string }{
		{"off", ""},
		{"1 pattern", "lock:*"},
		{"4 near misses", "page:lock:* pages:* {job}:lock:* locked:*"},
	} {
		b.Run(tt.name, func(b *testing.B) {
			s := &Session{d: &Dispatcher{}}
			var all []*pattern.Pattern
			for text := range strings.FieldsSeq(tt.patterns) {
				p, err := pattern.Parse(text)
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, p)
			}
			if len(all) > 0 {
				var err error
				if s.d.opt.Adoption, err = adopt.New(all, adopt.Options{}); err != nil {
					b.Fatal(err)
				}
			}
			row := ordinaryRow
			args := [][]byte{[]byte("GET"), []byte("page:123456")}
			b.ReportAllocs()
			for b.Loop() {
				if s.isAdopted(row, args) {
					b.Fatal("it is a lock")
				}
			}
		})
	}
}
