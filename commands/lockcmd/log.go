package lockcmd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// Brief shortens a text of a client for the log.
func Brief(word string) string {
	const most = 64
	if len(word) > most {
		return word[:most] + "..."
	}
	return word
}

// ownerHash tells owners apart in the log, which never has an owner: whoever knows one can
// unlock in its name.
func ownerHash(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:4])
}

// An event is the outcome of a verb, for the log. Only lines about one lock have its
// name, which may be private.
type event struct {
	verb  string // LOCK, RENEW, UNLOCK, or that of several
	db    int
	name  string
	owner string // empty: unknown
	fence int64  // 0: unknown
	began time.Time
	err   error
}

// log logs an event: as a warning where a lock did not protect what it should have, or could
// not be decided, else for debugging. Being refused a lock is an answer, not a fault.
func (c *Client) log(e event, what string, more ...slog.Attr) {
	level := slog.LevelDebug
	var few *locks.QuorumError
	var other *locks.NotOwnerError
	var full *locks.QueueFullError
	switch {
	case errors.As(e.err, &few):
		level, what = slog.LevelWarn, "too few lock nodes answered"
		more = append(more, slog.Int("answered", few.Got), slog.Int("needed", few.Need), slog.String("nodes", reasons(few.Failed)))
	case errors.As(e.err, &full):
		level, what = slog.LevelWarn, "too many waiters for locks"
		more = append(more, slog.Int("max", full.Max))
	case errors.Is(e.err, locks.ErrLost) && e.verb == "LOCKALL":
		level, what = slog.LevelWarn, "lock lost: some names of a LOCKALL that is sent again were given back"
	case errors.Is(e.err, locks.ErrLost):
		level, what = slog.LevelWarn, "lock lost: lease ended before RENEW or UNLOCK"
	case errors.As(e.err, &other):
		level, what = slog.LevelWarn, "lock lost: held by another owner at RENEW or UNLOCK"
	case e.err != nil:
		what = "lock command failed"
		more = append(more, slog.String("error", Brief(e.err.Error())))
	}
	log := c.verbs.log
	if ctx := context.Background(); log.Enabled(ctx, level) {
		log.LogAttrs(ctx, level, what, slices.Concat(c.conn.About(), e.attrs(), more)...)
	}
}

func (e *event) attrs() []slog.Attr {
	about := []slog.Attr{slog.String("verb", e.verb), slog.Int("db", e.db), slog.String("lock", Brief(e.name))}
	if e.owner != "" {
		about = append(about, slog.String("owner_hash", ownerHash(e.owner)))
	}
	if e.fence != 0 {
		about = append(about, slog.Int64("fence", e.fence))
	}
	if !e.began.IsZero() {
		about = append(about, slog.Duration("took", time.Since(e.began)))
	}
	return about
}

// reasons lists why nodes did not answer.
func reasons(errs []error) string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return strings.Join(all, ", ")
}

// logLock logs the outcome of a LOCK, or of a LOCKALL with a line for each lock; err is why a grant was undone.
func (c *Client) logLock(p *Pending, err error) {
	e := event{verb: "LOCK", db: p.DB, name: p.Name, owner: p.Owner, began: p.Began, err: p.Err}
	var several []slog.Attr
	if p.Several {
		e.verb, several = "LOCKALL", []slog.Attr{slog.Int("names", 1+len(p.Others))}
	}
	switch {
	case p.Err != nil:
		c.log(e, "", several...)
	case p.Answer.Granted:
		for _, g := range p.Answer.All() {
			if e.name, e.owner, e.fence = g.Name, g.Owner, g.Fence; err != nil {
				c.log(e, "lock granted and undone", append(several, slog.String("error", Brief(err.Error())))...)
			} else {
				c.log(e, "lock granted", append(several, slog.Duration("validity", g.Validity), slog.Int("holds", g.Holds))...)
			}
		}
	default:
		e.name = cmp.Or(p.Answer.Of.Name, p.Name)
		c.log(e, "lock is held by another", append(several, slog.Duration("remaining", p.Answer.Remaining), slog.Int("waiters", p.Answer.Waiters))...)
	}
}

// logForced logs that the client has taken a lock from its owner.
func (c *Client) logForced(was locks.Holding) {
	e := event{verb: "LOCKCTL", db: was.DB, name: was.Name, owner: was.Owner, fence: was.Fence}
	more := []slog.Attr{slog.String("info", Brief(was.Info))}
	if was.Reader != "" {
		more = append(more, slog.Int("readers", was.Readers))
	}
	c.warn("lock forced", e, more...)
}

// logLost logs that a lock with SESSION is lost. It is safe for concurrent use.
func (c *Client) logLost(l locks.Loss) {
	e := event{verb: "LOCK", db: l.DB, name: l.Name, owner: l.Owner, fence: l.Fence}
	c.warn("lock with SESSION is lost", e, slog.String("reason", l.Reason))
}

func (c *Client) warn(what string, e event, more ...slog.Attr) {
	c.verbs.log.LogAttrs(context.Background(), slog.LevelWarn, what, slices.Concat(c.conn.About(), e.attrs(), more)...)
}
