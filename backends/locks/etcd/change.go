package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const (
	leastLimit  = time.Second     // how long etcd may take for anything
	mostLimit   = 3 * time.Second // and no longer, unless its members are many
	mostTries   = 100             // changes of one name by others that a change may meet
	calmTries   = 4               // after so many it pauses between them
	triesPause  = 2 * time.Millisecond
	mostReqs    = 64 // requests that one change notes to be over, as etcd limits a transaction
	memoryExtra = time.Minute
)

// A question is what a change is about.
type question struct {
	op    string // for errors
	key   locks.Key
	owner string
	tag   string        // of its request; empty: it has none
	hold  string        // the one that a LOCK takes; empty: it is something else
	ttl   time.Duration // of the lease; bounds how long it may take

	beside bool // it sees who has the name in the other way, to read it or for itself
	seats  bool // and who has which seat: for a LOCK with Permits
}

// A write is what a change is to store. The fields Op of the values, and once, are set when it is sent.
type write struct {
	rec   *record       // nil: the name is free then
	need  time.Duration // how long the record must live
	moved []string      // the holds whose ends it moves

	last    *release
	granted bool // note that the owner has a new grant
	reqs    map[string]requested
	cut     *cutNote // tell sessions

	newcomer bool        // its owner does not have the lock: it must be kept apart from those beside it
	taken    *view       // the seat that it takes, as it was; nil: it takes none
	ended    []locks.Key // what it removes of those, since they have ended

	once []byte // the key that marks it as done or refused, if the name was free; nil: it was not, or this is not on its way any more
	open bool   // there was an error, but it may have been done, or may be yet
}

// A result is that of a change that was made.
type result struct {
	began  time.Duration // before it was sent
	now    time.Duration // when that was known
	resent bool          // it may have been sent more than once, so that one may be on its way still
	view   *view
}

// limit is how long a change may take.
func (s *Store) limit(ttl time.Duration) time.Duration {
	return max(min(max(ttl, leastLimit), mostLimit), s.client.timeout*time.Duration(len(s.opts.Members)))
}

// A nameChange is what a change is to one name.
type nameChange struct {
	q    question
	v    *view
	w    *write
	done result // if it was made
}

// A change is of one name, or of several in one step.
type change struct {
	each []*nameChange
	// decide has each name's w decided on from its v. If it returns false, nothing is to be written.
	decide func() (write bool, err error)
	at     int64 // the revision at which the names were read; 0: they were not
}

// change asks decide what to write, first with the name as this proxy remembers it, and writes that if etcd has the name as
// decide saw it. Else decide is asked again, with the name as etcd has it; so it may be called several times, and the last
// call counts. Where decide wants nothing written, the name is read first, so that this was not decided by the cache. Then
// done is nil, and the error is decide's.
//
// After any other error the change may have been made, or may still be made.
func (s *Store) change(ctx context.Context, q question, decide func(*view) (*write, error)) (*result, error) {
	x := &nameChange{q: q, v: s.remembered(q)}
	made, err := s.commit(ctx, &change{each: []*nameChange{x}, decide: func() (_ bool, err error) {
		x.w, err = decide(x.v)
		return x.w != nil, err
	}})
	if !made {
		return nil, err
	}
	return &x.done, nil
}

// commit is change for one name or several.
func (s *Store) commit(ctx context.Context, c *change) (made bool, err error) {
	id, q := s.opts.Random.ID(), c.each[0].q
	end := s.Now() + s.limit(q.ttl)
	d := result{}
	for try := 0; try < mostTries; try++ {
		write, err := c.decide()
		if !write {
			if c.at != 0 {
				return false, err
			}
			if err := s.readAll(ctx, c, end-s.Now()); err != nil {
				return false, err
			}
			continue
		}
		if try > calmTries {
			if err := locks.Sleep(ctx, s.opts.Random.UpTo(triesPause)); err != nil {
				return false, err
			}
		}
		if made, err := s.send(ctx, c, id, end, &d); made || err != nil {
			return made, err
		}
	}
	return false, s.undecided(q.op, q.key.Name, errors.New("others change this lock all the time"))
}

// send sends the transaction that c has decided on, and waits for the answer until end. d keeps began and resent for the next try.
// If made is false and err is nil, the next try decides again: c has the names as etcd has them, unless only a lease was missing.
func (s *Store) send(ctx context.Context, c *change, id string, end time.Duration, d *result) (made bool, err error) {
	if !d.resent {
		d.began = s.Now() // before leases are looked for: they last from then on
	}
	request, err := s.transaction(ctx, c, id, end-s.Now())
	var r txnResponse
	done, late := false, false
	if err == nil {
		done, late, err = s.client.ask(ctx, end-s.Now(), "kv/txn", request, &r)
	}
	d.resent = d.resent || late
	if err == nil {
		made, err = s.conclude(c, id, *d, &r)
	}
	if err != nil && !errors.Is(err, errNoLease) { // there is another lease next time
		for _, x := range c.each {
			if x.w.open = done || d.resent; !d.resent {
				x.w.once = nil
			}
		}
		return false, named(err, c.each[0].q.op, c.each[0].q.key.Name)
	}
	for _, x := range c.each {
		x.v.resent = d.resent
	}
	return made, nil
}

