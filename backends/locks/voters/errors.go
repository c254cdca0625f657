package voters

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

var (
	ErrTimeout  = errors.New("timeout")
	errBusy     = errors.New("too many requests wait for it")
	errDisagree = errors.New("the nodes that answered do not agree")
	ErrNotAsked = errors.New("was not asked")
	errUnwanted = errors.New("was not waited for")
	errOldRound = errors.New("was asked too long ago")
	errShut     = errors.New("connection refused")
	errBroken   = errors.New("connection closed")
	errCluster  = errors.New("is a Redis Cluster, which cannot be a lock node")
)

// reason is err in an operator's words: the first word of a Redis error, if that is an error code, or the kind of a
// network error.
func reason(err error) error {
	var n net.Error
	var r *rueidis.RedisError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return vote.Refusal(r.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &n) && n.Timeout():
		return ErrTimeout
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
