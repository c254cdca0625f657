package lockcmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// A codedError is an error whose text is the reply, with a first word of its own.
type codedError string

func (e codedError) Error() string { return string(e) }

const (
	// errDraining is the reply to LOCKs that wait when the proxy ends.
	errDraining codedError = "DRAINING this proxy is shutting down and the lock was not taken; ask another proxy, or this one later"
	// errNoForce and errNoAdopt are worded as by Redis 7.0.
	errNoForce codedError = "NOPERM this user has no permissions to run the 'lockctl|force' command"
	errNoAdopt codedError = "NOPERM this user has no permissions to run the 'lockctl|adopt' command"
)

// AppendError appends the error reply for err, if it is one of the lock verbs or of package
// locks that has a first word of its own; other errors append nothing. It is the one place
// where the errors of locks become wire errors; their first words are API.
func AppendError(b []byte, err error) []byte {
	var (
		coded    codedError
		quorum   *locks.QuorumError
		notOwner *locks.NotOwnerError
		full     *locks.QueueFullError
		maxWait  *locks.MaxWaitError
		several  *severalError
	)
	switch {
	case errors.As(err, &several):
		return resp.AppendError(b, several.Error())
	case errors.As(err, &coded):
		return resp.AppendError(b, string(coded))
	case errors.As(err, &quorum):
		return resp.AppendError(b, "NOQUORUM "+quorum.Error())
	case errors.As(err, &notOwner):
		return resp.AppendError(b, "NOTOWNER "+notOwner.Error())
	case errors.As(err, &full):
		return resp.AppendError(b, "QUEUEFULL "+full.Error())
	case errors.As(err, &maxWait):
		return resp.AppendError(b, "MAXWAIT "+maxWait.Error())
	case errors.Is(err, locks.ErrOnlyReads):
		return resp.AppendError(b, "LOCKLOST "+locks.ErrLost.Error()+"; it shares it, which is another lock: say SHARED for that")
	case errors.Is(err, locks.ErrLost) && strings.HasPrefix(err.Error(), locks.ErrLost.Error()+": "):
		return resp.AppendError(b, "LOCKLOST "+err.Error()) // it says why
	case errors.Is(err, locks.ErrLost):
		return resp.AppendError(b, "LOCKLOST "+locks.ErrLost.Error()+"; what it protected may be compromised")
	}
	return b
}

// AppendNoTx appends the refusal of a verb inside MULTI.
func AppendNoTx(b []byte, name []byte) []byte {
	return resp.AppendError(b, fmt.Sprintf("ERR %s is not allowed inside a transaction", strings.ToUpper(string(name))))
}
