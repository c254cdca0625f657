package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/chores"
)

// undoLater takes holds back.
func (s *Store) undoLater(k locks.Key, ids ...string) {
	s.undoUnanswered(nil, s.opts.MaxTTL, undoing{k, ids})
}

// An undoing is of holds of one name.
type undoing struct {
	key locks.Key
	ids []string
}

// undoUnanswered takes the holds of a LOCK back whose last write was not answered. It may still be on its way: one on a free name is marked as
// done, and the others are looked for once more. Where etcd does not let it for ttl, that of the LOCK, the holds have ended by themselves.
func (s *Store) undoUnanswered(w *write, ttl time.Duration, all ...undoing) {
	s.stats.undos.Add(1)
	undo := func(ctx context.Context) error {
		if err := s.mark(ctx, w); err != nil {
			return err
		}
		var failed error
		for _, u := range all {
			freed, err := s.take(ctx, u.key, u.ids)
			if freed {
				s.host.Lines.Wake(u.key.Whole())
			}
			failed = errors.Join(failed, err)
		}
		return failed
	}
	now := s.Now()
	again := now + 2*mostLimit
	s.chores.Add(&chores.Chore{At: now, Until: again + ttl, Urgent: true, Do: undo})
	s.chores.Add(&chores.Chore{At: again, Until: again + ttl, Do: undo})
}

// mark has a write on a free name never done from now on. The mark stays for longer than the lease which that write needs.
func (s *Store) mark(ctx context.Context, w *write) error {
	if w == nil || w.once == nil {
		return nil
	}
	limit := s.limit(s.opts.MaxTTL)
	lease, err := s.lease(ctx, limit, 2*w.need+memoryExtra)
	if err != nil {
		return err
	}
	put := requestOp{Put: &putRequest{Key: w.once, Value: []byte{}, Lease: lease}}
	return s.client.call(ctx, limit, "kv/txn", txnRequest{Success: []requestOp{put}}, &txnResponse{})
}

// expireLater has a name looked at when the next hold ends that this proxy wrote.
func (s *Store) expireLater(k locks.Key) {
	m := s.cache
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.names.Peek(k)
	if !ok {
		return
	}
	if known.expiry != nil {
		s.chores.Drop(known.expiry)
		known.expiry = nil
	}
	if end := known.nextEnd(s.Now()); end != 0 {
		known.expiry = &chores.Chore{At: end, Until: end + 2*mostLimit, Do: func(ctx context.Context) error { return s.expire(ctx, k) }}
		s.chores.Add(known.expiry)
	}
}

// expire removes the holds of a name that have ended.
func (s *Store) expire(ctx context.Context, k locks.Key) error {
	free := false
	d, err := s.change(ctx, question{op: "LOCK", key: k, ttl: s.opts.MaxTTL}, func(v *view) (*write, error) {
		if v.rec == nil || !slices.ContainsFunc(v.rec.Holds, func(x hold) bool { return !x.Over && !v.isLive(x.ID) }) {
			return nil, nil
		}
		w := removal(v, nil)
		free = w.rec == nil
		return w, nil
	})
	switch {
	case err != nil:
	case d == nil:
		s.expireLater(k)
	case free:
		s.host.Lines.Wake(k.Whole())
	}
	return err
}
