package vote

import (
	"cmp"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
)

// An OpenLease is a lease without an end on one node.
type OpenLease struct {
	locks.Holder
	Fence int64
	Rest  time.Duration // until it has to be renewed
}

// ParseOpen reads what open answers. A key that is not of a lock is passed over.
func ParseOpen(prefix string) Parse {
	return func(m []rueidis.RedisMessage) (Vote, error) {
		v := Vote{Kind: Yes, Page: &Page{}}
		var n int64
		if len(m) < 3 || len(m)%4 != 3 {
			return v, errors.New("no page of leases")
		}
		if err := cmp.Or(ReadText(m[1], &v.Page.Next), ReadInts(m[2:], &n)); err != nil {
			return v, err
		}
		v.Page.Open = int(n)
		for m = m[3:]; len(m) > 0; m = m[4:] {
			var key string
			var rest int64
			var l OpenLease
			err := cmp.Or(ReadText(m[0], &key), ReadText(m[1], &l.Owner), ReadInts(m[2:], &l.Fence, &rest))
			if err == nil {
				err = CheckFence(l.Fence)
			}
			if err != nil {
				return v, err
			}
			l.Rest = Millis(rest)
			if k, ok := nodekeys.Parse(prefix, key); ok {
				l.Key = k
				v.Page.Due = append(v.Page.Due, l)
			}
		}
		return v, nil
	}
}
