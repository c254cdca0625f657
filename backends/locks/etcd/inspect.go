package etcd

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/glob"
	"github.com/lockproxy/lockproxy/backends/locks"
)

const (
	listCount = 100 // names a call looks at, by default
	listMost  = 1000
	readMost  = 50 // names in one transaction, with who reads them, as etcd limits it
)

// Inspect implements locks.Inspector. The members agree by themselves, so each one that takes part shows the same.
func (s *Store) Inspect(ctx context.Context, k locks.Key) (locks.Inspection, error) {
	v, err := s.read(ctx, question{op: "LOCKCTL", key: k, beside: true})
	if err != nil {
		v = &view{}
	}
	in := locks.Inspection{Need: s.need(), Holding: s.holding(k, v), Readers: v.readBy(), Held: len(v.holds) > 0}
	for _, n := range s.Nodes() {
		one := locks.NodeView{Address: n.Address, State: n.State, Since: n.Since, Err: n.Err}
		if n.State == locks.NodeVoting {
			one.Readers = len(in.Readers)
		}
		if n.State == locks.NodeVoting && in.Held {
			one.Owner, one.Fence, one.Remaining, one.Holds = string(v.rec.Owner), v.fence, v.remaining(), v.count()
		}
		in.Nodes = append(in.Nodes, one)
	}
	in.Each = v.eachHold()
	return in, err
}

// eachHold is how long each hold has been there, and has left, the oldest first. The attempts of one request are one hold.
func (v *view) eachHold() (all []locks.HeldFor) {
	of := map[string]int{} // places in all, by tag
	for _, h := range v.holds {
		if at, known := of[h.Tag]; known && h.Tag != "" {
			all[at].Left = max(all[at].Left, h.shown(v.now))
			continue
		}
		of[h.Tag] = len(all)
		all = append(all, locks.HeldFor{Taken: since(h.Taken), Left: h.shown(v.now)})
	}
	slices.SortStableFunc(all, func(a, b locks.HeldFor) int { return cmp.Compare(b.Taken, a.Taken) })
	return all
}

// since is how long ago a moment was, as people are told.
func since(ms int64) time.Duration {
	return max(0, time.Duration(nowMS()-ms)*time.Millisecond)
}

// holding is who has a name, or how many read it.
func (s *Store) holding(k locks.Key, v *view) locks.Holding {
	by := v.readBy()
	h := locks.Holding{Key: k, Readers: len(by), Waiters: s.host.Lines.Len(k.Whole())}
	if len(by) > 0 {
		h.Remaining = by[0].Remaining
	}
	if len(v.holds) == 0 {
		return h
	}
	h.Owner, h.Info, h.Fence, h.Open = string(v.rec.Owner), string(v.rec.Info), v.fence, v.rec.Open
	h.Holds, h.Remaining, h.Held, h.Votes = v.count(), v.remaining(), since(v.rec.Since), max(s.need(), s.voting())
	h.Waited, h.Here = s.cache.made(k, v.fence)
	h.Client, h.Session = s.host.Keepalive.KeptFor(locks.Holder{Key: k, Owner: h.Owner}, v.fence)
	return h
}

// A page is some names that have a key, in the order of the digits in front of them. Who reads a name comes before who has it.
type page struct {
	names  []locks.Key
	views  []*view // of who has the name; nil: it is only read
	cursor string  // where to go on; "0": there is no more

	damaged error // of the first name whose own key cannot be read; its view is nil
}

// show has the last name seen so.
func (p *page) show(v *view, err error) {
	if p.damaged = cmp.Or(p.damaged, err); err == nil {
		p.views[len(p.views)-1] = v
	}
}

// keysFrom are some keys of names, of who reads one, or waits for those. It passes over keys of anything else, however many there are.
func (s *Store) keysFrom(ctx context.Context, from []byte, count int) (found rangeResponse, err error) {
	ours := func(kv keyValue) bool { _, _, ok := s.keys().parseLock(kv.Key); return ok }
	for ; ; count = listMost {
		found = rangeResponse{}
		ask := rangeRequest{Key: from, End: after(s.keys().locks()), Limit: int64(count)}
		err = s.client.call(ctx, s.limit(0), pathRange, ask, &found)
		if err != nil || !found.More || slices.ContainsFunc(found.Kvs, ours) {
			return found, named(err, "LOCKCTL", "")
		}
		from = append(found.Kvs[len(found.Kvs)-1].Key, 0)
	}
}

