package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// appendErr appends the reply that tells a client of err. It is the one place
// where Go errors become wire errors; their first words are what clients switch
// on. Nothing is appended for a client that has gone.
func appendErr(b []byte, err error) []byte {
	var (
		down     *upstream.DownError
		refused  *upstream.RefusedError
		quorum   *locks.QuorumError
		notOwner *locks.NotOwnerError
		full     *locks.QueueFullError
		maxWait  *locks.MaxWaitError
	)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return b
	case errors.As(err, &refused):
		return append(b, refused.Reply...)
	case errors.As(err, &down):
		return resp.AppendError(b, "UPSTREAMDOWN "+down.Error())
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
	text := err.Error()
	if !strings.HasPrefix(text, "ERR ") {
		text = "ERR " + text
	}
	return resp.AppendError(b, text)
}

// appendLost appends the reply to a command whose fate is not known.
func appendLost(b []byte, err error) []byte {
	return resp.AppendError(b, "UPSTREAMDOWN the connection to the upstream was lost, the command may or may not have run: "+err.Error())
}

// appendNoTx appends the refusal of a verb inside MULTI.
func appendNoTx(b []byte, name []byte) []byte {
	return resp.AppendError(b, fmt.Sprintf("ERR %s is not allowed inside a transaction", strings.ToUpper(string(name))))
}
