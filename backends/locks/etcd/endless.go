package etcd

import (
	"cmp"
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// RenewEndless implements locks.EndlessRenewer. Since when a lock is held is known by the clock of the proxy that granted it. A key that cannot be
// read is an error, but all others are looked after.
func (s *Store) RenewEndless(ctx context.Context, maxHold time.Duration) (f locks.EndlessRenewals, err error) {
	next := locks.ListRequest{DB: locks.AllDBs, Count: listMost}
	damaged := error(nil)
	for {
		p, err := s.page(ctx, next)
		if err != nil {
			return f, err
		}
		for i, v := range p.views {
			if v != nil && len(v.holds) > 0 && v.rec.Open {
				f.Open++
				s.renewEndlessOne(ctx, p.names[i], v, maxHold, &f)
			}
		}
		damaged = cmp.Or(damaged, p.damaged)
		if next.Cursor = p.cursor; p.cursor == "0" {
			return f, damaged
		}
	}
}

// renewEndlessOne renews a lock without an end, if it is due: after a third of the lease one that was granted here, after half
// of it any other.
func (s *Store) renewEndlessOne(ctx context.Context, k locks.Key, seen *view, maxHold time.Duration, f *locks.EndlessRenewals) {
	maxTTL := s.opts.MaxTTL
	_, here := s.cache.made(k, seen.fence)
	due := maxTTL / 2
	if here {
		due = 2 * maxTTL / 3
	}
	ends := false
	var left time.Duration
	d, err := s.change(ctx, question{op: "RENEW", key: k, ttl: maxTTL}, func(v *view) (*write, error) {
		if len(v.holds) == 0 || v.fence != seen.fence || !v.rec.Open || v.remaining() >= due {
			return nil, nil
		}
		left = maxHold - since(v.rec.Since)
		ttl := maxTTL
		if ends = left <= maxTTL; ends {
			left = max(left, v.rest()).Truncate(time.Millisecond) + time.Millisecond
			ttl = left
		}
		w := renewal(v, ttl)
		w.rec.Open = !ends
		return w, nil
	})
	switch {
	case err != nil:
		f.Missed++
	case d == nil:
	case ends:
		f.Lapsing = append(f.Lapsing, locks.Lapsing{Key: k, Fence: seen.fence, Left: left})
	case here:
		f.Renewed++
	default:
		f.Adopted++
	}
}
