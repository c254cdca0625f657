package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// Renew implements locks.Store.
func (s *Store) Renew(ctx context.Context, r locks.RenewRequest) (validity time.Duration, err error) {
	h := locks.Holder{Key: r.Key, Owner: r.Owner}
	q := question{op: "RENEW", key: r.Key, owner: r.Owner, ttl: r.TTL}
	d, err := s.change(ctx, q, func(v *view) (*write, error) {
		if !v.held(r.Owner, r.Fence) {
			return nil, v.notHeld(r.Owner)
		}
		w := renewal(v, r.TTL)
		w.rec.Open = r.Open
		if v.rest() > r.TTL+locks.Drift(r.TTL) { // one ends earlier than it did
			w.cut = newCut(h)
		}
		return w, nil
	})
	if err != nil {
		return 0, err
	}
	s.stats.renewals.Add(1)
	if validity = d.began + r.TTL - locks.Drift(r.TTL) - s.Now(); validity <= 0 {
		return 0, s.undecided("RENEW", r.Name, errLate)
	}
	return validity, nil
}

// renewal renews all holds that have not ended, of which there is one at least.
func renewal(v *view, ttl time.Duration) *write {
	all, w := v.all(), &write{need: ttl}
	for _, x := range v.holds {
		put(all, x.renewed(ttl))
		w.moved = append(w.moved, x.ID)
	}
	w.rec = v.with(all)
	return w
}

// put puts a hold where the one with its id is.
func put(all []hold, h hold) {
	all[slices.IndexFunc(all, func(x hold) bool { return x.ID == h.ID })] = h
}

// errChanging is why a renewal decides nothing while the grant is being changed here.
var errChanging = errors.New("the lock is being given back")

// Extend implements locks.Store. A hold that another proxy renewed is renewed for as long as it may still have, if that is
// longer, since its end is not known: it never ends earlier.
func (s *Store) Extend(ctx context.Context, h locks.Holder, fence int64, t locks.Term, ids []string) locks.Extension {
	if err := ctx.Err(); err != nil {
		return locks.Extension{Result: locks.Undecided, Err: err}
	}
	var e locks.Extension
	q := question{op: "RENEW", key: h.Key, owner: h.Owner, ttl: t.TTL}
	d, err := s.change(ctx, q, func(v *view) (w *write, err error) {
		e, w = extension(v, h, fence, t, ids)
		return w, nil
	})
	switch {
	case err != nil:
		return locks.Extension{Result: locks.Undecided, Err: err}
	case (e.Result == locks.Gone || e.Result == locks.Taken) && s.changing.Any(h.Key):
		return locks.Extension{Result: locks.Undecided, Err: errChanging}
	case e.Result != locks.Extended:
		return e
	}
	if d != nil {
		s.stats.renewals.Add(1)
		e.Until = max(e.Until, d.view.validUntil(ids))
	}
	return e
}

// extension is what a renewal for a session finds, and what it writes; nil if nothing is to be renewed.
func extension(v *view, h locks.Holder, fence int64, t locks.Term, ids []string) (e locks.Extension, w *write) {
	if !v.held(h.Owner, fence) {
		switch {
		case v.last != nil && string(v.last.Owner) == h.Owner && v.last.Fence == fence:
			e.Result = locks.GivenBack
		case len(v.holds) > 0 && string(v.rec.Owner) != h.Owner:
			e.Result = locks.Taken
		default:
			e.Result = locks.Gone
		}
		return e, nil
	}
	ttl := t.From(v.now)
	w = &write{need: max(ttl, v.rest())}
	all := v.all()
	e.Result = locks.GivenBack
	if slices.ContainsFunc(all, func(x hold) bool { return x.Over && slices.Contains(ids, x.ID) }) {
		e.Result = locks.Gone
	}
	for _, x := range v.holds {
		if !slices.Contains(ids, x.ID) {
			continue
		}
		e.Result = locks.Extended
		e.Until = max(e.Until, x.valid)
		switch end := v.now + ttl - locks.Drift(ttl); {
		case x.valid != 0 && x.valid < end:
			put(all, x.renewed(ttl))
		case x.valid == 0: // another proxy has renewed it
			longest := x.renewed(max(ttl, (x.end - v.now + time.Millisecond - 1).Truncate(time.Millisecond)))
			put(all, longest)
			w.need = max(w.need, longest.ttl())
		default:
			continue
		}
		w.moved = append(w.moved, x.ID)
	}
	e.Released = slices.DeleteFunc(slices.Clone(ids), v.has)
	if len(w.moved) == 0 {
		return e, nil
	}
	w.rec = v.with(all)
	return e, w
}
