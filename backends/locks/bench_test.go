package locks

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkLockUnlock is one uncontended LOCK and UNLOCK, on 1, 3 and 5 real masters.
func BenchmarkLockUnlock(b *testing.B) {
	for _, nodes := range []int{1, 3, 5} {
		for _, callers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("nodes=%d/callers=%d", nodes, callers), func(b *testing.B) {
				s, _ := start(b, nodes)
				lock(b, s, "warm", "", time.Second)
				b.ReportAllocs()
				b.SetParallelism(max(1, callers/2))
				var caller atomic.Int64
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					name := strconv.FormatInt(caller.Add(1), 10)
					for pb.Next() {
						cycle(b, s, name)
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
			})
		}
	}
}

func cycle(b *testing.B, s *Service, name string) {
	ctx := context.Background()
	a, err := s.Lock(ctx, LockRequest{Name: name, TTL: 10 * time.Second})
	if err != nil || !a.Granted {
		b.Errorf("LOCK: %+v, %v", a, err)
		return
	}
	if _, err := s.Unlock(ctx, UnlockRequest{Name: name, Owner: a.Grant.Owner}); err != nil {
		b.Error(err)
	}
}
