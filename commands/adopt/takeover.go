package adopt

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// mostHolds is how many holds of a hash can be taken over; each takes a request of its own.
const mostHolds = 64

// takeOver has the lock nodes grant a lock that only the upstream has, since it was taken in mode off, to the caller that
// has just extended it there. It reports false if the caller has lost it: the nodes have another's, a proxy in mode on may
// have granted it meanwhile, or it was released at the upstream before the nodes had granted it. See docs/decisions/0028.
//
// at is what the nodes have: if that is a grant made in mode both, whose value the upstream no longer has, it is lost, and
// replaced.
func (a *Adoption) takeOver(ctx context.Context, conn Connection, c *Call, u *upstreamRun, at guess) (bool, error) {
	key := lockKey(conn, c)
	if a.opt.Peers != nil {
		if on, err := a.opt.Peers.AnyOn(ctx, key.DB, key.Name); on || err != nil {
			return false, err
		}
	}
	began := time.Now()
	has, err := a.upstreamState(ctx, conn, key.Name)
	if err != nil {
		return false, err
	}
	was := has
	was.Left = min(has.Left, a.opt.MaxTTL) // this call itself may have removed the end
	out, refused := c.Run(was, time.Now())
	written := u.taken().Do == idiom.Replace && u.taken().Value == has.Value // this call has replaced the caller's value
	if refused != nil || out.Op.Do != idiom.Renew && !written || has.Count > mostHolds {
		return false, nil
	}
	var lost *locks.GrantRef
	if is := at.confirmedState(time.Now()); at.made == madeBoth && at.fence != 0 && (is.Kind != has.Kind || is.Value != has.Value) {
		lost = &locks.GrantRef{Owner: at.owner, Fence: at.fence}
	}
	granted, next, err := a.takeAs(ctx, c, key, has, lost, began)
	if err != nil {
		return false, err
	}
	if len(granted) == 0 { // another call may have taken over this very lock
		r, err := a.decideOne(ctx, conn, c)
		if err == nil && time.Since(u.began) >= u.lease() {
			err = errLate
		}
		return r.did != idiom.Nothing, err
	}
	undo := func(granted []locks.Grant) {
		for _, g := range granted {
			a.Undo(g)
		}
	}
	still, err := a.upstreamState(ctx, conn, key.Name)
	switch {
	case err != nil:
		undo(granted)
		return false, err
	case still.Kind != has.Kind || still.Value != has.Value: // it was released, perhaps before the nodes had granted it
		undo(granted)
		return false, nil
	case time.Since(u.began) >= u.lease():
		undo(granted)
		return false, errLate
	}
	if kept := max(1, still.Count); kept < len(granted) { // some holds were released
		undo(granted[kept:])
		next.holds = kept
	}
	a.remember(key, next)
	a.counters.takenOver.Add(1)
	return true, nil
}

// equalizeHolds makes the upstream and the nodes count as many holds of a hash that was just entered in mode both. If it was
// taken in another mode, the earlier holds are in one place only, and releasing the new one would free the lock in the other
// place.
func (a *Adoption) equalizeHolds(ctx context.Context, conn Connection, c *Call, u *upstreamRun, taken locks.Grant) error {
	field, _ := locks.ShownOwner(taken.Owner)
	reply, err := conn.Ask(ctx, []string{"HGET", c.Key(), field})
	if err != nil {
		return err
	}
	holds, err := strconv.Atoi(string(resp.Bulk(reply)))
	if err != nil { // it is gone, or this client may not read it
		return nil
	}
	if holds > mostHolds {
		return c.refused(NotTold, fmt.Sprintf("its holder has entered it more than %d times at the upstream", mostHolds))
	}
	g, _ := a.guesses.Get(taken.Key)
	for n := holds; n < taken.Holds && g.made == madeOn; n++ {
		if !a.changeCopy(ctx, conn, c.Key(), idiom.Hash, field, idiom.Op{Do: idiom.Enter}) {
			return errUnclear
		}
	}
	ttl, _, err := a.lease(c, idiom.Hash, u.taken().TTL)
	for n := taken.Holds; n < holds && err == nil; n++ {
		var d locks.Decision
		d, _, err = a.lockGuarded(ctx, nil, c.pattern, locks.LockRequest{Key: taken.Key, Owner: taken.Owner, TTL: ttl, Info: madeBoth.info()})
		if d.Granted && (d.Grant.Fence != taken.Fence || d.Grant.Holds <= n) { // it was released meanwhile
			a.Undo(d.Grant)
			err = errChanging
		}
		a.guesses.Remove(taken.Key)
	}
	return err
}