// undecided is the error of a change that etcd answered, and that is not decided for that.
func (s *Store) undecided(op, name string, why error) error {
	return &locks.QuorumError{Op: op, Name: name, Nodes: len(s.opts.Members), Need: s.need(), Failed: []error{why}}
}

// conclude notes, by the answer to a transaction, that the change was made. If it was not, and there is no error, c has the names as etcd has
// them.
func (s *Store) conclude(c *change, id string, d result, r *txnResponse) (made bool, err error) {
	if !r.Succeeded {
		if err := s.parseAll(c, r); err != nil {
			return false, err
		}
	}
	switch {
	case r.Succeeded || d.resent && c.all(func(x *nameChange) bool { return x.v.writtenBy(id) }):
		s.stats.rounds.Add(1)
		for _, x := range c.each {
			revision := r.Revision
			if !r.Succeeded {
				revision = x.v.mod
			}
			x.done = d
			s.changed(x, revision)
		}
		return true, nil
	case d.resent && c.all(func(x *nameChange) bool { return x.v.isLive(x.q.hold) }): // others have changed it since
		for _, x := range c.each {
			x.done = d
			x.done.now, x.done.view = x.v.now, x.v
		}
		return true, nil
	case d.resent && slices.ContainsFunc(c.each, func(x *nameChange) bool { return x.v.has(x.q.hold) }):
		return false, s.undecided(c.each[0].q.op, c.each[0].q.key.Name, errUnsure)
	}
	return false, nil
}

// all reports whether something is true of all names.
func (c *change) all(is func(*nameChange) bool) bool {
	return !slices.ContainsFunc(c.each, func(x *nameChange) bool { return !is(x) })
}

// changed notes a change that was made.
func (s *Store) changed(x *nameChange, revision int64) {
	d, w := &x.done, x.w
	d.now = s.Now()
	d.view = &view{now: d.now, mod: revision}
	s.cache.learn(x.q.key, w.rec, revision, revision, &ownWrite{began: d.began, ids: w.moved}, d.view)
	for _, k := range w.ended {
		s.cache.learn(k, nil, 0, revision, nil, nil)
	}
	s.noteSeat(x)
	s.expireLater(x.q.key)
}

// writtenBy reports whether the change with this id wrote any value of the view.
func (v *view) writtenBy(id string) bool {
	return v.rec != nil && v.rec.Op == id || v.last != nil && v.last.Op == id || v.req != nil && v.req.Op == id
}

// transaction is a change as etcd is told, if the names are as was seen. A name that is free looks the same before and after somebody had
// it, so a transaction on one is marked.
func (s *Store) transaction(ctx context.Context, c *change, id string, limit time.Duration) (t txnRequest, err error) {
	base, floorIs, err := s.getFloor(ctx, limit)
	if err != nil {
		return t, err
	}
	for _, x := range c.each {
		if err := s.writes(ctx, x, id, base, limit, &t); err != nil {
			return t, err
		}
	}
	first := c.each[0]
	if t.Failure = s.rangesOf(c); len(c.each) > 1 {
		t.Compare = s.conditions(c)
	}
	t.Compare = append(t.Compare, floorIs...)
	if first.w.once = nil; len(c.each) > 1 || first.v.mod == 0 && first.w.rec != nil {
		s.markOnce(first.w, &t)
	}
	t.Success, t.Failure = packed(t.Success), packed(t.Failure)
	return t, nil
}

// markOnce marks a transaction, under the lease that it needs itself, and has it do nothing where its mark is: a member of etcd may do it late.
func (s *Store) markOnce(w *write, t *txnRequest) {
	w.once = s.keys().once(s.opts.Random.ID())
	mark := requestOp{Put: &putRequest{Key: w.once, Value: []byte{}, Lease: t.Success[0].Put.Lease}}
	t.Compare = append(t.Compare, modIs(w.once, 0))
	t.Success, t.Failure = append(t.Success, mark), append(t.Failure, mark)
}

