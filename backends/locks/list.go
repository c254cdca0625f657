package locks

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

	"github.com/lockproxy/lockproxy/scripts"
)

// A ListRequest asks for a part of the names that are held.
type ListRequest struct {
	DB     int    // or AllDBs
	Match  string // a glob on the name, as SCAN's MATCH; empty: every name
	Count  int    // how many keys of a node to look at, as SCAN's COUNT; 0: 100, at most 1000
	Cursor string // where to go on: empty or "0" begins
}

// AllDBs stands for every database at once.
const AllDBs = -1

// A Listing is a part of the names that are held.
type Listing struct {
	Held   []Holding
	Cursor string // where to go on; "0": there is no more
}

const (
	listCount   = 100         // keys a call looks at, by default
	listMost    = 1000        // and at most
	listTimeout = time.Second // how long a node may take for its part
)

// List returns the names that are held, a part at a time, like SCAN: a name that is held from the first call
// to the last is reported, one that is not all the time may be, and one may be reported twice when a node
// fails meanwhile. Cursors are good at every proxy that names the nodes in the same order. What a quorum
// agrees on is on at least one of any N-Q+1 nodes: as many are looked through, one after the other, and any
// that answer will do. An error is a *CursorError, a *QuorumError, or that of ctx.
func (s *Service) List(ctx context.Context, r ListRequest) (Listing, error) {
	at, err := parseCursor(r.Cursor, len(s.nodes))
	if err != nil {
		return Listing{}, err
	}
	if err := s.acquireSlotToList(ctx); err != nil {
		return Listing{}, err
	}
	defer s.releaseSlot()
	keys, next, err := s.scanSome(ctx, r, at)
	if err != nil {
		return Listing{}, err
	}
	all, err := s.readAll(ctx, keys)
	if err != nil {
		return Listing{}, err
	}
	l := Listing{Cursor: next.String()}
	for i, votes := range all {
		if countKind(votes, yes) < s.quorum {
			return Listing{}, s.quorumError("LOCKCTL", keys[i].Name, votes)
		}
		h, err := s.listed(ctx, votes, keys[i])
		if err != nil {
			return Listing{}, err
		}
		if h.Owner != "" && !at.reported(votes, h.Fence) {
			l.Held = append(l.Held, h)
		}
	}
	return l, nil
}

// listed is who has a name by a read, or by another one where that does not decide it. An owner that may have
// it is listed with the votes it has, which are fewer than a quorum: a name that is held must not be missing.
// There is no Owner if nobody has it.
func (s *Service) listed(ctx context.Context, votes []vote, at Key) (Holding, error) {
	h, who := s.holding(votes, at)
	if who == undecidedHolder || who == unsettledGrant {
		votes, err := s.readStable(ctx, holder{Key: at})
		if err != nil {
			return Holding{}, err
		}
		h, _ = s.holding(votes, at)
	}
	return h, nil
}

// scanSome looks at some keys of the node that the cursor is at, or of another one if
// that does not answer.
func (s *Service) scanSome(ctx context.Context, r ListRequest, at cursor) (keys []Key, next cursor, err error) {
	failed := make([]vote, len(s.nodes))
	for {
		i, ok := s.scannable(at, failed)
		if !ok {
			return nil, at, s.scanError(at, failed)
		}
		if i != at.node {
			at.node, at.scan = i, "0"
		}
		v, err := s.scan(ctx, i, r, at.scan)
		switch {
		case err != nil:
			return nil, at, err
		case v.kind == yes:
			return v.page.keys, at.after(v.page.next, s.toScan()), nil
		}
		failed[i] = v
		at.node = -1
	}
}

// scannable is the node to look through: the one the cursor is at, else one that votes, else any that was not
// looked through and has not just failed.
func (s *Service) scannable(at cursor, failed []vote) (index int, ok bool) {
	usable := func(i int) bool { return at.done&(1<<i) == 0 && failed[i].err == nil }
	if at.node >= 0 && usable(at.node) {
		return at.node, true
	}
	for i, st := range s.Nodes() {
		if st.State == NodeVoting && usable(i) {
			return i, true
		}
	}
	for i := range s.nodes {
		if usable(i) {
			return i, true
		}
	}
	return 0, false
}

