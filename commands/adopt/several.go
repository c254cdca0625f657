package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/join"
)

// newMultiKeyCall makes a call of a command with several keys, of which some are locks: a part for each of these, and the
// rest for the upstream.
func (a *Adoption) newMultiKeyCall(c Connection, name string, words []string) (*Call, error) {
	all := &Call{command: name, rest: words[:1:1]}
	for i, key := range words[1:] {
		p := a.pattern(c.Database(), key)
		if p == nil {
			all.rest, all.places = append(all.rest, key), append(all.places, i)
			continue
		}
		part, err := a.newPlainCall(c, p, name, []string{words[0], key})
		if err != nil {
			return nil, err
		}
		all.parts = append(all.parts, part)
	}
	first := all.parts[0]
	all.Call, all.pattern, all.class = first.Call, first.pattern, first.class
	return all, nil
}

// decideSeveral decides the parts one after the other, and sends the rest. The first error is that of the call, a
// *PartialError; it does not stop the other parts.
func (a *Adoption) decideSeveral(ctx context.Context, conn Connection, c *Call) (Result, error) {
	all := Result{}
	var fault *PartialError
	take := func(key string, reply []byte, err error) []byte {
		if _, refused := resp.Error(reply); (err != nil || refused || len(reply) == 0) && fault == nil {
			fault = &PartialError{Key: key, Reply: reply, Err: err}
		}
		return reply
	}
	var replies [][]byte
	var others []byte
	for _, part := range c.parts {
		r, err := a.decideByMode(ctx, conn, part)
		replies = append(replies, take(part.Key(), r.Reply, err))
		all.did = max(all.did, r.did)
	}
	if len(c.rest) > 1 {
		reply, err := conn.Ask(ctx, c.rest)
		others = take(c.rest[1], reply, err)
		all.sentUpstream = true
	}
	if fault != nil {
		return Result{}, fault
	}
	if all.Reply = join.Replies[c.command](replies, others, c.places); all.Reply == nil {
		return Result{}, &PartialError{Key: c.rest[1], Reply: others, Err: errMalformed}
	}
	return all, nil
}

// errMalformed says that the upstream's reply is not one to the command.
var errMalformed = errors.New("ERR the upstream answered in a way that cannot be put together with the locks")

// A PartialError says that a command failed after it had done something. Without a Note it is a command with several keys,
// which failed for one lock, or for the keys that are no locks.
type PartialError struct {
	Key   string // the first one that it failed for
	Reply []byte // the upstream's; empty: Err says why
	Err   error
	Note  string // what was done; empty: the command, for the other keys
}

func (e *PartialError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return string(bytes.TrimSpace(e.Reply))
}

func (e *PartialError) Unwrap() error { return e.Err }

// Amend adds to an error reply what was done.
func (e *PartialError) Amend(reply []byte) []byte {
	text, isError := resp.Error(reply)
	if !isError {
		return reply
	}
	if e.Note != "" {
		return resp.AppendError(nil, fmt.Sprintf("%s (%s)", text, e.Note))
	}
	return resp.AppendError(nil, fmt.Sprintf("%s (of %s; it was done for the keys that are served elsewhere)", text, brief(e.Key)))
}
