package copying

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	pageKeys   = "500" // keys that a node looks at in one call
	partSize   = 2000  // arguments of one install, more or less
	rereads    = 3     // of a node that forgets while it is read
	partsBusy  = 3     // tries of a step that gets no answer
	pagesAhead = 16    // that were read and are to be installed
)

// readApart is how much longer a copy says that a hold lasts than the node that showed it. The same hold, shown by another node whose
// page takes up to that much longer, then needs no second copy.
const readApart = 100 * time.Millisecond

// A nodeCopy is one copy to one node.
type nodeCopy struct {
	set     *voters.Set
	node    int
	gen, id string

	fresh chan []string // holds to install, as arguments of install
	parts int           // that were installed
	err   error         // why the copy failed
}

// A reading is what the nodes hold that have not forgotten it. What is new on a page goes to all copies at once.
type reading struct {
	set     *voters.Set
	copies  []*nodeCopy
	without []int // nodes that have forgotten

	mu       sync.Mutex
	names    map[string]struct{}    // by database and name
	until    map[hold]time.Duration // on Set.Clock: so long the nodes of the copies are in doubt about it
	requests map[string]request     // by L or U and the tag
	floor    int64
	maxTTL   int64 // ms
}

func newReading(s *voters.Set, copies ...*nodeCopy) *reading {
	r := &reading{set: s, copies: slices.Clone(copies), names: map[string]struct{}{}, until: map[hold]time.Duration{}, requests: map[string]request{}}
	for _, o := range copies {
		r.without = append(r.without, o.node)
	}
	return r
}

// A hold is one that an owner, as the scripts have it in a doubt, may have on a name.
type hold struct{ name, owner, id string }

// A request is what nodes remember of one.
type request struct {
	value string
	left  int64 // ms
}

// copyTo makes a copy to each of these nodes, of one reading. It returns how many names they are in doubt about, and an error for
// each. errElsewhere says that another one is under way.
func copyTo(ctx context.Context, set *voters.Set, to []voters.Forgotten) (names int, errs []error) {
	copies := make([]*nodeCopy, len(to))
	for i, f := range to {
		copies[i] = &nodeCopy{set: set, node: f.Node, gen: f.Gen, id: set.Opts.Random.ID(), fresh: make(chan []string, pagesAhead)}
	}
	r := newReading(set, copies...)
	r.forEach(func(o *nodeCopy) error { return o.begin(ctx) })
	var err error
	if len(r.copies) > 0 {
		installed := make(chan struct{})
		go func() {
			defer close(installed)
			r.forEach(func(o *nodeCopy) error { return o.installFresh(ctx, r) })
		}()
		err = r.readOthers(ctx) // never before begin was answered
		for _, o := range r.copies {
			close(o.fresh)
		}
		<-installed
	}
	if err == nil {
		r.forEach(func(o *nodeCopy) error { return o.finish(ctx, r) })
	}
	for _, o := range copies {
		errs = append(errs, cmp.Or(o.err, err))
	}
	return len(r.names), errs
}

// forEach takes a step of each copy, at once. Those that fail are left out from there on.
func (r *reading) forEach(step func(*nodeCopy) error) {
	var all sync.WaitGroup
	for _, o := range r.copies {
		all.Go(func() { o.err = step(o) })
	}
	all.Wait()
	r.copies = slices.DeleteFunc(r.copies, func(o *nodeCopy) bool { return o.err != nil })
}

// begin begins the copy on a node without locks.
func (o *nodeCopy) begin(ctx context.Context) error {
	if err := o.step(ctx, "begin"); err != nil {
		return err
	}
	return o.purge(ctx)
}

// installFresh installs the holds that come on fresh until that is closed. While it waits for the node more may come, which then are one
// part. After an error it drops them, so that no reader waits.
func (o *nodeCopy) installFresh(ctx context.Context, r *reading) (err error) {
	for part := range o.fresh {
		part = slices.Clip(part) // the other copies have it as well
		for more := true; more && len(part) < partSize; {
			select {
			case page := <-o.fresh:
				part, more = append(part, page...), page != nil
			default:
				more = false
			}
		}
		if err == nil {
			err = o.install(ctx, r, nil, part)
		}
	}
	return err
}

// install gives the node holds that others show, or requests that they remember.
func (o *nodeCopy) install(ctx context.Context, r *reading, requests, holds []string) error {
	o.parts++
	args := []string{strconv.Itoa(o.parts), strconv.FormatInt(r.longest(), 10), strconv.Itoa(len(requests) / 3)}
	return o.step(ctx, "install", append(append(args, requests...), holds...)...)
}

