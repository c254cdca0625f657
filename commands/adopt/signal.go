package adopt

import (
	"context"
	"time"
)

// signalsFor is how long the upstream may take to confirm the signals of a call.
const signalsFor = 100 * time.Millisecond

// signal sends the commands that follow a change of the lock. If that fails, the change stays.
func (a *Adoption) signal(ctx context.Context, conn Connection, signals [][]string) {
	if len(signals) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, signalsFor)
	defer cancel()
	for i, s := range signals {
		switch reply, err := conn.Ask(ctx, s); {
		case err != nil:
			a.counters.signalsLost.Add(int64(len(signals) - i))
			return
		case len(reply) > 0 && reply[0] == '-':
			a.counters.signalsLost.Add(1)
		default:
			a.counters.signalsSent.Add(1)
		}
	}
}
