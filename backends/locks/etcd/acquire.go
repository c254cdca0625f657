package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// An acquisition is what a LOCK is for one name.
type acquisition struct {
	locks.Attempt
	*nameChange
	id  string // of the hold
	tag string // of the request; empty: it has none

	guess int // the seat that may be free, with Permits

	// by the last call of decide
	decision locks.Decision
	was      *view // what the grant drops; nil: nothing
}

// An acquiring is one LOCK, of one name or several.
type acquiring struct {
	change
	names    []*acquisition
	decision *locks.Decision // why nothing is written
}

var errLate = errors.New("answered after the lease had ended")

// Acquire implements locks.Store.
func (s *Store) Acquire(ctx context.Context, r locks.Attempt) (locks.Decision, error) {
	if err := ctx.Err(); err != nil {
		return locks.Decision{}, err
	}
	a := &acquiring{}
	a.decide = a.decideAll
	if len(r.Others) == 0 {
		a.decide = a.decideOne
	}
	var undo []undoing
	for _, k := range r.Names() {
		one := s.newAcquisition(r.For(k))
		if r.Fresh || r.Replaces != nil {
			defer s.changing.Begin(k)()
		}
		one.v = s.remembered(one.q)
		a.names, a.each = append(a.names, one), append(a.each, one.nameChange)
		undo = append(undo, undoing{k, []string{one.id}})
	}
	made, err := s.commit(ctx, &a.change)
	switch {
	case made:
		return s.granted(a.names)
	case err != nil:
		if w := a.each[0].w; w != nil && w.open {
			ttl := r.TTL
			if r.Open {
				ttl = s.opts.MaxTTL
			}
			s.undoUnanswered(w, ttl, undo...)
		}
		return locks.Decision{}, err
	case a.decision.Granted:
		s.stats.repeats.Add(1)
	case r.Intent > 0 && (len(a.names) > 1 || a.decision.Why == locks.Readers):
		s.putIntents(ctx, &r, a.each)
	}
	return *a.decision, nil
}

// decideOne has the only name decided.
func (a *acquiring) decideOne() (write bool, err error) {
	one := a.names[0]
	one.w, err = one.decide(one.v)
	a.decision = &one.decision
	return one.w != nil, err
}

// newAcquisition is what an attempt is to etcd.
func (s *Store) newAcquisition(r *locks.Attempt) *acquisition {
	a := &acquisition{Attempt: *r, id: s.opts.Random.ID(), tag: tagOf(locks.Holder{Key: r.Key, Owner: r.Owner}, r.Req)}
	if r.Permits > 0 {
		a.guess = s.seats.Pick(r.Key, r.Permits, s.opts.Random.Int)
	}
	q := question{op: "LOCK", key: r.Key, owner: r.Owner, tag: a.tag, hold: a.id, ttl: r.TTL, beside: true, seats: r.Permits > 0}
	a.nameChange = &nameChange{q: q}
	return a
}

// decide is what an acquisition writes.
func (a *acquisition) decide(v *view) (*write, error) {
	a.decision, a.was = locks.Decision{}, nil
	held, mine := len(v.holds) > 0, v.held(a.Owner, 0)
	same := a.tag != "" && mine && v.hasTag(a.tag) // a hold of this very request
	replaces := a.Replaces != nil && !same
	switch {
	case a.tag != "" && !same && v.req != nil && v.req.Over != 0:
		a.decision = locks.Decision{Granted: true, Grant: locks.Grant{Key: a.Key, Owner: a.Owner, Fence: v.req.Over, Hold: a.id}}
		return nil, nil
	case replaces && !v.held(a.Replaces.Owner, a.Replaces.Fence),
		held && !mine && !replaces,
		held && a.NoReenter && !same:
		a.decision = v.refusal()
		return nil, nil
	case mine && a.Permits > 0 && v.rec.Seat == 0 && (same || !a.Fresh):
		a.decision = v.refusal()
		a.decision.Why = locks.Upgrade
		return nil, nil
	case mine && !same && !replaces && !a.Fresh && v.count() >= locks.MaxHolds:
		return nil, &locks.HoldsError{Max: locks.MaxHolds}
	}
	if refused, is := a.inTheWay(v); is && !mine {
		a.decision = refused
		return nil, nil
	}
	h := newHold(a.id, a.tag, a.TTL)
	if held && !replaces && (!a.Fresh || same) {
		return &write{rec: v.with(append(v.room(), h)), need: max(a.TTL, v.rest()), moved: []string{a.id}}, nil
	}
	w := &write{
		rec:  &record{Owner: []byte(a.Owner), Info: []byte(a.Info), Open: a.Open, Since: h.Taken, Holds: []hold{h}},
		need: a.TTL, moved: []string{a.id}, granted: !a.Generated, newcomer: !mine || a.Permits > 0,
	}
	if a.Permits > 0 && !a.sit(v, w) {
		return nil, nil
	}
	if held {
		a.was = v
		w.reqs = over(v, nil)
	}
	return w, nil
}

