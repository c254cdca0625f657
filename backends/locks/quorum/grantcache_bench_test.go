package quorum

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// BenchmarkOldest is the question of a scrape, with so many grants that run.
func BenchmarkOldest(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, err := newGrantCache(n, func() time.Duration { return time.Second }, new(metrics.Histogram))
			if err != nil {
				b.Fatal(err)
			}
			for i := range n {
				m.addHold(locks.Holder{Key: locks.Key{Name: fmt.Sprint(i)}, Owner: "alice"}, grant{fence: 7, version: vote.Version{Epoch: "e"}}, hold{fmt.Sprint(i), time.Minute}, 0, 1, 0)
			}
			for b.Loop() {
				m.oldest()
			}
		})
	}
}
