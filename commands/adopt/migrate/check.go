package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/glob"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/commands/adopt/peers"
)

func join(texts []string) string { return strings.Join(texts, "; ") }

// Check checks all patterns in a database, and watches meanwhile what changes there, for all of them at once. The error is
// the upstream's, the nodes' or that of ctx.
func (c *Checker) Check(ctx context.Context, db int, watch time.Duration) (Report, error) {
	r := Report{DB: db}
	var patterns []*pattern.Pattern
	for _, p := range c.opt.Patterns {
		if p.DB < 0 || p.DB == db {
			patterns = append(patterns, p)
		}
	}
	r.Rows = make([]Row, len(patterns))
	errs := make([]error, len(patterns))
	var all sync.WaitGroup
	for i, p := range patterns {
		all.Go(func() {
			var err error
			if r.Rows[i], err = c.check(ctx, db, p, watch); err != nil {
				errs[i] = fmt.Errorf("pattern %q: %w", p.Glob, err)
			}
		})
	}
	all.Wait()
	return r, cmp.Or(errs...)
}

func (c *Checker) check(ctx context.Context, db int, p *pattern.Pattern, watch time.Duration) (Row, error) {
	row := Row{Pattern: p.Glob, Mode: p.Mode.String(), Proxies: c.proxies(p)}
	if p.Mode == pattern.Both || p.Mode == pattern.On {
		var err error
		if row.Upstream, row.Nodes, err = c.alone(ctx, db, p, watch); err != nil {
			return row, err
		}
	}
	row.Steps = steps(&row)
	return row, nil
}

// proxies returns the modes in which other proxies have the keys of a pattern.
func (c *Checker) proxies(p *pattern.Pattern) (all []Proxy) {
	if c.opt.Peers == nil {
		return nil
	}
	ours, _, err := glob.Parse(p.Glob)
	if err != nil {
		return nil // it would not have been taken
	}
	for _, peer := range c.opt.Peers() {
		if !peer.Same {
			continue
		}
		modes := map[string]bool{}
		whole := false
		for _, q := range peer.Patterns {
			theirs, _, err := glob.Parse(q.Glob)
			if whole || err != nil || !ours.Overlaps(theirs) || p.DB >= 0 && q.DB >= 0 && p.DB != q.DB {
				continue
			}
			modes[q.Mode] = true
			whole = theirs.Covers(ours) && (q.DB < 0 || q.DB == p.DB)
		}
		if !whole {
			modes[peers.Off] = true
		}
		name := peer.Proxy + " (" + peer.ID + ")"
		for _, mode := range slices.Sorted(maps.Keys(modes)) {
			all = append(all, Proxy{Name: name, Mode: mode, Since: time.Since(peer.Since)})
		}
	}
	return all
}

