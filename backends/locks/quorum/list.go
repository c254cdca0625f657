package quorum

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	listCount   = 100         // keys a call looks at, by default
	listMost    = 1000        // and at most
	listTimeout = time.Second // how long a node may take for its part
)

// List implements locks.Inspector. A lock that a quorum has is on at least one of any N-Q+1 nodes, so that many are
// scanned, one after the other, whichever of them answer.
func (s *Store) List(ctx context.Context, r locks.ListRequest) (locks.Listing, error) {
	at, err := parseCursor(r.Cursor, len(s.set.Members))
	if err != nil {
		return locks.Listing{}, err
	}
	if err := s.set.AcquireSlotToList(ctx); err != nil {
		return locks.Listing{}, err
	}
	defer s.set.ReleaseSlot()
	page, node, next, err := s.scanSome(ctx, r, at)
	if err != nil {
		return locks.Listing{}, err
	}
	l := locks.Listing{Cursor: next.String()}
	err = s.eachHeld(ctx, append(page.Keys, page.Sets...), func(i int, h locks.Holding, votes []vote.Vote) {
		if !otherKey(&votes[node], i >= len(page.Keys)) && !at.reported(votes, h) {
			l.Held = append(l.Held, h)
		}
	})
	return l, err
}

// eachHeld reads names, and calls do for each that is held, with its place among them.
func (s *Store) eachHeld(ctx context.Context, names []locks.Key, do func(int, locks.Holding, []vote.Vote)) error {
	all, err := s.readAll(ctx, names)
	if err != nil {
		return err
	}
	for i, votes := range all {
		few := !s.set.Agree(votes)
		if few && !slices.ContainsFunc(votes, func(v vote.Vote) bool { return v.Code == vote.InDoubt }) {
			return s.set.QuorumError("LOCKCTL", names[i].Name, votes)
		}
		h, err := s.listed(ctx, votes, names[i])
		switch {
		case err != nil:
			return err
		case h.Owner != "" || h.Readers > 0:
			do(i, h, votes)
		case few: // those in doubt may have had what the others lack
			return s.set.QuorumError("LOCKCTL", names[i].Name, votes)
		}
	}
	return nil
}

// listed is who has a name by the votes of a read, or of a second read if the first does not decide it. An owner or readers with fewer votes
// than a quorum are listed with those: a name that is held must not be missing. Owner is empty if nobody has the name.
func (s *Store) listed(ctx context.Context, votes []vote.Vote, at locks.Key) (locks.Holding, error) {
	h, who := s.holding(votes, at)
	if who == tally.MaybeHeld || who == tally.BeingGranted || tally.MaybeRead(votes, s.set.Quorum) {
		var err error
		if votes, err = s.readStable(ctx, locks.Holder{Key: at}); err != nil {
			return locks.Holding{}, err
		}
		h, who = s.holding(votes, at)
	}
	if who == tally.HeldByNobody && tally.MaybeRead(votes, s.set.Quorum) {
		h.Readers, h.Remaining = tally.ReadBy(votes, 1)
	}
	return h, nil
}

// scanSome looks at some keys of the node that the cursor is at, or of another one if that does not answer.
func (s *Store) scanSome(ctx context.Context, r locks.ListRequest, at cursor) (page vote.Page, node int, next cursor, err error) {
	failed := make([]vote.Vote, len(s.set.Members))
	for {
		i, ok := s.scannable(at, failed)
		if !ok {
			return page, i, at, s.scanError(at, failed)
		}
		if i != at.node {
			at.node, at.scan = i, "0"
		}
		v, err := s.scan(ctx, i, r, at.scan)
		switch {
		case err != nil:
			return page, i, at, err
		case v.Kind == vote.Yes:
			return *v.Page, i, at.after(v.Page.Next, s.toScan()), nil
		}
		failed[i] = v
		at.node = -1
	}
}

// scannable is the node to look through: the one the cursor is at, else one that votes about all names, else about most, else
// any that was not looked through and has not just failed. One that forgot has failed: it lacks what a quorum has.
func (s *Store) scannable(at cursor, failed []vote.Vote) (index int, ok bool) {
	best := 0
	for i, st := range s.set.Nodes() {
		rank := 1
		switch {
		case at.done&(1<<i) != 0 || failed[i].Err != nil:
			continue
		case st.State == locks.NodeQuarantine || st.State == locks.NodeFloorless || st.State == locks.NodeNew:
			failed[i].Err = st.Err
			continue
		case i == at.node:
			return i, true
		case st.State == locks.NodeVoting && st.Doubt == 0:
			rank = 3
		case st.State == locks.NodeVoting:
			rank = 2
		}
		if rank > best {
			index, best = i, rank
		}
	}
	return index, best > 0
}

