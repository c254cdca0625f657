package locks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// ErrClosed says that the Service has ended, or is ending.
var ErrClosed = errors.New("the lock service is closed")

// A QueueFullError reports that as many LOCKs wait as may.
type QueueFullError struct{ Max int }

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("%d wait already, which is the most", e.Max)
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

var (
	errTimeout  = errors.New("timeout")
	errBusy     = errors.New("too many requests wait for it")
	errDisagree = errors.New("the nodes that answered do not agree")
	errNotAsked = errors.New("was not asked")
	errUnwanted = errors.New("was not waited for")
	errShut     = errors.New("connection refused")
	errBroken   = errors.New("connection closed")
	errCluster  = errors.New("is a Redis Cluster, which cannot be a lock node")
)

// A NodeError is one node's reason not to vote.
type NodeError struct {
	Node string // its address
	Err  error
}

func (e *NodeError) Error() string { return e.Node + " " + e.Err.Error() }
func (e *NodeError) Unwrap() error { return e.Err }

// WhySilent is why a node does not vote, without its address; empty for nil.
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

// reason is a failed batch as an operator knows it: the first word of a Redis error that has one of its own,
// the kind of a network error.
func reason(err error) error {
	var n net.Error
	var r *rueidis.RedisError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return refusalReason(r.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &n) && n.Timeout():
		return errTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return errShut
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return errBroken
	}
	return err
}

// isConnection reports whether an error of reason means that the node could not be reached.
func isConnection(err error) bool {
	for _, known := range []error{errShut, errBroken, errNoMaster, errUnconfirmed, errMoved} {
		if errors.Is(err, known) {
			return true
		}
	}
	var n net.Error
	return errors.As(err, &n)
}

// refusalReason is the error code of a Redis error. Redis before 7 wraps an error inside a script in one of
// its own, with the code behind a dash; the script itself gets the line before it.
func refusalReason(msg string) error {
	code, _, _ := strings.Cut(msg, " ")
	if i := strings.LastIndex(msg, ": -"); i >= 0 && (strings.HasPrefix(msg, "ERR ") || strings.HasPrefix(msg, "@")) {
		code, _, _ = strings.Cut(msg[i+3:], " ")
	}
	if code != "ERR" && code != "" && strings.ToUpper(code) == code {
		return &RefusalError{code}
	}
	if strings.Contains(msg, "The user executing the script can't ") { // Redis before 7.2
		return &RefusalError{"NOPERM"}
	}
	return &RefusalError{msg[:min(len(msg), 120)]}
}
