package etcd

import (
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A releasing is one UNLOCK.
type releasing struct {
	locks.UnlockRequest
	tag string

	// what was decided last
	left   int
	ids    []string // the holds that are given back
	repeat bool
}

// Release implements locks.Store.
func (s *Store) Release(ctx context.Context, r locks.UnlockRequest) (holdsLeft int, err error) {
	h := locks.Holder{Key: r.Key, Owner: r.Owner}
	u := &releasing{UnlockRequest: r}
	if r.Req != "" {
		u.tag = tagOf(h, r.Req)
	}
	defer s.host.Lines.Wake(r.Key)
	defer s.busy.begin(r.Key)() // after the session was told
	d, err := s.change(ctx, question{op: "UNLOCK", key: r.Key, owner: r.Owner, tag: u.tag, ttl: s.opts.MaxTTL}, u.decide)
	if err != nil {
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

// decide is what an UNLOCK writes.
func (u *releasing) decide(v *view) (*write, error) {
	u.left, u.ids, u.repeat = 0, nil, false
	its := u.tag != "" && v.held(u.Owner, 0) && v.hasTag(u.tag)
	switch {
	case u.tag != "" && !its && v.req != nil && v.req.Unlocked:
		u.left, u.repeat = v.req.Left, true
		return nil, nil
	case !v.held(u.Owner, u.Fence) && u.before(v):
		if u.Once {
			return nil, locks.ErrLost
		}
		return nil, nil
	case !v.held(u.Owner, u.Fence):
		return nil, v.notHeld(u.Owner)
	case u.tag != "" && !its && v.req != nil && v.req.Over != 0:
		return nil, locks.ErrLost // what that LOCK took was given back
	}
	u.ids = u.given(v)
	rest := slices.DeleteFunc(slices.Clone(v.holds), func(h liveHold) bool { return contains(u.ids, h.ID) })
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

// given are the holds that an UNLOCK gives back: all, those of the LOCK with its id, or those of the last LOCK.
func (u *releasing) given(v *view) (ids []string) {
	last := v.holds[len(v.holds)-1].hold
	if u.tag != "" && v.hasTag(u.tag) {
		last = hold{Tag: u.tag}
	}
	for _, h := range v.holds {
		if u.All || h.ID == last.ID || last.Tag != "" && h.Tag == last.Tag {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// removal takes holds out of the record, and those that have ended.
func removal(v *view, ids []string) *write {
	var rest []hold
	w := &write{}
	for _, h := range v.holds {
		if !contains(ids, h.ID) {
			rest = append(rest, h.hold)
			w.need = max(w.need, h.end-v.now)
		}
	}
	w.rec = v.with(rest)
	return w
}

// take removes holds without their owner's UNLOCK, if they are there. freed reports that the name is free for that.
func (s *Store) take(ctx context.Context, k locks.Key, ids []string) (freed bool, err error) {
	d, err := s.change(ctx, question{op: "UNLOCK", key: k, ttl: s.opts.MaxTTL}, func(v *view) (*write, error) {
		if freed = false; v.rec == nil || !slices.ContainsFunc(v.rec.Holds, func(h hold) bool { return contains(ids, h.ID) }) {
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
	defer s.busy.begin(h.Key)()
	s.host.Keepalive.Drop(h, ids...)
	if _, err := s.take(s.ctx, h.Key, ids); err != nil {
		s.undoLater(h.Key, ids...)
		return
	}
	s.host.Lines.Wake(h.Key)
}
