package etcd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// Leases of etcd only clear up behind proxies that are gone, so many keys share one: each is granted for a few seconds more
// than is needed, is used for new keys during these seconds, and ends by itself. None is ever renewed. So it makes no
// difference that a leader of etcd which was overthrown while it hung, and does not know of renewals since, may have leases
// revoked when it wakes: it counts from the grant, and so do we.
type leases struct {
	mu    sync.Mutex
	kinds map[int64]*lease // by the seconds that are needed
}

// A lease is the one that is used for a kind.
type lease struct {
	turn  chan struct{} // whoever has it, grants or looks
	id    string
	until time.Duration // it ends no earlier, by our clock
}

const (
	spareSeconds = 4 // that a lease is longer than needed, at least
	spareShare   = 8 // and this part of what is needed
)

// kindOf is the seconds of a lease, without what it has to spare.
func kindOf(need time.Duration) int64 {
	seconds := int64((need + locks.Drift(need) + time.Second - 1) / time.Second)
	for step := int64(1); ; step *= 2 { // so that there are few kinds
		if rounded := (seconds + step - 1) / step * step; rounded <= 64*step {
			return rounded
		}
	}
}

// lease is the id of a lease that lasts this long from now.
func (s *Store) lease(ctx context.Context, limit, need time.Duration) (string, error) {
	kind := kindOf(need)
	l := s.leases.of(kind)
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-l.turn }()
	asked := s.Now()
	if l.id != "" && l.until >= asked+need {
		return l.id, nil
	}
	ttl := kind + max(spareSeconds, kind/spareShare)
	var r leaseResponse
	if err := s.client.call(ctx, limit, "lease/grant", leaseRequest{TTL: ttl}, &r); err != nil {
		return "", err
	}
	if r.ID == "" || r.TTL < ttl {
		return "", fmt.Errorf("etcd gave a lease of %d s in place of %d s", r.TTL, ttl)
	}
	granted := time.Duration(ttl) * time.Second
	l.id, l.until = r.ID, asked+granted-locks.Drift(granted)
	return l.id, nil
}

// of is the lease of a kind.
func (l *leases) of(kind int64) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds[kind] == nil {
		l.kinds[kind] = &lease{turn: make(chan struct{}, 1)}
	}
	return l.kinds[kind]
}

// forget makes the next ones who need a lease get new ones: etcd has lost some.
func (l *leases) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.kinds)
}

// A floor is what fences begin above. It is kept in etcd, and checked by every change: if etcd is emptied, or an operator
// removes it, the next one is above all fences again, since it begins at the clock, and fences grow by the revisions since, which
// are slower. An etcd that was emptied counts revisions from one, so that another floor may be of the same revision: it is told by its value.
type floor struct {
	mu    sync.Mutex
	base  int64  // with a revision it makes a fence
	mod   int64  // the revision that wrote it; 0: it is not known
	value []byte // as it is in etcd
	high  bool   // it was high enough when this proxy first used it
}

const (
	floorMargin  = time.Minute // by how much clocks may differ: of proxies, and of the Redis servers whose fences were used before
	highestFloor = 1 << 52     // clients may keep fences in 53 bits

	floorStep = 2 * time.Second // a floor is not raised by less: in the seconds in which that may be done late, there are fewer revisions
)

// getFloor reads the floor, and writes one if there is none. A transaction is to have the condition that it is still there. The floor that a proxy
// finds when it starts is raised: larger fences may have been told since by Redis, or by this etcd before it was restored from a backup. That is
// under a lease of some seconds, after which etcd refuses to do it.
func (s *Store) getFloor(ctx context.Context, limit time.Duration) (base int64, is []compare, err error) {
	key := s.keys().floor()
	for mod := int64(0); ; {
		if base, is = s.floor.get(key); is != nil {
			return base, is, nil
		}
		lease, err := s.lease(ctx, limit, 0)
		if err != nil {
			return 0, nil, err
		}
		fresh := time.Now().Add(floorMargin)
		kv := &keyValue{Value: strconv.AppendInt(nil, fresh.UnixMicro(), 10)}
		var r txnResponse
		if err := s.client.call(ctx, limit, "kv/txn", txnRequest{
			Compare: []compare{modIs(key, mod)},
			Success: []requestOp{{Put: &putRequest{Key: key, Value: kv.Value}}, {Put: &putRequest{Key: s.keys().once("floor"), Value: []byte{}, Lease: lease}}},
			Failure: []requestOp{{Range: &rangeRequest{Key: key}}},
		}, &r); err != nil {
			return 0, nil, err
		}
		if kv.Mod = r.Revision; !r.Succeeded {
			found, err := r.at(0)
			if err != nil {
				return 0, nil, err
			}
			kv = found.first()
		}
		s.learnFloor(kv)
		mod = s.floor.compareTo(fresh, r.Revision)
	}
}

// compareTo notes whether fences have come as far as this floor would be. It returns the revision that wrote the present one; 0: there is none.
func (f *floor) compareTo(fresh time.Time, revision int64) (mod int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.high = f.high || f.mod != 0 && f.base+revision >= fresh.Add(-floorStep).UnixMicro()
	return f.mod
}

// get is what makes a fence of a revision, and the conditions on which it does; nil: the floor is not known, or to be raised.
func (f *floor) get(key []byte) (base int64, is []compare) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mod == 0 || !f.high {
		return 0, nil
	}
	return f.base, []compare{modIs(key, f.mod), valueIs(key, f.value)}
}

// learnFloor notes the floor as it was read; nil: there is none. One that is lower than it was, or no floor at all, somebody else wrote: it is to be
// raised.
func (s *Store) learnFloor(kv *keyValue) {
	f := &s.floor
	f.mu.Lock()
	defer f.mu.Unlock()
	if kv == nil {
		f.mod = 0
		return
	}
	value, err := strconv.ParseInt(strings.TrimSpace(string(kv.Value)), 10, 64)
	if err != nil || value < 0 || value > highestFloor {
		value = 0
	}
	f.high = f.high && value-kv.Mod >= f.base
	f.base, f.mod, f.value = value-kv.Mod, kv.Mod, kv.Value
	s.cache.base.Store(f.base)
}

func (s *Store) keys() keys { return keys{s.opts.Prefix} }