// writes adds what was decided for one name to a transaction: the values that it stores, and the conditions on which it does.
func (s *Store) writes(ctx context.Context, x *nameChange, id string, base int64, limit time.Duration, t *txnRequest) (err error) {
	k, q, v, w := s.keys(), x.q, x.v, x.w
	t.Compare = append(t.Compare, modIs(k.lock(q.key), v.mod))
	if q.tag != "" {
		t.Compare = append(t.Compare, modIs(k.request(q.tag), v.reqMod))
	}
	put := func(key []byte, value any, need time.Duration) {
		lease, leaseErr := s.lease(ctx, limit, need)
		err = errors.Join(err, leaseErr)
		t.Success = append(t.Success, requestOp{Put: &putRequest{Key: key, Value: encode(value), Lease: lease}})
	}
	lock := len(t.Success)
	if w.rec != nil {
		w.rec.Op = id
		if w.rec.Grant == 0 {
			w.rec.Base = base
		}
		put(k.lock(q.key), w.rec, w.need)
	} else {
		t.remove(k.lock(q.key), nil)
	}
	s.putSeat(x, t, t.Success[lock].Put)
	if w.ended = nil; w.newcomer {
		s.keepApart(x, t)
	}
	if w.last != nil {
		w.last.Op = id
		put(k.released(q.key), w.last, s.keep())
	}
	if w.granted {
		put(k.granted(locks.Holder{Key: q.key, Owner: q.owner}), struct{}{}, s.keep())
	}
	for tag, r := range w.reqs {
		r.Op = id
		put(k.request(tag), r, s.keep())
	}
	if w.cut != nil {
		put(k.cut(q.key), w.cut, s.keep())
	}
	return err
}

// keep is how long released grants and finished requests are remembered.
func (s *Store) keep() time.Duration { return s.opts.MaxTTL + memoryExtra }

// A part is a range that is read, and what a view shows of it.
type part struct {
	ask  rangeRequest
	read func(v *view, found *rangeResponse, at int64) error
}

// parts are what a question reads.
func (s *Store) parts(q question) []part {
	k := s.keys()
	all := []part{
		{rangeRequest{Key: k.floor()}, func(_ *view, found *rangeResponse, _ int64) error { s.learnFloor(found.first()); return nil }}, // first: the cache goes by it
		{rangeRequest{Key: k.lock(q.key)}, func(v *view, found *rangeResponse, at int64) error { return s.see(q.key, found.first(), at, v) }},
	}
	if !q.beside { // what UNLOCK and sessions ask
		all = append(all, part{rangeRequest{Key: k.released(q.key)}, func(v *view, found *rangeResponse, _ int64) (err error) {
			v.last, v.lastMod, err = decode[release](found.first())
			return err
		}}, part{rangeRequest{Key: k.granted(locks.Holder{Key: q.key, Owner: q.owner})}, func(v *view, found *rangeResponse, _ int64) error {
			if kv := found.first(); kv != nil {
				v.granted = kv.Mod
			}
			return nil
		}})
	}
	if q.tag != "" {
		all = append(all, part{rangeRequest{Key: k.request(q.tag)}, func(v *view, found *rangeResponse, _ int64) (err error) {
			v.req, v.reqMod, err = decode[requested](found.first())
			return err
		}})
	}
	return append(all, s.besideParts(q)...)
}

// rangesOf are what parseAll reads.
func (s *Store) rangesOf(c *change) (ops []requestOp) {
	for _, x := range c.each {
		for _, p := range s.parts(x.q) {
			ops = append(ops, requestOp{Range: &p.ask})
		}
	}
	return ops
}

// parseAll reads the names as etcd has shown them.
func (s *Store) parseAll(c *change, r *txnResponse) error {
	all := r.unpacked()
	for _, x := range c.each {
		x.v = &view{now: s.Now()}
		for _, p := range s.parts(x.q) {
			if len(all) == 0 || all[0].Range == nil {
				return errLacks
			}
			if err := p.read(x.v, all[0].Range, r.Revision); err != nil {
				return err
			}
			all = all[1:]
		}
	}
	c.at = r.Revision
	return nil
}

// readAll asks etcd for the names.
func (s *Store) readAll(ctx context.Context, c *change, limit time.Duration) error {
	s.stats.rounds.Add(1)
	var r txnResponse
	q := c.each[0].q
	if err := s.client.call(ctx, limit, "kv/txn", txnRequest{Success: packed(s.rangesOf(c))}, &r); err != nil {
		return named(err, q.op, q.key.Name)
	}
	return s.parseAll(c, &r)
}

// see has a view show what the key of a lock has, and remembers it.
func (s *Store) see(k locks.Key, kv *keyValue, at int64, v *view) error {
	rec, mod, err := decode[record](kv)
	if err == nil {
		v.mod = mod
		s.cache.learn(k, rec, mod, at, nil, v)
	}
	return err
}

// viewOf is a name as one key shows it.
func (s *Store) viewOf(k locks.Key, kv *keyValue, at int64) (*view, error) {
	v := &view{now: s.Now()}
	return v, s.see(k, kv, at, v)
}

// read asks etcd for a name.
func (s *Store) read(ctx context.Context, q question) (*view, error) {
	x := &nameChange{q: q}
	err := s.readAll(ctx, &change{each: []*nameChange{x}}, s.limit(0))
	return x.v, err
}
