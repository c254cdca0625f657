package clients

import (
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A KillFilter selects the clients that a CLIENT KILL is about.
type KillFilter struct {
	Filter
	ByAddr bool // the old form, with an address and another reply
}

// ParseKill parses a CLIENT KILL. It reports false if the upstream is to refuse it, or
// takes what is not known here.
func ParseKill(args [][]byte) (k KillFilter, ok bool) {
	if len(args) == 3 {
		return KillFilter{Filter: Filter{values: map[string]string{"ADDR": string(args[2])}}, ByAddr: true}, true
	}
	if len(args) < 3 {
		return k, false
	}
	k.Filter, ok = parseFilter(args[2:], true)
	return k, ok
}

// parseID parses an id, or another number that must be positive.
func parseID(arg []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(arg), 10, 64)
	return n, err == nil && n > 0
}

// HarmlessKill is a CLIENT KILL that is refused for the same reasons as args and kills
// nobody, by an address that no client has: the last of two counts. It goes behind known
// conditions; an unknown one might take it for its value, so it goes in front of that, with
// no other address behind it.
func HarmlessKill(args [][]byte) []byte {
	if len(args) < 3 {
		return resp.AppendCommand(nil, args...)
	}
	args = slices.Clone(args)
	if len(args) == 3 {
		args[2] = noAddress
		return resp.AppendCommand(nil, args...)
	}
	if _, ok := ParseKill(args); ok {
		return resp.AppendCommand(nil, append(args, []byte("ADDR"), noAddress)...)
	}
	for i := 2; i+1 < len(args); i++ {
		if resp.Is(args[i], "ADDR") {
			args[i+1] = noAddress
		}
	}
	return resp.AppendCommand(nil, slices.Insert(args, 2, []byte("ADDR"), noAddress)...)
}

// Allowed reports whether the upstream, asked with HarmlessKill, has not refused.
func (k *KillFilter) Allowed(reply []byte) bool {
	text, refused := resp.Error(reply)
	return !refused && string(reply) != queuedReply || k.ByAddr && text == "ERR No such client"
}

// Reply makes of the upstream's reply to HarmlessKill that to the client, n being killed.
func (k *KillFilter) Reply(reply []byte, n int) []byte {
	switch {
	case !k.ByAddr:
		return resp.AppendInt(nil, int64(n))
	case n > 0:
		return []byte("+OK\r\n")
	}
	return reply
}

// ResolveIDs is for a command that gives ids more than once, which upstreams take
// differently. accepts reports whether the upstream accepts a command.
func (k *KillFilter) ResolveIDs(accepts func(args [][]byte) bool) {
	if k.repeated && !combinesFilters(accepts, listNobody) {
		k.onlyLastIDs()
	}
}

// KillCommands end the own connections of clients at the node that at leads to.
func KillCommands(of []*Client, at *upstream.Conn) (commands [][]byte) {
	for _, c := range of {
		if id := c.UpstreamID(at); id != 0 {
			commands = append(commands, resp.AppendCommand(nil, "CLIENT", "KILL", "ID", strconv.FormatInt(id, 10)))
		}
	}
	return commands
}
