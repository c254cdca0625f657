package relay

import (
	"context"
	"errors"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// ErrLost is the end of an upstream connection under a command.
var ErrLost = errors.New("the connection was lost")

// SlotUncovered is a Redis Cluster's error for a slot that no node serves.
const SlotUncovered = "-CLUSTERDOWN Hash slot not served\r\n"

// AppendError appends the reply that tells a client of err: why it cannot have a
// connection, or what is wrong with its command. Nothing is appended for a client that has
// gone.
func AppendError(b []byte, err error) []byte {
	var (
		down    *upstream.DownError
		refused *upstream.RefusedError
	)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return b
	case errors.As(err, &refused):
		return append(b, refused.Reply...)
	case errors.As(err, &down):
		return resp.AppendError(b, "UPSTREAMDOWN "+down.Error())
	}
	text := err.Error()
	if !strings.HasPrefix(text, "ERR ") {
		text = "ERR " + text
	}
	return resp.AppendError(b, text)
}

// AppendLost appends the reply to a command whose fate is not known.
func AppendLost(b []byte, err error) []byte {
	return resp.AppendError(b, "UPSTREAMDOWN the connection to the upstream was lost, the command may or may not have run: "+err.Error())
}

// WrongArity is Redis's error to a command with too many or too few arguments.
func WrongArity(args [][]byte) string {
	return string(resp.AppendError(nil, "ERR wrong number of arguments for '"+Lower(args[0])+"' command"))
}

// Lower is a name in lower case, for error texts; only the beginning of one that is too long for
// any command.
func Lower(name []byte) string {
	const most = 64
	if len(name) > most {
		return strings.ToLower(string(name[:most])) + "..."
	}
	return strings.ToLower(string(name))
}
