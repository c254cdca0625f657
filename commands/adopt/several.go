package adopt

import (
	"bytes"
	"context"
	"fmt"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// splits are the commands whose keys, where only some are locks, are dealt with one by one.
var splits = map[string]bool{"DEL": true, "UNLINK": true, "EXISTS": true, "TOUCH": true}

// several makes a call of a command with several keys, of which some are locks: a part for each of these, and the
// rest for the upstream.
func (a *Adoption) several(c Connection, name string, words []string) (*Call, error) {
	all := &Call{command: name, rest: words[:1:1]}
	for _, key := range words[1:] {
		p := a.pattern(c.Database(), key)
		if p == nil {
			all.rest = append(all.rest, key)
			continue
		}
		part, err := a.plain(c, p, name, []string{words[0], key})
		if err != nil {
			return nil, err
		}
		all.parts = append(all.parts, part)
	}
	first := all.parts[0]
	all.Call, all.pattern, all.class = first.Call, first.pattern, first.class
	return all, nil
}

// decideSeveral decides the parts one after the other, and sends the rest. The integers that they answer are
// summed. The first error is that of the call, a *PartialError; the other parts are done all the same.
func (a *Adoption) decideSeveral(ctx context.Context, conn Connection, c *Call) (Result, error) {
	for _, part := range c.parts {
		if err := mayRun(ctx, conn, part); err != nil {
			return Result{}, err
		}
	}
	all := Result{}
	sum, fault := int64(0), (*PartialError)(nil)
	take := func(key string, reply []byte, err error) {
		switch refused := len(reply) > 0 && reply[0] != ':'; {
		case err == nil && !refused:
			sum += resp.Int(reply)
		case fault == nil:
			fault = &PartialError{Key: key, Reply: reply, Err: err}
		}
	}
	for _, part := range c.parts {
		r, err := a.decideOne(ctx, conn, part)
		take(part.Key(), r.Reply, err)
		all.did = max(all.did, r.did)
	}
	if len(c.rest) > 1 {
		reply, err := conn.Ask(ctx, c.rest)
		take(c.rest[1], reply, err)
		all.told = true
	}
	if fault != nil {
		return Result{}, fault
	}
	all.Reply = resp.AppendInt(nil, sum)
	return all, nil
}

// A PartialError is that a command could not be done, and that something was done all the same. Where there is no Note,
// that is a command with several keys which could not be done for one, or for those that are no locks.
type PartialError struct {
	Key   string // the first of these
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

// Amend makes an error reply say what was done.
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
