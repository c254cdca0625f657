package commands

import (
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// appendErr appends the error reply for err: one of a lock verb's, or of the upstream's. It
// appends nothing for a context's error: the client is gone.
func appendErr(b []byte, err error) []byte {
	if reply := lockcmd.AppendError(b, err); len(reply) > len(b) {
		return reply
	}
	return relay.AppendError(b, err)
}

// appendNoTx appends the refusal of a verb inside MULTI.
func appendNoTx(b []byte, name []byte) []byte {
	return resp.AppendError(b, fmt.Sprintf("ERR %s is not allowed inside a transaction", strings.ToUpper(string(name))))
}
