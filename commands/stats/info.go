package stats

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// An Info is what the proxy's section of INFO shows. It is safe for concurrent use.
type Info struct {
	Version string
	Mode    func() string      // of the upstream; nil: it is not shown
	Locks   func() locks.Stats // nil: they are not shown
	// Adoption adds what is shown of adopted keys; nil: nothing is.
	Adoption func(add func(name string, value any))

	Began    time.Time // when the proxy began
	Clients  func() int
	Counts   *Counts
	Upstream *upstream.Upstream
}

// infoSection is the name of the proxy's section of INFO.
const infoSection = "LOCKPROXY"

// WantsSection reports whether an INFO asks for the proxy's section.
func WantsSection(sections [][]byte) bool {
	return len(sections) == 0 || slices.ContainsFunc(sections, func(name []byte) bool {
		return resp.Is(name, "DEFAULT") || resp.Is(name, "ALL") || resp.Is(name, "EVERYTHING") || resp.Is(name, infoSection)
	})
}

// Augment returns what goes upstream in place of an INFO that asks for the proxy's section,
// which the upstream does not know, and a function that adds the section to the reply. A client
// that asks for that alone must be allowed to ask for another.
func (i *Info) Augment(raw []byte, args [][]byte) (sent []byte, add func(reply []byte) []byte) {
	own := i.section()
	asked := slices.DeleteFunc(slices.Clone(args), func(name []byte) bool { return resp.Is(name, infoSection) })
	switch {
	case len(asked) == len(args):
	case len(asked) > 1:
		raw = resp.AppendCommand(nil, asked...)
	default:
		return resp.AppendCommand(nil, "INFO", "clients"), func(reply []byte) []byte {
			if !isText(reply) {
				return reply
			}
			return resp.AppendTextLike(nil, reply, own)
		}
	}
	return raw, func(reply []byte) []byte { return addSection(reply, own) }
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
	return resp.AppendTextLike(nil, reply, slices.Concat(text, section))
}

// section is the proxy's section of INFO. Its fields have names that no Redis has:
// clients put those of all sections together.
func (i *Info) section() []byte {
	b := []byte("# Lockproxy\r\n")
	add := func(name string, value any) { b = fmt.Appendf(b, "lockproxy_%s:%v\r\n", name, value) }
	add("version", i.Version)
	add("uptime_in_seconds", int64(time.Since(i.Began).Seconds()))
	add("connected_clients", i.Clients())
	add("commands", i.Counts.Commands())
	up := i.Upstream.Stats()
	add("upstream_connections", up.Shared+up.Pinned+up.Spare)
	add("upstream_reconnects", up.Reconnects)
	if i.Mode != nil {
		add("upstream_mode", i.Mode())
	}
	if i.Adoption != nil {
		i.Adoption(add)
	}
	if i.Locks == nil {
		return b
	}
	st := i.Locks()
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