// room are all holds, without those that have ended if there are many.
func (v *view) room() []hold {
	all := v.all()
	if len(all) >= locks.MaxHolds {
		all = slices.DeleteFunc(all, func(h hold) bool { return h.Over })
	}
	return all
}

// over notes that the requests of holds are: those with these ids, nil for all.
func over(v *view, ids []string) map[string]requested {
	reqs := map[string]requested{}
	for _, h := range v.all() {
		if h.Tag != "" && (ids == nil || slices.Contains(ids, h.ID)) && len(reqs) < mostReqs {
			reqs[h.Tag] = requested{Over: v.fence}
		}
	}
	return reqs
}

// granted is the answer to acquisitions that were made in one step.
func (s *Store) granted(all []*acquisition) (locks.Decision, error) {
	first := all[0]
	until := first.done.began + first.TTL - locks.Drift(first.TTL)
	for _, a := range all {
		h := locks.Holder{Key: a.Key, Owner: a.Owner}
		if was := a.was; was != nil && a.Fresh {
			s.host.Keepalive.Supersede(h, was.fence, a.Asker)
		} else if was != nil {
			s.host.Keepalive.Lose(locks.Holder{Key: a.Key, Owner: string(was.rec.Owner)}, was.fence, locks.LossTaken, locks.ReplacedReason)
		}
	}
	now, err := s.Now(), error(nil)
	if until <= now {
		err = s.undecided("LOCK", first.Name, errLate)
	} else if first.Session != nil {
		err = s.addToSession(all, until)
	}
	if err != nil {
		for _, a := range all {
			s.undoLater(a.Key, a.id)
		}
		return locks.Decision{}, err
	}
	d := locks.Decision{Granted: true}
	for _, a := range all {
		v := a.done.view
		if v.count() == 1 {
			s.cache.note(a.Key, v.fence, now-a.Asked)
		}
		d.Add(locks.Grant{Key: a.Key, Owner: a.Owner, Fence: v.fence, Validity: until - now, Holds: v.count(), Hold: a.id})
	}
	return d, nil
}

// addToSession adds what was granted to the session, which renews it from now on. The error says that the session has ended.
func (s *Store) addToSession(all []*acquisition, until time.Duration) error {
	s.host.Keepalive.Lock()
	defer s.host.Keepalive.Unlock()
	if all[0].Session.EndedLocked() {
		return locks.ErrSessionEnded
	}
	for _, a := range all {
		s.host.Keepalive.AddLocked(&a.Attempt, a.id, a.done.view.fence, a.done.began, until)
	}
	return nil
}

// Holder implements locks.Store.
func (s *Store) Holder(ctx context.Context, k locks.Key) (locks.Decision, error) {
	v, err := s.read(ctx, question{op: "LOCK", key: k, beside: true})
	if err != nil {
		return locks.Decision{}, err
	}
	if len(v.holds) == 0 {
		readers, _ := (&acquisition{}).inTheWay(v) // of an owner who neither has nor reads the name
		return readers, nil
	}
	return v.refusal(), nil
}

// Read implements locks.Store.
func (s *Store) Read(ctx context.Context, k locks.Key) (r locks.Reading, err error) {
	v, err := s.read(ctx, question{op: "LOCK", key: k, beside: k.Reader == ""})
	if err != nil {
		return r, err
	}
	by := v.readBy()
	if r.Readers = len(by); len(by) > 0 {
		r.Reads = by[0].Remaining
	}
	if r.Held = len(v.holds) > 0; r.Held {
		r.Owner, r.Info, r.Fence, r.Remaining, r.Holds, r.Open = string(v.rec.Owner), string(v.rec.Info), v.fence, v.remaining(), v.count(), v.rec.Open
	}
	return r, nil
}

// Undo implements locks.Store.
func (s *Store) Undo(g locks.Grant) {
	s.host.Keepalive.Drop(locks.Holder{Key: g.Key, Owner: g.Owner}, g.Hold)
	s.undoLater(g.Key, g.Hold)
}
