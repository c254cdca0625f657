package adopt

import (
	"bytes"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// splitLeft is what is left of the lease where nobody has one yet: the nodes soon agree on one who asks.
const splitLeft = 20 * time.Millisecond

// contended is the answer to a call whose acquisition nobody refused in particular: others asked as well, and the
// nodes, read with this error, did not agree on one. If enough nodes answered, that is contention, and the reply is
// that of a lock which somebody else has, where it does not depend on who that is.
func (c *Call) contended(op idiom.Op, err error) (Result, error) {
	quorum := (*locks.QuorumError)(nil)
	kind := map[idiom.Do]idiom.Kind{idiom.Take: idiom.String, idiom.Enter: idiom.Hash}[op.Do]
	if kind == idiom.Absent || !errors.As(err, &quorum) || quorum.Got < quorum.Need {
		return Result{}, err
	}
	var reply []byte
	for _, value := range []string{"\x00somebody", "\x00somebody else"} {
		out, runErr := c.Run(idiom.State{Kind: kind, Value: value, Count: 1, Left: splitLeft}, time.Now())
		if runErr != nil || out.Op.Do != idiom.Nothing || len(out.Signals) > 0 || reply != nil && !bytes.Equal(reply, out.Reply) {
			return Result{}, err
		}
		reply = out.Reply
	}
	return Result{Reply: reply}, nil
}
