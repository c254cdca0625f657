package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A LOCK for several names is one transaction, in which each name is what it is to a LOCK of it alone. As etcd allows few conditions in
// one, there is one for a name: what is decided on is everything at one revision, and nothing of a name may have been written behind it. A key
// that was removed does not show in that. So the transaction is marked; and where the owner has the name, its key must be the one that was decided on.

// A several is the names of a LOCK.
type several struct {
	locks.Attempt
	each []*oneOf
	at   int64 // the revision at which they were read; 0: they were not, and there should be nothing new
}

// A oneOf is one of them.
type oneOf struct {
	*acquisition
	q question
	v *view
	w *write
}

const (
	apartFor = 30 // names that are read, for which there are two conditions each: then other readers make no difference
	fewReqs  = 16 // requests of a name that one change of several notes to be over
)

// acquireAll is Acquire for several names.
func (s *Store) acquireAll(ctx context.Context, r *locks.Attempt) (locks.Decision, error) {
	a := &several{Attempt: *r}
	var all []*acquisition
	var undo []undoing
	for _, k := range r.Names() {
		one, q := s.newAcquisition(r.For(k))
		if r.Fresh {
			defer s.busy.begin(k)()
		}
		a.each = append(a.each, &oneOf{acquisition: one, q: q, v: s.remembered(q)})
		all, undo = append(all, one), append(undo, undoing{k, []string{one.id}})
	}
	made, d, err := s.changeAll(ctx, a)
	switch {
	case made:
		return s.granted(all...)
	case d != nil:
		if d.Granted {
			s.stats.repeats.Add(1)
		} else if r.KeepOut > 0 {
			s.keepAllOut(ctx, a)
		}
		return *d, nil
	}
	if answered := (*locks.HoldsError)(nil); !errors.As(err, &answered) && !errors.Is(err, locks.ErrLost) {
		s.undoUnanswered(all[0].wrote, undo...)
	}
	return locks.Decision{}, err
}

// changeAll is change for several names. made reports that all were granted; else d is why nothing was written, or there is an error.
func (s *Store) changeAll(ctx context.Context, a *several) (made bool, d *locks.Decision, err error) {
	id, end, resent := s.opts.Random.ID(), s.Now()+s.limit(a.TTL), false
	began := s.Now()
	for try := 0; try < mostTries; try++ {
		if d, err = a.decide(); d != nil || err != nil {
			if a.at != 0 {
				return false, d, err
			}
			s.stats.rounds.Add(1)
			var r txnResponse
			if err = s.client.call(ctx, end-s.Now(), "kv/txn", txnRequest{Success: packed(s.rangesOf(a))}, &r); err == nil {
				err = s.parseAll(a, &r)
			}
			if err != nil {
				return false, nil, named(err, "LOCK", a.Name)
			}
			continue
		}
		if try > calmTries {
			if err := locks.Sleep(ctx, s.opts.Random.UpTo(triesPause)); err != nil {
				return false, nil, err
			}
		}
		if !resent {
			began = s.Now()
		}
		request, err := s.transactionOf(ctx, a, id, end-s.Now())
		var r txnResponse
		if err == nil {
			again := false
			again, err = s.client.ask(ctx, end-s.Now(), "kv/txn", request, &r)
			resent = resent || again
		}
		has, wrote := 0, 0
		if err == nil && !r.Succeeded {
			if err = s.parseAll(a, &r); err == nil && resent {
				has, wrote = a.found(id)
			}
		}
		switch {
		case err == nil && (r.Succeeded || wrote == len(a.each)):
			s.stats.rounds.Add(1)
			for _, x := range a.each {
				revision := r.Header.Revision
				if !r.Succeeded {
					revision = x.v.mod
				}
				x.done = *s.changed(x.q, x.v, x.w, &done{began: began, resent: resent}, revision)
			}
			return true, nil, nil
		case err == nil && has > 0:
			err = &locks.QuorumError{Nodes: len(s.opts.Members), Need: s.need(), Failed: []error{errUnsure}}
		case errors.Is(err, errNoLease):
			s.leases.forget()
			err = nil
		}
		if err != nil {
			return false, nil, named(err, "LOCK", a.Name)
		}
	}
	return false, nil, &locks.QuorumError{Op: "LOCK", Name: a.Name, Nodes: len(s.opts.Members), Need: s.need(), Failed: []error{errors.New("others change these locks all the time")}}
}

// decide has each name decided, and returns why nothing is to be written, if that is so. From memory only an owner that has a name, or finds it
// free, decides anything.
func (a *several) decide() (d *locks.Decision, err error) {
	ended := &locks.Decision{Granted: true}
	over, refused := 0, &locks.Decision{}
	for _, x := range a.each {
		if x.w, err = x.decide(x.v); err != nil {
			return nil, err
		}
		switch b := &x.v.beside; {
		case x.w != nil && a.at == 0 && x.w.newcomer && (x.v.mod != 0 || b.intent.mod != 0 || b.writer != nil && b.writer.mod != 0):
			return &locks.Decision{}, nil
		case x.w != nil:
		case x.decision.Granted:
			over++
			ended.Add(x.decision.Grant)
		case refused.Of.Name == "" || x.Key.Compare(refused.Of) < 0:
			*refused = x.decision
			refused.Of = x.Key.Whole()
		}
	}
	switch {
	case over == len(a.each):
		return ended, nil
	case over > 0:
		return nil, fmt.Errorf("%w: this request was granted before, and some of its names were given back since", locks.ErrLost)
	case refused.Of.Name != "":
		return refused, nil
	}
	return nil, nil
}