// finish gives the node what requests the others remember, and then its vote.
func (o *nodeCopy) finish(ctx context.Context, r *reading) error {
	var requests []string
	for tag, q := range r.requests {
		if q.left > 0 {
			requests = append(requests, tag, q.value, strconv.FormatInt(q.left, 10))
		}
	}
	for some := range slices.Chunk(requests, partSize/3*3) {
		if err := o.install(ctx, r, some, nil); err != nil {
			return err
		}
	}
	return o.step(ctx, "commit", strconv.Itoa(o.parts), strconv.FormatInt(r.maxTTL, 10), strconv.FormatInt(r.floor, 10))
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

var (
	errTooFew = errors.New("too few of the others can be read")
	errOlder  = errors.New("has heard of a proxy of an older version within max-ttl")
)

// readOthers has the copies know what a quorum of the other nodes hold. All are asked; the first quorum that has answered in full counts.
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
	read := 0
	for left := asked; left > 0; left-- {
		switch err := <-ends; {
		case err == nil:
			read++
		case ctx.Err() == nil: // later ones say only that they were given up
			errs = append(errs, err)
		}
		if read == r.set.Quorum || len(errs) > asked-r.set.Quorum {
			cancel()
		}
	}
	if read < r.set.Quorum {
		return errors.Join(append(errs, errTooFew)...)
	}
	return nil
}

// readNode reads what one node holds, from the beginning if it forgets meanwhile. What a node shows that turns out not to count does no harm.
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
		for _, part := range r.add(&p, r.set.Clock()) {
			for _, o := range r.copies {
				o.fresh <- part
			}
		}
		if cursor, gen = p.next, p.gen; cursor == "0" {
			return nil
		}
	}
}

// longest is the longest max-ttl, in ms, of the nodes that were read.
func (r *reading) longest() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maxTTL
}

// add adds what a page shows. It returns the holds that the copies do not know yet, or not as lasting as long, for one install each.
func (r *reading) add(p *page, now time.Duration) (parts [][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.floor, r.maxTTL = max(r.floor, p.floor), max(r.maxTTL, p.maxTTL)
	var part []string
	for _, h := range p.holdings {
		left := min(h.left+readApart.Milliseconds(), p.maxTTL)
		fresh := slices.DeleteFunc(h.ids, func(id string) bool {
			its := hold{h.name, h.owner, id}
			if until, there := r.until[its]; there && until >= now+vote.Millis(h.left) {
				return true
			}
			r.until[its] = now + vote.Millis(left)
			return false
		})
		for some := range slices.Chunk(fresh, partSize) {
			r.names[h.name] = struct{}{}
			part = append(append(part, h.name, h.owner, strconv.FormatInt(left, 10), strconv.Itoa(len(some))), some...)
			if len(part) >= partSize {
				parts, part = append(parts, part), nil
			}
		}
	}
	if len(part) > 0 {
		parts = append(parts, part)
	}
	for tag, q := range p.requests {
		if q.left > r.requests[tag].left {
			r.requests[tag] = q
		}
	}
	return parts
}

// A page is one answer of held.
type page struct {
	next, gen string
	floor     int64
	maxTTL    int64 // ms
	holdings  []holding
	requests  map[string]request
}

// A holding is what one owner has of a name, by one node.
type holding struct {
	name, owner string
	left        int64 // ms
	ids         []string
}

var errShort = errors.New("a page of holds is too short")

func (p *page) parse(m []rueidis.RedisMessage) (v vote.Vote, err error) {
	if code, err := m[0].AsInt64(); err != nil || code == 0 {
		return vote.Vote{Kind: vote.No, Err: errOlder}, err
	}
	if len(m) < 7 {
		return v, errShort
	}
	*p = page{requests: map[string]request{}}
	holds, err1 := m[4].AsStrSlice()
	requests, err2 := m[5].AsStrSlice()
	floor, err3 := m[3].AsInt64()
	maxTTL, err4 := m[6].AsInt64()
	if err := errors.Join(err1, err2, err3, err4, vote.ReadText(m[1], &p.next), vote.ReadText(m[2], &p.gen), vote.CheckFence(floor)); err != nil {
		return v, err
	}
	p.floor, p.maxTTL = floor, maxTTL
	return vote.Vote{Kind: vote.Yes}, errors.Join(p.readHoldings(holds), p.readRequests(requests))
}

func (p *page) readHoldings(all []string) error {
	for len(all) > 0 {
		if len(all) < 4 {
			return errShort
		}
		left, err1 := strconv.ParseInt(all[2], 10, 64)
		n, err2 := strconv.Atoi(all[3])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if n < 0 || n > len(all)-4 {
			return errShort
		}
		p.holdings = append(p.holdings, holding{all[0], all[1], left, all[4 : 4+n]})
		all = all[4+n:]
	}
	return nil
}

func (p *page) readRequests(all []string) error {
	for ; len(all) > 0; all = all[3:] {
		if len(all) < 3 {
			return errShort
		}
		left, err := strconv.ParseInt(all[2], 10, 64)
		if err != nil {
			return err
		}
		p.requests[all[0]] = request{all[1], left}
	}
	return nil
}
