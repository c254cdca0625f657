package adopt

import (
	"bytes"
	"context"
	"errors"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// An Inspector shows locks, and releases them by force; *locks.Service is one.
type Inspector interface {
	List(context.Context, locks.ListRequest) (locks.Listing, error)
	Inspect(context.Context, locks.Key) (locks.Inspection, error)
	ForceReaders(context.Context, locks.Key) (was locks.Holding, held bool, err error)
	ForceGrant(ctx context.Context, k locks.Key, fence int64) (was locks.Holding, held bool, err error)
}

// flushPage is how many keys of a lock node one List looks at.
const flushPage = 1000

// mayFlush reports whether a command may release locks since it empties databases. It does not allocate.
func (a *Adoption) mayFlush(args [][]byte) bool {
	return a.flush && (resp.Is(args[0], "FLUSHDB") || resp.Is(args[0], "FLUSHALL"))
}

// flushing returns the first pattern whose locks a FLUSHDB or FLUSHALL releases; nil: there is none.
func (a *Adoption) flushing(db int, args [][]byte) *pattern.Pattern {
	if !a.mayFlush(args) {
		return nil
	}
	if resp.Is(args[0], "FLUSHALL") {
		db = locks.AllDBs
	}
	for _, p := range a.patterns {
		if p.Flushes(db) {
			return p
		}
	}
	return nil
}

// decideFlush empties the database at the upstream, or all of them, and then releases the locks of the patterns with
// flush=release there. A lock that is taken meanwhile may stay, and locks that were taken with LOCK do.
func (a *Adoption) decideFlush(ctx context.Context, conn Connection, c *Call) (Result, error) {
	reply, err := conn.Ask(ctx, c.rest)
	if err != nil || !bytes.HasPrefix(reply, []byte("+OK")) {
		return Result{Reply: reply}, err
	}
	db := locks.AllDBs
	if c.command == "FLUSHDB" {
		db = conn.Database()
	}
	for _, p := range a.patterns {
		if !p.Flushes(db) {
			continue
		}
		if err := a.releaseAll(ctx, db, p); err != nil {
			return Result{}, &PartialError{Key: p.Glob, Err: err, Note: "the upstream is flushed; adopted locks may be left: flush it again"}
		}
	}
	return Result{Reply: reply, did: idiom.Release, sentUpstream: true}, nil
}

// releaseAll releases the adopted locks of a pattern in a database, or in locks.AllDBs.
func (a *Adoption) releaseAll(ctx context.Context, db int, p *pattern.Pattern) error {
	for cursor := ""; cursor != "0"; {
		page, err := a.opt.Inspector.List(ctx, locks.ListRequest{DB: db, Match: p.Glob, Count: flushPage, Cursor: cursor})
		if err != nil {
			return err
		}
		for _, l := range page.Held {
			if _, adopted := locks.ShownOwner(l.Owner); adopted == "" || a.pattern(l.DB, l.Name) != p {
				continue
			}
			a.guesses.Remove(l.Key)
			_, _, err := a.opt.Inspector.ForceGrant(ctx, l.Key, l.Fence)
			if other := (*locks.OtherGrantError)(nil); err != nil && !errors.As(err, &other) {
				return err
			}
			a.flights.hurry(l.Key)
		}
		cursor = page.Cursor
	}
	return nil
}
