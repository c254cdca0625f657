package etcd

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/chores"
)

// A reader has a lock of its own, see locks.Key, and so a key of its own. The keys of all who read a name are one range. Who would have
// the name in one way sees who has it in the other, and its transaction does nothing if that has changed since: for a reader the
// key of the name, for a writer the range. Who has ended for it is removed in the same transaction, so that no renewal brings it back.

// A beside is what else of a name a decision sees.
type beside struct {
	writer *view // for who would read it: who has it for itself
	intent *view // a writer that waits for those who read it

	readers []*view // for who would write it: who reads it, at most locks.MaxReaders
	more    bool    // there are more of them
	at      int64   // the revision at which these were read; 0: they were not, and there should be none
	own     *view   // the lock by which the owner of the question reads; nil: it was not read

	seats map[int]*view // for who wants a permit: those that are taken
}

// intentKey is what the cache keeps an intent under. No name is empty.
func intentKey(k locks.Key) locks.Key { return locks.Key{DB: k.DB, Reader: k.Name} }

// remembered is what a question sees without asking etcd.
func (s *Store) remembered(q question) *view {
	now := s.Now()
	v := s.cache.view(q.key, now)
	if q.beside {
		v.beside.intent = s.cache.view(intentKey(q.key), now)
		if q.key.Reader != "" {
			v.beside.writer = s.cache.view(q.key.Whole(), now)
		}
	}
	return v
}

// besideParts are what a question reads beside the lock that it is about.
func (s *Store) besideParts(q question) (all []part) {
	k, whole := s.keys(), q.key.Whole()
	one := func(key []byte, of locks.Key, put func(*view, *view)) {
		all = append(all, part{rangeRequest{Key: key}, func(v *view, found *rangeResponse, at int64) error {
			x, err := s.viewOf(of, found.first(), at)
			put(v, x)
			return err
		}})
	}
	if q.key.Reader == "" && q.owner != "" {
		reading := locks.Holder{Key: whole, Owner: q.owner}.Reading().Key
		one(k.lock(reading), reading, func(v, x *view) { v.beside.own = x })
	}
	if !q.beside {
		return all
	}
	one(k.intent(whole), intentKey(whole), func(v, x *view) { v.beside.intent = x })
	if q.key.Reader != "" {
		one(k.lock(whole), whole, func(v, x *view) { v.beside.writer = x })
		if q.seats {
			all = append(all, s.seatsPart(whole))
		}
		return all
	}
	return append(all, part{s.readersRange(whole), func(v *view, found *rangeResponse, at int64) (err error) {
		v.beside.at, v.beside.more = at, found.More
		v.beside.readers, err = s.readings(whole, found, at)
		return err
	}})
}

// readersRange asks for those who read a name.
func (s *Store) readersRange(k locks.Key) rangeRequest {
	prefix := s.keys().readers(k)
	return rangeRequest{Key: []byte(prefix), End: after(prefix), Limit: locks.MaxReaders}
}

// readings are the locks of those who read a name.
func (s *Store) readings(k locks.Key, found *rangeResponse, at int64) (all []*view, err error) {
	for i := range found.Kvs {
		rec, mod, err := decode[record](&found.Kvs[i])
		if err != nil {
			return nil, err
		}
		v := &view{now: s.Now(), mod: mod}
		s.cache.learn(locks.Holder{Key: k, Owner: string(rec.Owner)}.Reading().Key, rec, mod, at, nil, v)
		all = append(all, v)
	}
	return all, nil
}

// moreReaders is when to look again where those that were read have ended, and there are more.
const moreReaders = time.Second

// inTheWay is the refusal of an owner that does not have the lock, if others keep it from that in the other way, or one that waits does.
func (a *acquisition) inTheWay(v *view) (refused locks.Decision, is bool) {
	b, reads := &v.beside, a.Reader != ""
	switch {
	case reads && len(b.writer.holds) > 0 && !b.writer.held(a.Owner, 0):
		return b.writer.refusal(), true
	case (reads || b.intent.rec != nil && b.intent.rec.All) && a.Replaces == nil && a.keptOut(b.intent):
		return locks.Decision{Remaining: b.intent.rest(), Why: locks.Intent}, true
	case reads:
		return refused, false
	}
	for _, r := range b.readers {
		if left := r.remaining(); len(r.holds) > 0 && !r.held(a.Owner, 0) && left > refused.Remaining {
			refused = locks.Decision{Holder: string(r.rec.Owner), Remaining: left, Why: locks.Readers}
		}
	}
	if refused.Why != locks.Readers && b.more {
		refused = locks.Decision{Remaining: moreReaders, Why: locks.Readers}
	}
	is = refused.Why == locks.Readers
	if is && b.own != nil && b.own.held(a.Owner, 0) {
		refused.Why = locks.Upgrade
	}
	return refused, is
}

