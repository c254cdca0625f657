package copying

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	pageKeys  = "500" // keys that a node looks at in one call
	partSize  = 2000  // arguments of one install, more or less
	rereads   = 3     // of a node that forgets while it is read
	partsBusy = 3     // tries of a step that gets no answer
)

// A nodeCopy is one copy to one node.
type nodeCopy struct {
	set     *voters.Set
	node    int
	gen, id string
}

// A reading is what the nodes hold that have not forgotten it.
type reading struct {
	set     *voters.Set
	without []int // nodes that have

	mu       sync.Mutex
	complete bool                 // enough was read: nothing is added any more
	names    map[string]*heldName // by database and name
	requests map[string]request   // by L or U and the tag
	floor    int64
	maxTTL   int64 // ms
}

func newReading(s *voters.Set, without ...int) *reading {
	return &reading{set: s, without: without, names: map[string]*heldName{}, requests: map[string]request{}}
}

// A heldName is a name that may be held.
type heldName struct {
	left   int64 // ms, of the hold that lasts longest
	owners []owned
}

// An owned is what one owner has of a name.
type owned struct {
	owner string // as the scripts have it in a doubt
	holds []string
}

// add adds holds of an owner that are not there yet.
func (n *heldName) add(owner string, holds []string) {
	at := slices.IndexFunc(n.owners, func(o owned) bool { return o.owner == owner })
	if at < 0 {
		n.owners = append(n.owners, owned{owner, holds})
		return
	}
	o := &n.owners[at]
	for _, id := range holds {
		if !slices.Contains(o.holds, id) {
			o.holds = append(o.holds, id)
		}
	}
}

// A request is what nodes remember of one.
type request struct {
	value string
	left  int64 // ms
}

// copyTo makes a copy to each of these nodes, of one reading. It returns how many names they are in doubt about, and an error for
// each. errElsewhere says that another one is under way.
func copyTo(ctx context.Context, set *voters.Set, to []voters.Forgotten) (names int, errs []error) {
	r := newReading(set)
	copies, errs := make([]nodeCopy, len(to)), make([]error, len(to))
	forEach := func(do func(*nodeCopy) error) {
		var all sync.WaitGroup
		for i := range copies {
			if errs[i] == nil {
				all.Go(func() { errs[i] = do(&copies[i]) })
			}
		}
		all.Wait()
	}
	for i, f := range to {
		r.without = append(r.without, f.Node)
		copies[i] = nodeCopy{set, f.Node, f.Gen, set.Opts.Random.ID()}
	}
	forEach(func(o *nodeCopy) error { return o.step(ctx, "begin") })
	if !slices.Contains(errs, nil) {
		return 0, errs
	}
	if err := r.readOthers(ctx); err != nil { // never before begin was answered
		forEach(func(*nodeCopy) error { return err })
		return 0, errs
	}
	forEach(func(o *nodeCopy) error { return o.finish(ctx, r) })
	return len(r.names), errs
}

// finish gives the node what was read.
func (o *nodeCopy) finish(ctx context.Context, r *reading) error {
	if err := o.purge(ctx); err != nil {
		return err
	}
	parts, err := o.install(ctx, r)
	if err != nil {
		return err
	}
	return o.step(ctx, "commit", strconv.Itoa(parts), strconv.FormatInt(r.maxTTL, 10), strconv.FormatInt(r.floor, 10))
}

// step has the node do one thing that may be repeated.
func (o *nodeCopy) step(ctx context.Context, what string, args ...string) error {
	_, err := o.ask(ctx, what, args...)
	return err
}

func (o *nodeCopy) ask(ctx context.Context, what string, args ...string) (v vote.Vote, err error) {
	args = append([]string{what, o.gen, o.id}, args...)
	for range partsBusy {
		v, err = o.set.AskOne(ctx, voters.AskCopy, o.node, scripts.Copy, parseStep, args...)
		switch {
		case err != nil:
			return v, err
		case v.Kind == vote.Yes:
			return v, nil
		case v.Kind == vote.No, v.Code != 0: // another copy is under way; the node votes, or has forgotten again
			return v, errElsewhere
		}
	}
	return v, o.set.Members[o.node].Name(voters.OrTimeout(v.Err))
}

// parseStep reads what copy answers; a cursor is the page's.
func parseStep(m []rueidis.RedisMessage) (v vote.Vote, err error) {
	if v, err = vote.ParseDone(m[:1]); err == nil && len(m) == 2 && v.Kind == vote.Yes {
		v.Page = &vote.Page{}
		err = vote.ReadText(m[1], &v.Page.Next)
	}
	return v, err
}

// pattern is for the keys of locks, readings, doubts and requests, but not for those of fences, which are as many.
func pattern(s *voters.Set) string { return nodekeys.Literal(s.Opts.Prefix) + "[lrdn]*" }

// purge removes the locks that are on the node, which come from an older snapshot.
func (o *nodeCopy) purge(ctx context.Context) error {
	for cursor := "0"; ; {
		v, err := o.ask(ctx, "purge", cursor, pattern(o.set))
		if err != nil {
			return err
		}
		if v.Page == nil { // it votes already
			return errElsewhere
		}
		if cursor = v.Page.Next; cursor == "0" {
			return nil
		}
	}
}

