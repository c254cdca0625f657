package clients

import (
	"context"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A killFilter selects the clients that a CLIENT KILL is about.
type killFilter struct {
	Filter
	ByAddr bool // the old form, with an address and another reply
}

// parseKill parses a CLIENT KILL. It reports false if the upstream is to refuse it, or
// takes what is not known here.
func parseKill(args [][]byte) (k killFilter, ok bool) {
	if len(args) == 3 {
		return killFilter{Filter: Filter{values: map[string]string{"ADDR": string(args[2])}}, ByAddr: true}, true
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
	if _, ok := parseKill(args); ok {
		return resp.AppendCommand(nil, append(args, []byte("ADDR"), noAddress)...)
	}
	for i := 2; i+1 < len(args); i++ {
		if resp.Is(args[i], "ADDR") {
			args[i+1] = noAddress
		}
	}
	return resp.AppendCommand(nil, slices.Insert(args, 2, []byte("ADDR"), noAddress)...)
}

// allowed reports whether the upstream, asked with HarmlessKill, has not refused.
func (k *killFilter) allowed(reply []byte) bool {
	text, refused := resp.Error(reply)
	return !refused && string(reply) != queuedReply || k.ByAddr && text == "ERR No such client"
}

// Reply makes of the upstream's reply to HarmlessKill that to the client, n being killed.
func (k *killFilter) Reply(reply []byte, n int) []byte {
	switch {
	case !k.ByAddr:
		return resp.AppendInt(nil, int64(n))
	case n > 0:
		return []byte("+OK\r\n")
	}
	return reply
}

// resolveIDs is for a command that gives ids more than once, which upstreams take
// differently. accepts reports whether the upstream accepts a command.
func (k *killFilter) resolveIDs(accepts func(args [][]byte) bool) {
	if k.repeated && !combinesFilters(accepts, listNobody) {
		k.onlyLastIDs()
	}
}

// killCommands end the own connections of clients at the node that at leads to.
func killCommands(of []*Client, at *upstream.Conn) (commands [][]byte) {
	for _, c := range of {
		if id := c.UpstreamID(at); id != 0 {
			commands = append(commands, resp.AppendCommand(nil, "CLIENT", "KILL", "ID", strconv.FormatInt(id, 10)))
		}
	}
	return commands
}

// KillOthers asks the upstream whether Self may kill others, and then does. Their own connections
// have ended when it returns the reply to a CLIENT KILL; last: Self gets nothing after it.
func (t *Translator) KillOthers(ctx context.Context, args [][]byte) (reply []byte, last bool, err error) {
	k, ok := parseKill(args)
	reply, err = t.Upstream.Ask(ctx, t.At, HarmlessKill(args))
	switch {
	case err != nil || !k.allowed(reply):
		return reply, false, err
	case !ok:
		return resp.AppendError(nil, "ERR syntax error"), false, nil
	}
	k.resolveIDs(t.Accepts)
	matching := t.Registry.matching(&k, t.Self, t.killListing(ctx, &k))
	t.killUpstream(ctx, matching)
	return k.Reply(reply, len(matching)), t.Kill(matching), nil
}

// killListing is the listing by which a CLIENT KILL is decided: the upstream's, if it is
// needed and the client may see it.
func (t *Translator) killListing(ctx context.Context, k *killFilter) *Listing {
	if k.needsUpstream() {
		if reply, err := t.Upstream.Ask(ctx, t.At, listAll); err == nil {
			if l, ok := t.Registry.Listing(reply, t.At); ok {
				return l
			}
		}
	}
	return t.Registry.ProxyListing()
}

// killUpstream makes the upstream end the other clients' own connections, and returns when
// it has.
func (t *Translator) killUpstream(ctx context.Context, matching []*Client) {
	byNode := map[*upstream.Pool][]*Client{}
	for _, c := range matching {
		if pool := c.Node(); pool != nil && c != t.Self {
			byNode[pool] = append(byNode[pool], c)
		}
	}
	for pool, there := range byNode {
		if at, leave := t.ConnTo(pool); at != nil {
			t.Upstream.AskAll(ctx, at, killCommands(there, at))
			leave()
		}
	}
}