// scan looks at some keys of one node.
func (s *Service) scan(ctx context.Context, node int, r ListRequest, from string) (vote, error) {
	pattern := globEscape(s.redisKeys(Key{DB: r.DB}).lock)
	if r.DB == AllDBs {
		pattern = globEscape(lockPrefix(s.opts.Prefix)) + "*:"
	}
	j := scriptCall{
		args:    []string{"SCAN", from, "MATCH", pattern + cmp.Or(r.Match, "*"), "COUNT", strconv.Itoa(listBounds(r.Count))},
		parse:   func(m []rueidis.RedisMessage) (vote, error) { return parsePage(m, s.opts.Prefix) },
		expires: s.now() + listTimeout,
	}
	round := s.askEach(askList, all, func(i int) *scriptCall {
		if i == node {
			return &j
		}
		return nil
	})
	err := round.waitFor(ctx, listTimeout)
	votes := round.close(true, nil)
	v := votes[node]
	s.ended(round, votes, endOf(err, v.kind == yes))
	if v.kind != yes && v.err == nil {
		v.err = s.nodes[node].name(errTimeout)
	}
	return v, err
}

func listBounds(count int) int {
	if count <= 0 {
		return listCount
	}
	return min(count, listMost)
}

// globEscape makes a pattern that matches s alone.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// toScan is how many nodes have to be looked through to see what a quorum agrees on.
func (s *Service) toScan() int { return len(s.nodes) - s.quorum + 1 }

// scanError reports that not enough nodes can be looked through.
func (s *Service) scanError(at cursor, failed []vote) *QuorumError {
	e := &QuorumError{Op: "LOCKCTL", Nodes: len(s.nodes), Need: s.toScan(), Got: bits.OnesCount64(at.done)}
	for i, v := range failed {
		if v.err != nil {
			e.Failed = append(e.Failed, s.nodes[i].name(v.err))
		}
	}
	return e
}

// readAll reads names, some at a time, so that the nodes' queues have room for others.
func (s *Service) readAll(ctx context.Context, keys []Key) (votes [][]vote, err error) {
	for some := range slices.Chunk(keys, maxBatch/2) {
		rounds := make([]*round, len(some))
		for i, at := range some {
			rounds[i] = s.ask(askRead, scriptCall{
				args: s.command(scripts.Read, s.redisKeys(at)), parse: parseRead, expires: s.now() + listTimeout,
			}, all)
		}
		limits := s.opts.timeouts(s.opts.MaxTTL)
		limits.quorum = max(limits.quorum, listTimeout)
		for _, r := range rounds {
			if err == nil {
				err = r.wait(ctx, limits)
			}
			votes = append(votes, s.closed(r, r.close(true, nil), err))
		}
		if err != nil {
			return nil, err
		}
	}
	return votes, nil
}

// A page is what SCAN answers.
type page struct {
	next string // cursor; "0" at the end
	keys []Key  // of locks
}

// parsePage reads {cursor, keys}. A key that is not of a lock is passed over.
func parsePage(m []rueidis.RedisMessage, prefix string) (vote, error) {
	v := vote{kind: yes, page: &page{}}
	if len(m) != 2 {
		return v, fmt.Errorf("%d values where 2 were expected", len(m))
	}
	if err := readText(m[0], &v.page.next); err != nil {
		return v, err
	}
	keys, err := m[1].AsStrSlice()
	for _, k := range keys {
		if at, ok := parseLockKey(prefix, k); ok {
			v.page.keys = append(v.page.keys, at)
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

// A CursorError reports that a List cannot go on from there.
type CursorError struct{ Cursor string }

func (e *CursorError) Error() string { return fmt.Sprintf("%.40q is not a cursor", e.Cursor) }

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
		return c, &CursorError{text}
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

// reported reports whether the name was seen on a node that was looked through before: one that has the grant,
// and not only since a renewal reinstated it there.
func (c cursor) reported(votes []vote, fence int64) bool {
	for i := range votes {
		v := &votes[i]
		if c.done&(1<<i) != 0 && v.kind == yes && v.owner != "" && v.fence == fence && !v.read.reinstated {
			return true
		}
	}
	return false
}