// install gives the node what the others hold. It returns how many parts there were.
func (o *nodeCopy) install(ctx context.Context, read *reading) (parts int, err error) {
	var requests, names []string
	n := 0
	flush := func() error {
		if n == 0 && len(names) == 0 {
			return nil
		}
		parts++
		args := append(append([]string{strconv.Itoa(parts), strconv.FormatInt(read.maxTTL, 10), strconv.Itoa(n)}, requests...), names...)
		requests, names, n = nil, nil, 0
		return o.step(ctx, "install", args...)
	}
	for _, name := range slices.Sorted(maps.Keys(read.requests)) {
		r := read.requests[name]
		if r.left <= 0 {
			continue
		}
		requests = append(requests, name, r.value, strconv.FormatInt(r.left, 10))
		if n++; len(requests) >= partSize {
			if err := flush(); err != nil {
				return parts, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(read.names)) {
		held := read.names[name]
		for _, its := range held.owners {
			for ids := its.holds; len(ids) > 0; {
				some := ids[:min(len(ids), partSize)]
				ids = ids[len(some):]
				names = append(append(names, name, its.owner, strconv.FormatInt(held.left, 10), strconv.Itoa(len(some))), some...)
				if len(requests)+len(names) >= partSize {
					if err := flush(); err != nil {
						return parts, err
					}
				}
			}
		}
	}
	return parts, flush()
}

var (
	errTooFew = errors.New("too few of the others can be read")
	errOlder  = errors.New("has heard of a proxy of an older version within max-ttl")
)

// readOthers reads what a quorum of the other nodes hold. All are asked; the first quorum that has answered in full counts.
func (r *reading) readOthers(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan error, len(r.set.Members))
	asked := 0
	for i := range r.set.Members {
		if !slices.Contains(r.without, i) {
			asked++
			r.set.Start(func() { ends <- r.readNode(ctx, i) })
		}
	}
	var errs []error
	for read := 0; read < r.set.Quorum; {
		if len(errs) > asked-r.set.Quorum {
			return errors.Join(append(errs, errTooFew)...)
		}
		if err := <-ends; err != nil {
			errs = append(errs, err)
		} else {
			read++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete = true
	return nil
}

// readNode reads what one node holds, from the beginning if it forgets meanwhile.
func (r *reading) readNode(ctx context.Context, i int) error {
	for cursor, gen, tries := "0", "", 0; ; {
		var p page
		v, err := r.set.AskOne(ctx, voters.AskCopy, i, scripts.Held, p.parse, cursor, pattern(r.set), pageKeys)
		switch {
		case err != nil:
			return err
		case v.Kind != vote.Yes:
			return r.set.Members[i].Name(voters.OrTimeout(v.Err))
		case cursor != "0" && p.gen != gen:
			if tries++; tries == rereads {
				return r.set.Members[i].Name(errors.New("it forgets again and again"))
			}
			cursor = "0"
			continue
		}
		r.add(&p)
		if cursor, gen = p.next, p.gen; cursor == "0" {
			return nil
		}
	}
}

// add adds what a page shows. What is shown by a node that turns out not to count does no harm.
func (r *reading) add(p *page) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.complete {
		return
	}
	r.floor, r.maxTTL = max(r.floor, p.floor), max(r.maxTTL, p.maxTTL)
	for _, h := range p.holdings {
		held := r.names[h.name]
		if held == nil {
			held = &heldName{}
			r.names[h.name] = held
		}
		held.left = max(held.left, h.left)
		held.add(h.owner, h.holds)
	}
	for name, q := range p.requests {
		if q.left > r.requests[name].left {
			r.requests[name] = q
		}
	}
}

// A page is one answer of held.
type page struct {
	next, gen string
	floor     int64
	maxTTL    int64 // ms
	holdings  []holding
	requests  map[string]request
}

// A holding is one item of a page.
type holding struct {
	name string
	left int64 // ms
	owned
}

func (p *page) parse(m []rueidis.RedisMessage) (v vote.Vote, err error) {
	if code, err := m[0].AsInt64(); err != nil || code == 0 {
		return vote.Vote{Kind: vote.No, Err: errOlder}, err
	}
	if len(m) < 7 {
		return v, errors.New("no page of holds")
	}
	*p = page{requests: map[string]request{}}
	names, err1 := m[4].ToArray()
	requests, err2 := m[5].ToArray()
	floor, err3 := m[3].AsInt64()
	maxTTL, err4 := m[6].AsInt64()
	if err := errors.Join(err1, err2, err3, err4, vote.ReadText(m[1], &p.next), vote.ReadText(m[2], &p.gen), vote.CheckFence(floor)); err != nil {
		return v, err
	}
	p.floor, p.maxTTL = floor, maxTTL
	for _, n := range names {
		all, left, err := item(n, 4)
		if err != nil {
			return v, err
		}
		p.holdings = append(p.holdings, holding{all[0], left, owned{all[1], all[3:]}})
	}
	for _, r := range requests {
		all, left, err := item(r, 3)
		if err != nil {
			return v, err
		}
		p.requests[all[0]] = request{all[1], left}
	}
	return vote.Vote{Kind: vote.Yes}, nil
}

// item reads an item of a page: at least so many texts, of which the third is how many ms are left.
func item(m rueidis.RedisMessage, least int) (all []string, left int64, err error) {
	if all, err = m.AsStrSlice(); err == nil && len(all) < least {
		err = errors.New("an item of a page is too short")
	}
	if err == nil {
		left, err = strconv.ParseInt(all[2], 10, 64)
	}
	return all, left, err
}
