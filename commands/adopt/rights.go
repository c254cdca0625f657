package adopt

import (
	"context"
	"strings"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// Commands that show whether a client may run scripts: the first does nothing, and no script has the SHA-1 of the second.
var (
	mayEval    = []string{"EVAL", "return 1", "0"}
	mayEvalSHA = []string{"EVALSHA", strings.Repeat("0", 40), "0"}
)

// mayRun returns nil if the client has the rights at the upstream that a call needs: to change a lock those of LOCK, or of
// HINCRBY for a hash; to read it those of the read; and for a script also that to run scripts.
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

// Reads returns the keys whose values a client with CLIENT TRACKING would keep after a call. A script has none, unless it
// reads its key only for the tracking.
func (c *Call) Reads() (keys []string) {
	switch {
	case c.follows:
		keys = []string{c.Key()}
	case c.script == "" && c.class == idiom.ReadOnly:
		for _, one := range c.each() {
			keys = append(keys, one.words[1])
		}
	}
	return keys
}

// RefusedTracked refuses a call that reads a lock for a client with CLIENT TRACKING: it would never be told of changes.
func (a *Adoption) RefusedTracked(conn Connection, c *Call) error {
	err := c.refused(Tracked, "CLIENT TRACKING is on, and would not be told of changes of a lock")
	a.noteRefusal(conn, err)
	return err
}
