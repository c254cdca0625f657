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
	readMost  = 100 // names in one transaction, as etcd limits it
)

// Inspect implements locks.Inspector. The members agree by themselves, so each one that takes part shows the same.
func (s *Store) Inspect(ctx context.Context, k locks.Key) (locks.Inspection, error) {
	in := locks.Inspection{Need: s.need(), Holding: locks.Holding{Key: k, Waiters: s.host.Lines.Len(k)}}
	v, err := s.read(ctx, question{op: "LOCKCTL", key: k}, s.limit(0))
	for _, n := range s.Nodes() {
		one := locks.NodeView{Address: n.Address, State: n.State, Since: n.Since, Err: n.Err}
		if err == nil && n.State == locks.NodeVoting && len(v.holds) > 0 {
			one.Owner, one.Fence, one.Remaining, one.Holds = string(v.rec.Owner), v.fence, v.remaining(), v.count()
		}
		in.Nodes = append(in.Nodes, one)
	}
	if err != nil || len(v.holds) == 0 {
		return in, err
	}
	in.Held, in.Holding = true, s.holding(k, v)
	for i, h := range v.holds {
		if h.Tag != "" && slices.ContainsFunc(v.holds[:i], func(x liveHold) bool { return x.Tag == h.Tag }) {
			continue
		}
		each := locks.HeldFor{Taken: since(h.Taken), Left: h.shown(v.now)}
		for _, x := range v.holds[i+1:] {
			if h.Tag != "" && x.Tag == h.Tag {
				each.Left = max(each.Left, x.shown(v.now))
			}
		}
		in.Each = append(in.Each, each)
	}
	slices.SortStableFunc(in.Each, func(a, b locks.HeldFor) int { return cmp.Compare(b.Taken, a.Taken) })
	return in, nil
}

// since is how long ago a moment was, as people are told.
func since(ms int64) time.Duration {
	return max(0, time.Duration(nowMS()-ms)*time.Millisecond)
}

// holding is who has a name that is held.
func (s *Store) holding(k locks.Key, v *view) locks.Holding {
	h := locks.Holding{
		Key: k, Owner: string(v.rec.Owner), Fence: v.fence, Holds: v.count(), Remaining: v.remaining(), Held: since(v.rec.Since),
		Info: string(v.rec.Info), Open: v.rec.Open, Waiters: s.host.Lines.Len(k), Votes: s.need(),
	}
	h.Waited, h.Here = s.memory.made(k, v.fence)
	h.Session = s.host.Keepalive.Keeps(locks.Holder{Key: k, Owner: h.Owner}, v.fence)
	if up := s.Stats().Voting; up > h.Votes {
		h.Votes = up
	}
	return h
}

// A page is some names that have a key, in the order of the digits in front of them.
type page struct {
	names  []locks.Key
	views  []*view
	cursor string // where to go on; "0": there is no more
}

// page looks at some keys behind the cursor: the digits of the last name that was looked at.
func (s *Store) page(ctx context.Context, r locks.ListRequest) (p page, err error) {
	prefix := s.keys().locks()
	from := []byte(prefix)
	if r.Cursor != "" && r.Cursor != "0" {
		if digits, err := hex.DecodeString(r.Cursor); err != nil || len(digits) != hashed/2 {
			return p, &locks.CursorError{Cursor: r.Cursor}
		}
		from = append(from, r.Cursor+"0"...) // behind every name of these digits, which a slash follows
	}
	count := min(cmp.Or(max(r.Count, 0), listCount), listMost)
	var answer rangeResponse
	err = s.client.call(ctx, s.limit(0), "kv/range", rangeRequest{Key: from, End: after(prefix), Limit: int64(count)}, &answer)
	if err != nil {
		return p, named(err, "LOCKCTL", "")
	}
	p.cursor = "0"
	pattern, _, _ := glob.Parse(cmp.Or(r.Match, "*")) // one with an open class is read as Redis does
	for i := range answer.Kvs {
		kv := &answer.Kvs[i]
		k, ok := s.keys().parseLock(kv.Key)
		if !ok {
			continue
		}
		if answer.More {
			p.cursor = string(kv.Key[len(prefix):][:hashed])
		}
		if r.DB != locks.AllDBs && k.DB != r.DB || !pattern.Matches(k.Name) {
			continue
		}
		v, err := s.viewOf(k, kv, answer.Header.Revision)
		if err != nil {
			return p, err
		}
		p.names, p.views = append(p.names, k), append(p.views, v)
	}
	return p, nil
}

// viewOf is a name as one key shows it.
func (s *Store) viewOf(k locks.Key, kv *keyValue, revision int64) (*view, error) {
	rec, mod, err := decode[record](kv)
	if err != nil {
		return nil, err
	}
	v := &view{sure: true, now: s.Now(), mod: mod}
	s.memory.learn(k, rec, mod, revision, nil, v)
	return v, nil
}

// List implements locks.Inspector.
func (s *Store) List(ctx context.Context, r locks.ListRequest) (locks.Listing, error) {
	p, err := s.page(ctx, r)
	if err != nil {
		return locks.Listing{}, err
	}
	l := locks.Listing{Cursor: p.cursor}
	for i, v := range p.views {
		if len(v.holds) > 0 {
			l.Held = append(l.Held, s.holding(p.names[i], v))
		}
	}
	return l, nil
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
		var t txnRequest
		for _, k := range some {
			t.Success = append(t.Success, requestOp{Range: &rangeRequest{Key: s.keys().lock(k)}})
		}
		var r txnResponse
		if err := s.client.call(ctx, s.limit(0), "kv/txn", t, &r); err != nil {
			return nil, named(err, "LOCKCTL", some[0].Name)
		}
		for i, k := range some {
			kv, err := r.at(i)
			if err != nil {
				return nil, err
			}
			v, err := s.viewOf(k, kv, r.Header.Revision)
			if err != nil {
				return nil, err
			}
			if len(v.holds) > 0 {
				held = append(held, s.holding(k, v))
			}
		}
	}
	return held, nil
}

// Force implements locks.Inspector.
func (s *Store) Force(ctx context.Context, k locks.Key, fence int64) (was locks.Holding, held bool, err error) {
	defer s.host.Lines.Wake(k)
	defer s.busy.begin(k)()
	_, err = s.change(ctx, question{op: "LOCKCTL", key: k}, func(v *view) (*write, error) {
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
	s.host.Keepalive.Lose(locks.Holder{Key: k, Owner: was.Owner}, was.Fence, locks.LossForced, "it was taken away by an operator")
	return was, true, nil
}
