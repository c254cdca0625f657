package commands

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// infoSection is the name of the proxy's section of INFO.
const infoSection = "LOCKPROXY"

// wantsSection reports whether INFO asks for the proxy's section.
func wantsSection(sections [][]byte) bool {
	return len(sections) == 0 || slices.ContainsFunc(sections, func(name []byte) bool {
		return resp.Is(name, "DEFAULT") || resp.Is(name, "ALL") || resp.Is(name, "EVERYTHING") || resp.Is(name, infoSection)
	})
}

// augmentInfo is augment for INFO. The upstream is not asked for the proxy's section, which
// it does not know. A client that asks for that alone must be allowed to ask for another.
func (s *Session) augmentInfo(q request) (sent []byte, e relay.Rewrite) {
	own := s.d.section()
	asked := slices.DeleteFunc(slices.Clone(q.args), func(name []byte) bool { return resp.Is(name, infoSection) })
	switch {
	case len(asked) == len(q.args):
	case len(asked) > 1:
		q.raw = resp.AppendCommand(nil, asked...)
	default:
		return resp.AppendCommand(nil, "INFO", "clients"), func(reply []byte) ([]byte, bool) {
			if !isText(reply) {
				return reply, false
			}
			return clients.AppendTextLike(nil, reply, own), false
		}
	}
	return q.raw, func(reply []byte) ([]byte, bool) { return addSection(reply, own), false }
}

func isText(reply []byte) bool { return len(reply) > 0 && (reply[0] == '$' || reply[0] == '=') }

// addSection appends a section to a reply to INFO.
func addSection(reply, section []byte) []byte {
	if !isText(reply) {
		return reply
	}
	text := bytes.TrimPrefix(resp.Bulk(reply), []byte("txt:"))
	if len(text) > 0 {
		text = slices.Concat(text, []byte("\r\n"))
	}
	return clients.AppendTextLike(nil, reply, slices.Concat(text, section))
}

// section is the proxy's section of INFO. Its fields have names that no Redis has:
// clients put those of all sections together.
func (d *Dispatcher) section() []byte {
	b := []byte("# Lockproxy\r\n")
	add := func(name string, value any) { b = fmt.Appendf(b, "lockproxy_%s:%v\r\n", name, value) }
	add("version", d.opt.Version)
	add("uptime_in_seconds", int64(time.Since(d.began).Seconds()))
	add("connected_clients", d.clients.Count())
	add("commands", d.commandsSeen())
	up := d.opt.Upstream.Stats()
	add("upstream_connections", up.Shared+up.Pinned+up.Spare)
	add("upstream_reconnects", up.Reconnects)
	if d.opt.Mode != nil {
		add("upstream_mode", d.opt.Mode())
	}
	if d.opt.Stats == nil {
		return b
	}
	st := d.opt.Stats()
	add("lock_nodes", st.Nodes)
	add("lock_nodes_voting", st.Voting)
	add("lock_nodes_quarantined", st.Quarantined)
	add("waiting", st.Waiting)
	add("sessions", st.Sessions)
	add("session_locks", st.SessionLocks)
	add("grants", st.Grants)
	add("refusals", st.Refusals)
	add("noquorum", st.NoQuorum)
	add("splits", st.Splits)
	add("renewals", st.Renewals)
	add("releases", st.Releases)
	add("undos", st.Undos)
	add("rounds", st.Rounds)
	add("repeats", st.Repeats)
	add("forces", st.Forces)
	add("session_losses", st.Losses)
	return b
}