// alone finds locks that are in one place alone: it looks at all that are there now, and at those that change while it
// watches.
func (c *Checker) alone(ctx context.Context, db int, p *pattern.Pattern, watch time.Duration) (atUpstream, atNodes Alone, err error) {
	direct := map[string]bool{}
	if watch > 0 {
		if direct, err = c.watch(ctx, db, p, watch); err != nil {
			return atUpstream, atNodes, err
		}
	}
	keys, allKeys, err := c.opt.Upstream.Keys(ctx, db, p.Glob, mostKeys)
	if err != nil {
		return atUpstream, atNodes, err
	}
	names, allNames, err := c.opt.Nodes.Names(ctx, locks.NamesRequest{DB: db, Match: p.Glob})
	if err != nil {
		return atUpstream, atNodes, err
	}
	looked := map[string]bool{}
	for _, key := range keys {
		looked[key] = p.Matches(db, key)
	}
	for _, name := range names[:min(len(names), mostKeys)] {
		looked[name.Name] = p.Matches(db, name.Name)
	}
	seen := map[string]bool{}
	for key, matches := range looked {
		if !matches {
			continue
		}
		l, err := c.look(ctx, db, key)
		if err != nil {
			return atUpstream, atNodes, err
		}
		if l.atUpstream || l.atNodes {
			seen[key] = true
		}
	}
	if len(seen) > 0 {
		if err := pause(ctx, secondLook); err != nil {
			return atUpstream, atNodes, err
		}
	}
	atUpstream.Complete, atNodes.Complete = allKeys, allNames && len(names) <= mostKeys
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		l, err := c.look(ctx, db, key)
		if err != nil {
			return atUpstream, atNodes, err
		}
		if l.atUpstream {
			direct[key] = true
		}
		if l.atNodes {
			atNodes.add(key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(direct)) {
		atUpstream.add(key)
	}
	return atUpstream, atNodes, nil
}

func (a *Alone) add(key string) {
	if a.Count++; a.Example == "" {
		a.Example = key
	}
}

// A call in the mode both has the key at the upstream for so long before the nodes grant it, if they can; and for so
// long, if somebody else has the lock there, before it gives the key back.
const (
	grantedWithin   = 100 * time.Millisecond
	givenBackWithin = 300 * time.Millisecond
)

// mostLooks is how many keys that have changed are looked at together; what changes beside them is looked at when it
// changes again.
const mostLooks = 16

// watch follows what changes at the upstream for the duration d. It returns the keys that were at the upstream alone for
// longer than a call in mode both leaves one there that the nodes do not grant. If a key could not be looked at, it
// returns that error at once.
func (c *Checker) watch(ctx context.Context, db int, p *pattern.Pattern, d time.Duration) (direct map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var failed error
	var mu sync.Mutex
	var all sync.WaitGroup
	direct = map[string]bool{}
	looking := map[string]bool{}
	err = c.opt.Upstream.Watch(ctx, db, p.Literal(), func(key string) {
		mu.Lock()
		defer mu.Unlock()
		if !p.Matches(db, key) || looking[key] || direct[key] || len(looking) == mostLooks {
			return
		}
		looking[key] = true
		all.Go(func() {
			is, err := c.isDirect(ctx, db, key)
			over := ctx.Err() != nil // and so err is no failure
			mu.Lock()
			defer mu.Unlock()
			delete(looking, key)
			if is {
				direct[key] = true
			}
			if err != nil && !over && failed == nil {
				failed = err
				cancel()
			}
		})
	})
	all.Wait()
	switch {
	case failed != nil:
		return direct, failed
	case ctx.Err() != nil: // it is over
		return direct, nil
	}
	return direct, err
}

// isDirect reports whether a key that has changed stays at the upstream alone.
func (c *Checker) isDirect(ctx context.Context, db int, key string) (bool, error) {
	first, err := c.look(ctx, db, key)
	if err != nil || !first.atUpstream {
		return false, err
	}
	within := grantedWithin
	if first.held {
		within = givenBackWithin
	}
	if err := pause(ctx, within); err != nil {
		return false, err
	}
	second, err := c.look(ctx, db, key)
	return second.atUpstream && second.held == first.held && slices.Equal(first.values, second.values), err
}

// A glance says where a lock is.
type glance struct {
	atUpstream, atNodes bool // there alone
	held                bool // the nodes have one
	values              []string
}

// endsWithin is how far the ends of one lock may be apart in the two places: a call in the mode both moves one after the other.
const endsWithin = 500 * time.Millisecond

// look reports whether a lock is at the upstream alone, or at the nodes alone. The upstream is asked before and after the
// nodes: what it had both times it had when they said that nobody has the lock. A lock that ends in one place before the
// other will be in that one alone; and a key with another end may be the attempt of a client that has the same value as
// the holder.
func (c *Checker) look(ctx context.Context, db int, key string) (g glance, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("could not look at %q: %w", key, err)
		}
	}()
	before, err := c.opt.Upstream.Values(ctx, db, key)
	if err != nil {
		return g, err
	}
	r, err := c.opt.Nodes.Read(ctx, locks.Key{DB: db, Name: key})
	if err != nil {
		return g, err
	}
	after, err := c.opt.Upstream.Values(ctx, db, key)
	if err != nil {
		return g, err
	}
	value, kind := locks.ShownOwner(r.Owner)
	adopted := r.Held && kind != ""
	stays := len(before) > 0 && slices.Equal(before, after)
	has := func(values []string) bool { return adopted && slices.Contains(values, value) }
	g = glance{atUpstream: stays && !has(before), atNodes: r.Held && !has(before) && !has(after), held: r.Held, values: before}
	if !has(before) && !has(after) {
		return g, nil
	}
	left, ends, err := c.opt.Upstream.Left(ctx, db, key)
	if late := left - r.Remaining; err == nil && ends {
		g.atUpstream = g.atUpstream || stays && !r.Open && late > endsWithin
		g.atNodes = g.atNodes || r.Open || late.Abs() > endsWithin
	}
	return g, err
}

// steps returns the modes that may come next, and what is in the way.
func steps(r *Row) (all []Step) {
	is := func(modes ...string) (texts []string) {
		for _, p := range r.Proxies {
			if slices.Contains(modes, p.Mode) {
				texts = append(texts, fmt.Sprintf("proxy %s is %s", p.Name, p.Mode))
			}
		}
		return texts
	}
	switch r.Mode {
	case peers.Both:
		return []Step{
			{To: peers.On, InTheWay: append(is(peers.Off, peers.Observe), r.Upstream.text("the upstream has", "the lock nodes have not")...)},
			{To: peers.Off, InTheWay: append(is(peers.On), r.Nodes.text("the lock nodes have", "the upstream has not")...)},
		}
	case peers.On:
		return []Step{{To: peers.Both, InTheWay: is(peers.Off, peers.Observe)}}
	}
	return []Step{{To: peers.Both, InTheWay: is(peers.On)}}
}

func (a *Alone) text(has, hasNot string) (texts []string) {
	switch {
	case a.Count == 1:
		texts = append(texts, fmt.Sprintf("%s a lock that %s: %q", has, hasNot, a.Example))
	case a.Count > 1:
		texts = append(texts, fmt.Sprintf("%s %d locks that %s, such as %q", has, a.Count, hasNot, a.Example))
	}
	if !a.Complete {
		texts = append(texts, "there are more keys than were looked at")
	}
	return texts
}