// keepApart has a transaction grant nothing if the other way to have the name is not as was seen, and remove what has ended there.
func (s *Store) keepApart(x *nameChange, t *txnRequest) {
	q, b, w := x.q, &x.v.beside, x.w
	k, whole := s.keys(), q.key.Whole()
	t.Compare = append(t.Compare, modIs(k.intent(whole), b.intent.mod))
	if b.intent.of(q.owner) {
		t.remove(k.intent(whole), nil)
		w.ended = append(w.ended, intentKey(whole))
	}
	if q.key.Reader != "" {
		t.Compare = append(t.Compare, modIs(k.lock(whole), b.writer.mod))
		if b.writer.mod != 0 && len(b.writer.holds) == 0 {
			t.remove(k.lock(whole), nil)
			w.ended = append(w.ended, whole)
		}
		if w.taken != nil {
			s.takeSeat(x, t)
		}
		return
	}
	readers := s.readersRange(whole)
	t.Compare = append(t.Compare, noneSince(readers.Key, readers.End, b.at))
	ended := false
	for _, r := range b.readers {
		if len(r.holds) == 0 {
			ended = true
			w.ended = append(w.ended, locks.Holder{Key: whole, Owner: string(r.rec.Owner)}.Reading().Key)
		}
	}
	if !ended {
		return
	}
	seats := rangeRequest{Key: []byte(k.seats(whole)), End: after(k.seats(whole))}
	if own := b.own; own != nil && own.held(q.owner, 0) {
		removeBut(t, readers, k.lock(locks.Holder{Key: whole, Owner: q.owner}.Reading().Key))
		removeBut(t, seats, k.seat(whole, own.rec.Seat))
		return
	}
	t.remove(readers.Key, readers.End)
	t.remove(seats.Key, seats.End)
}

// removeBut has a transaction remove a range of keys without one.
func removeBut(t *txnRequest, all rangeRequest, but []byte) {
	t.remove(all.Key, but)
	t.remove(append(but, 0), all.End)
}

// putIntents leaves word that a LOCK waits, so that nobody new is let in: no readers if it is for one name, else nobody. It grants nothing:
// without it that is unfair, and no more.
func (s *Store) putIntents(ctx context.Context, r *locks.Attempt, names []*nameChange) {
	all, since := len(names) > 1, int64(0)
	if all {
		since = r.Since.UnixMilli()
	}
	names = slices.DeleteFunc(slices.Clone(names), func(x *nameChange) bool {
		b := x.v.beside.intent
		return len(b.holds) > 0 && !b.of(r.Owner) && (!all || b.rec.All && since >= b.rec.Since)
	})
	if len(names) == 0 {
		return
	}
	limit := s.limit(0)
	base, _, err := s.getFloor(ctx, limit)
	if err != nil {
		return
	}
	lease, err := s.lease(ctx, limit, r.Intent)
	if err != nil {
		return
	}
	var t txnRequest
	rec := &record{Owner: []byte(r.Owner), Base: base, All: all, Since: since, Holds: []hold{newHold(s.opts.Random.ID(), "", r.Intent)}}
	for _, x := range names {
		key := s.keys().intent(x.q.key)
		put := requestOp{Put: &putRequest{Key: key, Value: encode(rec), Lease: lease}}
		t.Success = append(t.Success, requestOp{Txn: &txnRequest{Compare: []compare{modIs(key, x.v.beside.intent.mod)}, Success: []requestOp{put}}})
	}
	var answer txnResponse
	if s.client.call(ctx, limit, "kv/txn", t, &answer) != nil {
		return
	}
	for i, op := range answer.Responses {
		if op.Txn != nil && op.Txn.Succeeded {
			s.cache.learn(intentKey(names[i].q.key), rec, answer.Revision, answer.Revision, nil, &view{now: s.Now()})
		}
	}
}

// keptOut reports whether the intent of another owner is in the way of this one. One that has waited longer passes that of a LOCK for several names.
func (a *acquisition) keptOut(intent *view) bool {
	return len(intent.holds) > 0 && !intent.of(a.Owner) && (!intent.rec.All || a.Since.IsZero() || a.Since.UnixMilli() >= intent.rec.Since)
}

// of reports whether it is the owner's, be it one that has ended.
func (v *view) of(owner string) bool { return v.rec != nil && string(v.rec.Owner) == owner }

// DropIntent implements locks.Store.
func (s *Store) DropIntent(h locks.Holder) {
	now := s.Now()
	s.chores.Add(&chores.Chore{At: now, Until: now + locks.MaxIntent, Do: func(ctx context.Context) error {
		defer s.host.Lines.Wake(h.Whole())
		key := s.keys().intent(h.Whole())
		v, err := s.read(ctx, question{op: "LOCK", key: h.Reading().Key, beside: true})
		if err != nil || !v.beside.intent.of(h.Owner) {
			return err
		}
		return s.client.call(ctx, s.limit(0), "kv/txn", txnRequest{
			Compare: []compare{modIs(key, v.beside.intent.mod)},
			Success: []requestOp{{Delete: &deleteRequest{Key: key}}},
		}, &txnResponse{})
	}})
}

// readBy are those who read a name: the ones whose leases end last come first.
func (v *view) readBy() (all []locks.ReadBy) {
	for _, r := range v.beside.readers {
		if len(r.holds) > 0 {
			all = append(all, locks.ReadBy{Owner: string(r.rec.Owner), Remaining: r.remaining()})
		}
	}
	slices.SortFunc(all, func(a, b locks.ReadBy) int {
		return cmp.Or(cmp.Compare(b.Remaining, a.Remaining), cmp.Compare(a.Owner, b.Owner))
	})
	return all
}