// scan looks at some keys of one node.
func (s *Store) scan(ctx context.Context, node int, r locks.ListRequest, from string) (vote.Vote, error) {
	db := "*"
	if r.DB != locks.AllDBs {
		db = strconv.Itoa(r.DB)
	}
	pattern := nodekeys.Pattern(s.set.Opts.Prefix, db)
	call := voters.ScriptCall{
		Args:    []string{"SCAN", from, "MATCH", pattern + cmp.Or(r.Match, "*"), "COUNT", strconv.Itoa(min(cmp.Or(max(r.Count, 0), listCount), listMost))},
		Parse:   func(m []rueidis.RedisMessage) (vote.Vote, error) { return parsePage(m, s.set.Opts.Prefix) },
		Expires: s.Now() + listTimeout,
	}
	return s.askOne(ctx, node, &call)
}

// askOne asks one node for a page of its keys or leases. If the vote is not Yes, its Err says why.
func (s *Store) askOne(ctx context.Context, node int, call *voters.ScriptCall) (vote.Vote, error) {
	round := s.set.AskEach(voters.AskList, voters.WaitForAll, func(i int) *voters.ScriptCall {
		if i == node {
			return call
		}
		return nil
	})
	err := round.WaitFor(ctx, listTimeout)
	votes := round.Close(true, nil)
	v := votes[node]
	s.set.Ended(round, votes, vote.EndOf(err, v.Kind == vote.Yes))
	if v.Kind != vote.Yes && v.Err == nil {
		v.Err = s.set.Members[node].Name(voters.ErrTimeout)
	}
	return v, err
}

// toScan is how many nodes have to be looked through to see what a quorum agrees on.
func (s *Store) toScan() int { return len(s.set.Members) - s.set.Quorum + 1 }

// scanError reports that not enough nodes can be looked through.
func (s *Store) scanError(at cursor, failed []vote.Vote) *locks.QuorumError {
	e := &locks.QuorumError{Op: "LOCKCTL", Nodes: len(s.set.Members), Need: s.toScan(), Got: bits.OnesCount64(at.done)}
	for i, v := range failed {
		if v.Err != nil {
			e.Failed = append(e.Failed, s.set.Members[i].Name(v.Err))
		}
	}
	return e
}

// readAll reads names, some at a time, so that the nodes' queues have room for others. Those wait together for a node that is silent.
func (s *Store) readAll(ctx context.Context, keys []locks.Key) (votes [][]vote.Vote, err error) {
	for some := range slices.Chunk(keys, voters.MaxBatch/2) {
		rounds := make([]*voters.Round, len(some))
		for i, at := range some {
			rounds[i] = s.set.Ask(voters.AskRead, voters.ScriptCall{
				Args: s.set.Command(scripts.Read, s.set.RedisKeys(at)), Parse: vote.ParseRead, Expires: s.Now() + listTimeout,
			}, voters.WaitForAll)
		}
		asked, limits := s.Now(), s.set.Opts.Timeouts(s.set.Opts.MaxTTL)
		limits.Quorum = max(limits.Quorum, listTimeout)
		for _, r := range rounds {
			if err == nil {
				err = r.Wait(ctx, limits.After(s.Now()-asked))
			}
			votes = append(votes, s.set.CloseAnswered(r, true, err))
		}
		if err != nil {
			return nil, err
		}
	}
	return votes, nil
}

// parsePage reads {cursor, keys}. A key that is not of a lock is passed over.
func parsePage(m []rueidis.RedisMessage, prefix string) (vote.Vote, error) {
	v := vote.Vote{Kind: vote.Yes, Page: &vote.Page{}}
	if len(m) != 2 {
		return v, fmt.Errorf("%d values where 2 were expected", len(m))
	}
	if err := vote.ReadText(m[0], &v.Page.Next); err != nil {
		return v, err
	}
	keys, err := m[1].AsStrSlice()
	for _, k := range keys {
		switch at, set, ok := nodekeys.ParseRecord(prefix, k); {
		case !ok:
		case set:
			v.Page.Sets = append(v.Page.Sets, at)
		default:
			v.Page.Keys = append(v.Page.Keys, at)
		}
	}
	return v, err
}