// found is how many names have what the change with this id writes, and how many were written last by it.
func (a *several) found(id string) (has, wrote int) {
	for _, x := range a.each {
		if x.v.has(x.id) {
			has++
		}
		if x.v.writtenBy(id) {
			wrote++
		}
	}
	return has, wrote
}

// rangesOf are what parseAll reads.
func (s *Store) rangesOf(a *several) (ops []requestOp) {
	for _, x := range a.each {
		ops = append(ops, s.ranges(x.q)...)
	}
	return ops
}

// parseAll reads the names as etcd has shown them.
func (s *Store) parseAll(a *several, r *txnResponse) (err error) {
	all := r.unpacked()
	for _, x := range a.each {
		n := min(len(all), len(s.parts(x.q)))
		if x.v, err = s.parse(x.q, &txnResponse{Header: r.Header, Responses: all[:n]}); err != nil {
			return err
		}
		all = all[n:]
	}
	a.at = r.Header.Revision
	return nil
}

// transactionOf is transaction for several names.
func (s *Store) transactionOf(ctx context.Context, a *several, id string, limit time.Duration) (t txnRequest, err error) {
	base, floorMod, err := s.getFloor(ctx, limit)
	if err != nil {
		return t, err
	}
	k, first := s.keys(), a.each[0]
	t.Compare = []compare{modIs(k.floor(), floorMod)}
	if first.tag != "" {
		group := string(k.request(first.tag[:groupDigits]))
		t.Compare = append(t.Compare, noneSince([]byte(group), after(group), a.at))
	}
	for _, x := range a.each {
		for tag := range x.w.reqs {
			if len(x.w.reqs) > fewReqs {
				delete(x.w.reqs, tag)
			}
		}
		var one txnRequest
		if err := s.writes(ctx, x.q, x.v, x.w, id, base, limit, &one); err != nil {
			return t, err
		}
		t.Success = append(t.Success, one.Success...)
		digits, key := k.digits(x.Key), modIs(k.lock(x.Key), x.v.mod)
		switch from := isReader; {
		case !x.w.newcomer:
			t.Compare = append(t.Compare, key)
		case x.Reader != "" && len(a.each) <= apartFor:
			t.Compare = append(t.Compare, key)
			from = isIntent
			fallthrough
		default:
			t.Compare = append(t.Compare, noneSince([]byte(digits+string(from)), []byte(digits+endOfName), a.at))
		}
	}
	t.Failure = s.rangesOf(a)
	s.markOnce(first.w, &t)
	first.wrote = first.w
	t.Success, t.Failure = packed(t.Success), packed(t.Failure)
	return t, nil
}

// keptOut reports whether the intent of another owner is in the way of this one. One that has waited longer passes that of a LOCK for several names.
func (a *acquisition) keptOut(intent *view) bool {
	return len(intent.holds) > 0 && !intent.of(a.Owner) && !(intent.rec.All && a.before(intent))
}

// before reports whether this one has waited longer than the one whose intent it is.
func (a *acquisition) before(intent *view) bool {
	return !a.Since.IsZero() && a.Since.UnixMilli() < intent.rec.Since
}

// of reports whether it is the owner's, be it one that has ended.
func (v *view) of(owner string) bool { return v.rec != nil && string(v.rec.Owner) == owner }

// keepAllOut leaves word on each name that a LOCK for several waits, so that nobody new is let in. Like keepOut it grants nothing.
func (s *Store) keepAllOut(ctx context.Context, a *several) {
	limit := s.limit(0)
	base, _, err := s.getFloor(ctx, limit)
	if err != nil {
		return
	}
	lease, err := s.lease(ctx, limit, a.KeepOut)
	if err != nil {
		return
	}
	var t txnRequest
	for _, x := range a.each {
		intent := x.v.beside.intent
		if len(intent.holds) > 0 && intent.rec.All && !intent.of(a.Owner) && !x.before(intent) {
			continue
		}
		key := s.keys().intent(x.Key)
		rec := &record{Owner: []byte(a.Owner), Base: base, All: true, Since: a.Since.UnixMilli(), Holds: []hold{newHold(s.opts.Random.ID(), "", a.KeepOut)}}
		t.Success = append(t.Success, requestOp{Txn: &txnRequest{
			Compare: []compare{modIs(key, intent.mod)},
			Success: []requestOp{{Put: &putRequest{Key: key, Value: encode(rec), Lease: lease}}},
		}})
	}
	_ = s.client.call(ctx, limit, "kv/txn", t, &txnResponse{})
}
