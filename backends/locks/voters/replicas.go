package voters

import (
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// appendWait adds WAIT to a batch with calls that replicas must have. It is asked once, behind all, and
// answered when there are enough replicas, or a quarter of the time that the first of the calls has is over:
// Redis looks at the clock for it ten times a second only.
func (n *Node) appendWait(calls []ScriptCall) bool {
	acks := n.set.Opts.ReplicaAcks
	if acks == 0 {
		return false
	}
	now := n.set.Clock()
	left := CallTimeout
	durable := false
	for i := range calls {
		if calls[i].Durable {
			durable = true
			left = min(left, calls[i].Expires-now)
		}
	}
	if durable {
		left = max(left/4, time.Millisecond) // WAIT takes 0 for ever
		n.cmds = append(n.cmds, n.client.B().Arbitrary("WAIT", strconv.Itoa(acks), MS(left)).Build())
	}
	return durable
}

// missingAcks reads the reply of WAIT: nil if enough replicas have all that the batch wrote.
func (n *Node) missingAcks(res rueidis.RedisResult) error {
	if res.NonRedisError() != nil {
		n.connected = false
	}
	got, err := res.AsInt64()
	switch acks := n.set.Opts.ReplicaAcks; {
	case err != nil:
		return fmt.Errorf("replicas could not be asked: %w", reason(err))
	case got < int64(acks):
		return fmt.Errorf("only %d of %d replicas acknowledged", got, acks)
	}
	return nil
}