// A cursor is how far a List is.
type cursor struct {
	done uint64 // a bit for each node that was looked through
	node int    // that is being looked through; -1: none yet
	scan string // its own cursor
}

// parseCursor reads what String wrote.
func parseCursor(text string, nodes int) (c cursor, err error) {
	c.node = -1
	if text == "" || text == "0" {
		return c, nil
	}
	done, rest, more := strings.Cut(text, ".")
	node, scan, _ := strings.Cut(rest, ".")
	c.done, err = strconv.ParseUint(done, 10, 64)
	if err == nil && more {
		if c.node, err = strconv.Atoi(node); err == nil {
			_, err = strconv.ParseUint(scan, 10, 64)
		}
		c.scan = scan
	}
	if err != nil || c.done>>nodes != 0 || more && (c.node < 0 || c.node >= nodes || c.done&(1<<c.node) != 0) {
		return c, &locks.CursorError{Cursor: text}
	}
	return c, nil
}

// String is "0" at the beginning, which is also the end.
func (c cursor) String() string {
	if c.node < 0 {
		return strconv.FormatUint(c.done, 10)
	}
	return fmt.Sprintf("%d.%d.%s", c.done, c.node, c.scan)
}

// after is where to go on when the node's own cursor is next; toScan nodes are enough.
func (c cursor) after(next string, toScan int) cursor {
	if next != "0" {
		return cursor{c.done, c.node, next}
	}
	done := c.done | 1<<c.node
	if bits.OnesCount64(done) >= toScan {
		done = 0
	}
	return cursor{done: done, node: -1}
}

// otherKey reports whether a name is listed by another key of it on the node that is looked through: by the set of its
// readers if it has any there, else by its record.
func otherKey(v *vote.Vote, set bool) bool {
	return v.Kind == vote.Yes && (v.Read.Readers > 0) != set
}

// reported reports whether the name was seen on a node that was looked through before: one that has the grant,
// and not only since a renewal reinstated it there, or that has readers.
func (c cursor) reported(votes []vote.Vote, h locks.Holding) bool {
	for i := range votes {
		v := &votes[i]
		switch {
		case c.done&(1<<i) == 0 || v.Kind != vote.Yes:
		case v.Read.Readers > 0, v.Owner != "" && v.Fence == h.Fence && !v.Read.Reinstated:
			return true
		}
	}
	return false
}

// Names implements locks.Inspector.
func (s *Store) Names(ctx context.Context, r locks.NamesRequest) (names []locks.Key, complete bool, err error) {
	seen, at := map[locks.Key]bool{}, cursor{node: -1}
	for looks := cmp.Or(r.Looks, 100); looks > 0; looks-- {
		some, next, err := s.namesFrom(ctx, locks.ListRequest{DB: r.DB, Match: r.Match, Count: listMost}, at)
		if err != nil {
			return names, false, err
		}
		for _, k := range some {
			if !seen[k] {
				names = append(names, k)
			}
			seen[k] = true
		}
		if at = next; at.String() == "0" {
			return names, true, nil
		}
	}
	return names, false, nil
}

// namesFrom is one step of Names. It takes a slot of its own, so that locks need not wait for all steps.
func (s *Store) namesFrom(ctx context.Context, r locks.ListRequest, at cursor) ([]locks.Key, cursor, error) {
	if err := s.set.AcquireSlotToList(ctx); err != nil {
		return nil, at, err
	}
	defer s.set.ReleaseSlot()
	page, _, next, err := s.scanSome(ctx, r, at)
	return append(page.Keys, page.Sets...), next, err
}

// Holdings implements locks.Inspector.
func (s *Store) Holdings(ctx context.Context, names []locks.Key) (held []locks.Holding, err error) {
	for some := range slices.Chunk(names, voters.MaxBatch/2) {
		if err := s.set.AcquireSlotToList(ctx); err != nil {
			return nil, err
		}
		err := s.eachHeld(ctx, some, func(_ int, h locks.Holding, _ []vote.Vote) { held = append(held, h) })
		s.set.ReleaseSlot()
		if err != nil {
			return nil, err
		}
	}
	return held, nil
}