// page looks at some keys behind the cursor: the digits of the last name that was looked at.
func (s *Store) page(ctx context.Context, r locks.ListRequest) (p page, err error) {
	prefix := s.keys().locks()
	from := []byte(prefix)
	if r.Cursor != "" && r.Cursor != "0" {
		if digits, err := hex.DecodeString(r.Cursor); err != nil || len(digits) != hashed/2 {
			return p, &locks.CursorError{Cursor: r.Cursor}
		}
		from = append(from, r.Cursor+"0"...) // behind all keys of these digits
	}
	count := min(cmp.Or(max(r.Count, 0), listCount), listMost)
	answer, err := s.keysFrom(ctx, from, count)
	if err != nil {
		return p, err
	}
	p.cursor = "0"
	pattern, _, _ := glob.Parse(cmp.Or(r.Match, "*")) // one with an open class is read as Redis does
	for i := range answer.Kvs {
		kv := &answer.Kvs[i]
		k, kind, ok := s.keys().parseLock(kv.Key)
		if !ok {
			continue
		}
		if answer.More {
			p.cursor = string(kv.Key[len(prefix):][:hashed])
		}
		if r.DB != locks.AllDBs && k.DB != r.DB || !pattern.Matches(k.Name) || kind == isIntent {
			continue
		}
		if last := len(p.names) - 1; last < 0 || p.names[last] != k {
			p.names, p.views = append(p.names, k), append(p.views, nil)
		}
		if kind == isName {
			p.show(s.viewOf(k, kv, answer.Revision))
		}
	}
	if last := len(p.names) - 1; answer.More && last >= 0 && p.views[last] == nil { // its own key may be behind these
		p.show(s.read(ctx, question{op: "LOCKCTL", key: p.names[last]}))
	}
	return p, nil
}

// List implements locks.Inspector.
func (s *Store) List(ctx context.Context, r locks.ListRequest) (locks.Listing, error) {
	p, err := s.page(ctx, r)
	if err = cmp.Or(err, p.damaged); err != nil {
		return locks.Listing{}, err
	}
	held, err := s.Holdings(ctx, p.names)
	return locks.Listing{Held: held, Cursor: p.cursor}, err
}

// Names implements locks.Inspector.
func (s *Store) Names(ctx context.Context, r locks.NamesRequest) (names []locks.Key, complete bool, err error) {
	next := locks.ListRequest{DB: r.DB, Match: r.Match, Count: listMost}
	for looks := cmp.Or(r.Looks, 100); looks > 0; looks-- {
		p, err := s.page(ctx, next)
		if err != nil {
			return names, false, err
		}
		names = append(names, p.names...)
		if next.Cursor = p.cursor; p.cursor == "0" {
			return names, true, nil
		}
	}
	return names, false, nil
}

// Holdings implements locks.Inspector.
func (s *Store) Holdings(ctx context.Context, names []locks.Key) (held []locks.Holding, err error) {
	for some := range slices.Chunk(names, readMost) {
		c := &change{}
		for _, k := range some {
			c.each = append(c.each, &nameChange{q: question{op: "LOCKCTL", key: k, beside: true}})
		}
		if err := s.readAll(ctx, c, s.limit(0)); err != nil {
			return nil, err
		}
		for _, x := range c.each {
			if h := s.holding(x.q.key, x.v); h.Owner != "" || h.Readers > 0 {
				held = append(held, h)
			}
		}
	}
	return held, nil
}

// Force implements locks.Inspector. It takes a name away from who has it for itself; if there is none, from all that read it, or with a fence
// from who reads it under that one, and returns what one of these had, with its reader's key.
func (s *Store) Force(ctx context.Context, k locks.Key, fence int64) (was locks.Holding, held bool, err error) {
	was, held, err = s.force(ctx, k, fence)
	if err != nil || held {
		return was, held, err
	}
	fence = max(fence, 0) // from OfReaders
	for {
		v, err := s.read(ctx, question{op: "LOCKCTL", key: k, beside: true})
		if err != nil {
			return was, held, err
		}
		last, taken, later, err := locks.ForceEach(k, v.readBy(), func(reading locks.Key) (locks.Holding, bool, error) {
			return s.force(ctx, reading, fence)
		})
		if taken > 0 {
			last.Readers = was.Readers + taken
			was, held = last, true
		}
		if err != nil {
			return was, held, err
		}
		if !v.beside.more || taken == 0 {
			if held {
				later = nil
			}
			return was, held, later
		}
	}
}

// force is Force of one lock.
func (s *Store) force(ctx context.Context, k locks.Key, fence int64) (was locks.Holding, held bool, err error) {
	defer s.host.Lines.Wake(k.Whole())
	defer s.changing.Begin(k)()
	_, err = s.change(ctx, question{op: "LOCKCTL", key: k}, func(v *view) (*write, error) {
		if v.resent && (len(v.holds) == 0 || v.fence != was.Fence) {
			return nil, nil // it is done, or need not be; whoever has the name now was granted it since
		}
		if held = len(v.holds) > 0; !held {
			return nil, nil
		}
		was = s.holding(k, v)
		if fence != 0 && v.fence != fence {
			return nil, &locks.OtherGrantError{Now: was}
		}
		return &write{}, nil
	})
	if err != nil || !held {
		return locks.Holding{}, false, err
	}
	s.stats.forces.Add(1)
	s.host.Keepalive.Lose(locks.Holder{Key: k, Owner: was.Owner}, was.Fence, locks.LossForced, locks.ForcedReason)
	return was, true, nil
}
