package etcd

import (
	"context"
	"errors"
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A releasing is one UNLOCK.
type releasing struct {
	locks.UnlockRequest
	tag string

	// by the last call of decide
	left   int
	ids    []string // the holds that are given back
	repeat bool
}

// Release implements locks.Store.
func (s *Store) Release(ctx context.Context, r locks.UnlockRequest) (holdsLeft int, err error) {
	h := locks.Holder{Key: r.Key, Owner: r.Owner}
	u := &releasing{UnlockRequest: r, tag: tagOf(h, r.Req)}
	defer s.host.Lines.Wake(r.Whole())
	defer s.changing.Begin(r.Key)() // after the session was told
	d, err := s.change(ctx, question{op: "UNLOCK", key: r.Key, owner: r.Owner, tag: u.tag, ttl: s.opts.MaxTTL}, u.decide)
	switch {
	case errors.Is(err, errUnsure):
		return 0, s.undecided("UNLOCK", r.Name, errUnsure)
	case err != nil:
		return 0, err
	}
	if u.repeat {
		s.stats.repeats.Add(1)
	}
	if d != nil {
		s.host.Keepalive.Drop(h, u.ids...)
	}
	return u.left, nil
}

// errUnsure is why an UNLOCK is not answered.
var errUnsure = errors.New("whether the lock was given back is not known, since others have changed it since")

// decide is what an UNLOCK writes.
func (u *releasing) decide(v *view) (*write, error) {
	before := u.ids
	u.left, u.ids, u.repeat = 0, nil, false
	its := u.tag != "" && v.held(u.Owner, 0) && slices.ContainsFunc(v.rec.Holds, func(h hold) bool { return h.Tag == u.tag })
	switch {
	case u.tag != "" && !its && v.req != nil && v.req.Unlocked:
		u.left, u.repeat = v.req.Left, true
		return nil, nil
	case !v.held(u.Owner, u.Fence) && u.before(v):
		if u.Once {
			return nil, locks.ErrLost
		}
		return nil, nil
	case v.resent && slices.ContainsFunc(before, func(id string) bool { return !v.has(id) }):
		return nil, errUnsure // else it might give back two
	case !v.held(u.Owner, u.Fence):
		return nil, v.notHeld(u.Owner)
	case u.tag != "" && !its && v.req != nil && v.req.Over != 0:
		return nil, locks.ErrLost // what that LOCK took was given back
	}
	u.ids = u.given(v.all(), its)
	rest := slices.DeleteFunc(slices.Clone(v.holds), func(h liveHold) bool { return slices.Contains(u.ids, h.ID) })
	u.left = countHolds(rest)
	w := removal(v, u.ids)
	w.reqs = over(v, u.ids)
	if u.tag != "" {
		w.reqs[u.tag] = requested{Over: w.reqs[u.tag].Over, Unlocked: true, Left: u.left}
	}
	if w.rec == nil {
		w.last = &release{Owner: v.rec.Owner, Fence: v.fence}
	}
	return w, nil
}

// before reports whether the grant that was released last is the one that the UNLOCK means.
func (u *releasing) before(v *view) bool {
	if v.last == nil || string(v.last.Owner) != u.Owner {
		return false
	}
	since := v.granted > v.lastMod // the owner has had another grant
	return u.Fence == v.last.Fence || u.Fence == 0 && !since
}

// given are the holds that an UNLOCK gives back: all, those of the LOCK with its id, if there are some, or those of the last
// LOCK, also if that has ended.
func (u *releasing) given(all []hold, its bool) (ids []string) {
	last := all[len(all)-1]
	if its {
		last = hold{Tag: u.tag}
	}
	for _, h := range all {
		if u.All || h.ID == last.ID || last.Tag != "" && h.Tag == last.Tag {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// removal takes holds out of the record.
func removal(v *view, ids []string) *write {
	w := &write{rec: v.with(slices.DeleteFunc(v.all(), func(h hold) bool { return slices.Contains(ids, h.ID) }))}
	for _, h := range v.holds {
		if !slices.Contains(ids, h.ID) {
			w.need = max(w.need, h.end-v.now)
		}
	}
	return w
}

// take removes holds without their owner's UNLOCK, if they are there. freed reports that the name is free for that.
func (s *Store) take(ctx context.Context, k locks.Key, ids []string) (freed bool, err error) {
	d, err := s.change(ctx, question{op: "UNLOCK", key: k, ttl: s.opts.MaxTTL}, func(v *view) (*write, error) {
		if freed = false; !slices.ContainsFunc(ids, v.has) {
			return nil, nil
		}
		w := removal(v, ids)
		freed = w.rec == nil
		return w, nil
	})
	return freed && d != nil, err
}

// GiveBack implements locks.Store.
func (s *Store) GiveBack(h locks.Holder, fence int64, ids []string) {
	defer s.changing.Begin(h.Key)()
	s.host.Keepalive.Drop(h, ids...)
	if _, err := s.take(s.ctx, h.Key, ids); err != nil {
		s.undoLater(h.Key, ids...)
		return
	}
	s.host.Lines.Wake(h.Whole())
}
