package adopt

import (
	"context"
	"strings"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// What a client is asked about that runs a script: to run one that does nothing, or none.
var (
	mayEval    = []string{"EVAL", "return 1", "0"}
	mayEvalSHA = []string{"EVALSHA", strings.Repeat("0", 40), "0"}
)

// mayRun returns nil if the client has the rights that a call needs at the upstream: those of LOCK to take, move or
// release, or those of HINCRBY where the lock is a hash, to read those of the read, and for a script that to run
// scripts.
func mayRun(ctx context.Context, conn Connection, c *Call) error {
	if c.script != "" {
		question := mayEval
		if strings.HasPrefix(c.command, "EVALSHA") {
			question = mayEvalSHA
		}
		if err := conn.MayAsk(ctx, question); err != nil {
			return err
		}
	}
	switch {
	case c.class != idiom.ReadOnly && c.onHash:
		return conn.MayAsk(ctx, []string{"HINCRBY", c.Key(), "f", "x"}) // x is no integer
	case c.class != idiom.ReadOnly:
		return conn.MayLock(ctx, c.Key())
	case c.script != "" && c.onHash:
		return conn.MayAsk(ctx, []string{"HGET", c.Key(), "f"})
	case c.script != "":
		return conn.MayAsk(ctx, []string{"GET", c.Key()})
	}
	return conn.MayAsk(ctx, c.words)
}

// Reads are the keys that the client reads with a call, and could keep the replies of. A script's reply is no key's, so
// it has none, but if it reads its key only to have the client told of changes.
func (c *Call) Reads() (keys []string) {
	switch {
	case c.follows:
		keys = []string{c.Key()}
	case c.script != "" || c.class != idiom.ReadOnly:
	case c.parts == nil:
		keys = []string{c.words[1]}
	default:
		for _, part := range c.parts {
			keys = append(keys, part.Key())
		}
	}
	return keys
}

// RefusedTracked is the refusal of a call that reads for a client which is told of changes: of a lock it would never be.
func (a *Adoption) RefusedTracked(conn Connection, c *Call) error {
	err := c.refused(Tracked, "CLIENT TRACKING is on, and would not be told of changes of a lock")
	a.noteRefusal(conn, err)
	return err
}