// takeAs has the nodes grant the lock that the upstream was found to have at began, with as many holds, and in place of the
// grant lost, if any. It returns no grants if the nodes have another's.
func (a *Adoption) takeAs(ctx context.Context, c *Call, key locks.Key, has idiom.State, lost *locks.GrantRef, began time.Time) (granted []locks.Grant, next guess, err error) {
	ttl, open, err := a.lease(c, has.Kind, has.Left)
	if err != nil {
		return nil, next, err
	}
	op := idiom.Op{Do: idiom.Take, Value: has.Value}
	switch has.Kind {
	case idiom.Hash:
		op.Do = idiom.Enter
	case idiom.Sorted:
		op.Kind = idiom.Sorted
	}
	request := locks.LockRequest{Key: key, Owner: a.ownerOf(op), TTL: ttl, Open: open, Info: madeBoth.info(), Replaces: lost, NoReenter: lost == nil}
	for holds := 1; holds <= max(1, has.Count); holds++ {
		d, _, err := a.lockGuarded(ctx, nil, c.pattern, request)
		if err != nil || !d.Granted || d.Grant.Holds != holds {
			if d.Granted {
				granted = append(granted, d.Grant)
			}
			for _, g := range granted {
				a.Undo(g)
			}
			return nil, next, err
		}
		granted = append(granted, d.Grant)
		next = guess{owner: d.Grant.Owner, fence: d.Grant.Fence, holds: holds, until: began.Add(ttl), open: open, made: madeBoth}
		request.NoReenter, request.Replaces = false, nil
	}
	return granted, next, nil
}

// upstreamState returns the state of a key at the upstream. It is Absent also if the key holds no lock, or this client may
// not read it.
func (a *Adoption) upstreamState(ctx context.Context, conn Connection, key string) (s idiom.State, err error) {
	value, err := conn.Ask(ctx, []string{"GET", key})
	if err != nil {
		return s, err
	}
	switch text, isError := resp.Error(value); {
	case strings.HasPrefix(text, "WRONGTYPE"):
		all, err := conn.Ask(ctx, []string{"HGETALL", key})
		if err != nil {
			return s, err
		}
		if text, _ := resp.Error(all); strings.HasPrefix(text, "WRONGTYPE") {
			members, err := conn.Ask(ctx, []string{"ZRANGE", key, "0", "-1"})
			if err != nil {
				return s, err
			}
			s.Kind, s.Value = idiom.Sorted, idiom.Holder(bulks(members))
			if s.Value == "" {
				return idiom.State{}, nil
			}
			break
		}
		pair, _ := resp.Elements(all)
		if len(pair) != 2 {
			return s, nil
		}
		s.Kind, s.Value = idiom.Hash, string(resp.Bulk(pair[0]))
		if s.Count, _ = strconv.Atoi(string(resp.Bulk(pair[1]))); s.Count < 1 {
			return idiom.State{}, nil
		}
	case isError || len(value) < 2 || value[0] != '$' || value[1] == '-':
		return s, nil
	default:
		s.Kind, s.Value = idiom.String, string(resp.Bulk(value))
	}
	left, err := conn.Ask(ctx, []string{"PTTL", key})
	if err != nil || len(left) == 0 || left[0] != ':' || resp.Int(left) < -1 || resp.Int(left) == 0 {
		return idiom.State{}, err
	}
	if s.Left = time.Duration(resp.Int(left)) * time.Millisecond; s.Left < 0 {
		s.Left = idiom.Forever
	}
	return s, nil
}

// bulks are the elements of a reply that is a list of strings.
func bulks(reply []byte) (all []string) {
	elements, _ := resp.Elements(reply)
	for _, e := range elements {
		all = append(all, string(resp.Bulk(e)))
	}
	return all
}
