package commands

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// appendErr appends the error reply for err. It is the one place where the errors of locks
// become wire errors; their first words are API. It appends nothing for a context's error:
// the client is gone.
func appendErr(b []byte, err error) []byte {
	var (
		quorum   *locks.QuorumError
		notOwner *locks.NotOwnerError
		full     *locks.QueueFullError
		maxWait  *locks.MaxWaitError
	)
	switch {
	case errors.As(err, &quorum):
		return resp.AppendError(b, "NOQUORUM "+quorum.Error())
	case errors.As(err, &notOwner):
		return resp.AppendError(b, "NOTOWNER "+notOwner.Error())
	case errors.As(err, &full):
		return resp.AppendError(b, "QUEUEFULL "+full.Error())
	case errors.As(err, &maxWait):
		return resp.AppendError(b, "MAXWAIT "+maxWait.Error())
	case errors.Is(err, locks.ErrLost):
		return resp.AppendError(b, "LOCKLOST "+locks.ErrLost.Error()+"; what it protected may be compromised")
	}
	return relay.AppendError(b, err)
}

// appendNoTx appends the refusal of a verb inside MULTI.
func appendNoTx(b []byte, name []byte) []byte {
	return resp.AppendError(b, fmt.Sprintf("ERR %s is not allowed inside a transaction", strings.ToUpper(string(name))))
}
