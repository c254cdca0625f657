package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// A batch is some of the names of a RENEWALL or UNLOCKALL: those of one owner.
type batch struct {
	names  []locks.Key
	owner  string
	shared bool
}

// batches are the locks that a RENEWALL or UNLOCKALL is for, by their owners: without an owner those that this connection took.
func (c *Client) batches(names []string, o Release, verb string) (all []batch, err error) {
	for _, name := range names {
		k, own := locks.Key{DB: c.conn.Database(), Name: name}, implicitLock{owner: o.Owner, shared: o.Shared}
		if o.Owner == "" {
			o.Name, o.several = name, true
			if own, err = c.implicitLock(o, verb); err != nil {
				return nil, err
			}
		}
		at := slices.IndexFunc(all, func(b batch) bool { return b.owner == own.owner }) // generated for one LOCK, or named for all
		if at < 0 {
			at, all = len(all), append(all, batch{owner: own.owner, shared: own.shared})
		}
		all[at].names = append(all[at].names, k)
	}
	return all, nil
}

// RenewAll runs a RENEWALL.
func (c *Client) RenewAll(ctx context.Context, args [][]byte) (reply Reply, err error) {
	names, o, err := c.verbs.opt.Limits.ParseRenewAll(args)
	if err != nil {
		return reply, err
	}
	all, err := c.batches(names, o, "RENEWALL")
	if err != nil {
		return reply, err
	}
	began, left, at := time.Now(), make([]time.Duration, len(all)), make([]time.Time, len(all))
	failed := together(all, func(i int, b batch) (err error) {
		left[i], err = c.verbs.opt.Locker.RenewAll(ctx, b.names, locks.RenewRequest{Owner: b.owner, TTL: o.TTL, Shared: b.shared})
		at[i] = time.Now()
		return err
	})
	for i, b := range all {
		if i == 0 || at[i].Add(left[i]).Before(reply.At.Add(reply.Validity)) { // it ends first
			reply.Validity, reply.At = left[i], at[i]
		}
		c.logAll("RENEWALL", b, began, failed, "lock renewed")
	}
	return reply, inOrder(names, failed, "renewed")
}

// UnlockAll runs an UNLOCKALL.
func (c *Client) UnlockAll(ctx context.Context, args [][]byte) (reply Reply, err error) {
	names, o, err := ParseUnlockAll(args)
	if err != nil {
		return reply, err
	}
	all, err := c.batches(names, o, "UNLOCKALL")
	if err != nil {
		return reply, err
	}
	began, left := time.Now(), make([]int, len(all))
	failed := together(all, func(i int, b batch) (err error) {
		for _, k := range b.names {
			c.verbs.waits.giveUp(k, b.owner, o.Req)
		}
		left[i], err = c.verbs.opt.Locker.UnlockAll(ctx, b.names, locks.UnlockRequest{Owner: b.owner, All: o.All, Req: o.Req, Shared: b.shared})
		return err
	})
	for i, b := range all {
		c.logAll("UNLOCKALL", b, began, failed, "lock given back")
		for _, k := range b.names {
			c.noteUnlock(k, b.owner, b.shared, o.Owner != "", left[i], failed[k.Name])
		}
	}
	released := int64(0)
	if slices.Max(left) == 0 {
		released = 1
	}
	return Reply{Bytes: resp.AppendInt(nil, released)}, inOrder(names, failed, "given back")
}

// together does something for all batches at the same time, and returns what failed, by name.
func together(all []batch, do func(i int, b batch) error) map[string]error {
	errs := make([]error, len(all))
	var others sync.WaitGroup
	for i := 1; i < len(all); i++ {
		others.Go(func() { errs[i] = do(i, all[i]) })
	}
	errs[0] = do(0, all[0])
	others.Wait()
	failed := map[string]error{}
	for i, err := range errs {
		var several *locks.NamesError
		switch {
		case errors.As(err, &several):
			for _, f := range several.Failed {
				failed[f.Name] = f.Err
			}
		case err != nil:
			for _, k := range all[i].names {
				failed[k.Name] = err
			}
		}
	}
	return failed
}

func (c *Client) logAll(verb string, b batch, began time.Time, failed map[string]error, what string) {
	for _, k := range b.names {
		c.log(event{verb, k.DB, k.Name, b.owner, 0, began, failed[k.Name]}, what)
	}
}

// A severalError is what failed of a RENEWALL or UNLOCKALL.
type severalError struct {
	failed []namedError
	done   string // what became of the others; empty: there are none
}

type namedError struct {
	name string
	err  error
}

// inOrder is the error of those names that failed; nil: none did. done says what was done with the others.
func inOrder(names []string, failed map[string]error, done string) error {
	if len(failed) == 0 {
		return nil
	}
	e := &severalError{}
	for _, name := range names {
		if err := failed[name]; err != nil {
			e.failed = append(e.failed, namedError{name, err})
		}
	}
	switch n := len(names) - len(failed); n {
	case 0:
	case 1:
		e.done = "The other name was " + done
	default:
		e.done = fmt.Sprintf("The other %d names were %s", n, done)
	}
	return e
}

// Error is the text of the reply, the worst first: "LOCKLOST b, c: why. NOTOWNER a: why. The other name was renewed".
func (e *severalError) Error() string {
	type part struct{ word, why, names string }
	var parts []part
	for _, f := range e.failed {
		text, _ := resp.Error(AppendError(nil, f.err))
		if text == "" {
			text = "ERR " + strings.TrimPrefix(f.err.Error(), "ERR ")
		}
		word, why, _ := strings.Cut(text, " ")
		at := slices.IndexFunc(parts, func(p part) bool { return p.word == word && p.why == why })
		if name := shorten([]byte(f.name)); at < 0 {
			parts = append(parts, part{word, why, name})
		} else {
			parts[at].names += ", " + name
		}
	}
	worst := []string{"LOCKLOST", "NOTOWNER", "NOQUORUM", "ERR"}
	slices.SortStableFunc(parts, func(a, b part) int { return slices.Index(worst, a.word) - slices.Index(worst, b.word) })
	var all []string
	for _, p := range parts {
		all = append(all, fmt.Sprintf("%s %s: %s", p.word, p.names, p.why))
	}
	if e.done != "" {
		all = append(all, e.done)
	}
	return strings.Join(all, ". ")
}
