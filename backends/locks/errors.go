package locks

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrClosed reports that the Service has ended, or is ending.
var ErrClosed = errors.New("the lock service is closed")

// NotHeld reports whether an error says that the owner does not have the lock: it is lost, or another owner has it.
func NotHeld(err error) bool {
	notOwner := (*NotOwnerError)(nil)
	return errors.Is(err, ErrLost) || errors.As(err, &notOwner)
}

// A QueueFullError reports that Options.MaxWaiters LOCKs wait already.
type QueueFullError struct{ Max int }

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("%d wait already, which is the most; ask again later, or raise --max-waiters", e.Max)
}

// A HoldsError reports that the owner has reached the limit of holds of one name.
type HoldsError struct{ Max int }

func (e *HoldsError) Error() string {
	return fmt.Sprintf("the owner has %d holds of this lock, which is the most", e.Max)
}

// A MaxWaitError reports that a LOCK asked for a longer wait than the limit.
type MaxWaitError struct{ Wait, Max time.Duration }

func (e *MaxWaitError) Error() string {
	return fmt.Sprintf("a wait of %v is longer than %v; wait again afterwards, or raise --max-wait", e.Wait, e.Max)
}

// A NodeError names a node that did not vote, and says why.
type NodeError struct {
	Node string // its address
	Err  error
}

func (e *NodeError) Error() string { return e.Node + " " + e.Err.Error() }
func (e *NodeError) Unwrap() error { return e.Err }

// WhySilent is the text of err, why a node does not vote, without the node's address; empty for nil.
func WhySilent(err error) string {
	var named *NodeError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &named):
		return named.Err.Error()
	}
	return err.Error()
}

// Error reads like "2 of 5 answered, 3 needed: node3 timeout, node4 MISCONF".
func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d answered, %d needed", e.Got, e.Nodes, e.Need)
	for i, err := range e.Failed {
		b.WriteString([...]string{": ", ", "}[min(i, 1)])
		b.WriteString(err.Error())
	}
	return b.String()
}
