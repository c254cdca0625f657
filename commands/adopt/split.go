package adopt

import (
	"bytes"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// splitLeft is what is left of the lease of a lock that several clients are just asking for: the nodes soon agree on one.
const splitLeft = 20 * time.Millisecond

// contended answers an acquisition for which the nodes named no holder, and did not agree on one when they were read, as err
// says. If enough nodes answered, several clients are asking at once: the reply is that of a lock which somebody else has,
// if it does not depend on who that is.
func (c *Call) contended(op idiom.Op, next Burst, err error) (Result, error) {
	quorum := (*locks.QuorumError)(nil)
	kind := map[idiom.Do]idiom.Kind{idiom.Take: idiom.String, idiom.Enter: idiom.Hash}[op.Do]
	if op.Kind != idiom.Absent {
		kind = op.Kind
	}
	if kind == idiom.Absent || !errors.As(err, &quorum) || quorum.Got < quorum.Need {
		return Result{Burst: next}, err
	}
	somebody := idiom.State{Kind: kind, Value: "\x00somebody", Count: 1, Left: splitLeft}
	other := somebody
	other.Value += " else"
	if reply, ok := c.refusal(somebody, other); ok {
		return Result{Reply: reply, Burst: next}, nil
	}
	return Result{Burst: next}, err
}

// refusedBy answers a call that failed at every try. An acquisition is refused for holder, which had the lock when the nodes
// were asked last, if the reply does not depend on what they did not tell: the holds and the fence. The zero guess is
// nobody.
func (c *Call) refusedBy(holder guess) (Result, error) {
	if holder.owner == "" {
		return Result{}, errChanging
	}
	other, now := holder, time.Now()
	other.holds, other.fence = holder.holds+1, holder.fence+1
	if reply, ok := c.refusal(holder.confirmedState(now), other.confirmedState(now)); ok {
		return Result{Reply: reply, at: holder}, nil
	}
	return Result{}, errChanging
}

// refusal returns the reply of a call that changes nothing in any of the states. ok reports whether there is one, the same
// in all.
func (c *Call) refusal(states ...idiom.State) (reply []byte, ok bool) {
	for _, state := range states {
		out, err := c.Run(state, time.Now())
		if err != nil || out.Op.Do != idiom.Nothing || len(out.Signals) > 0 || reply != nil && !bytes.Equal(reply, out.Reply) {
			return nil, false
		}
		reply = out.Reply
	}
	return reply, true
}
