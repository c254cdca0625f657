package clients

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// An entry is one line of CLIENT LIST, its fields in the upstream's order.
type entry []entryField

type entryField struct{ key, value string }

// parseEntry parses a line. What has no "=" belongs to the value before it: the path of a
// Unix socket may have spaces.
func parseEntry(line string) (e entry) {
	for part := range strings.SplitSeq(line, " ") {
		key, value, ok := strings.Cut(part, "=")
		if !ok && len(e) > 0 {
			e[len(e)-1].value += " " + part
			continue
		}
		e = append(e, entryField{key, value})
	}
	return e
}

func (e entry) get(key string) string {
	for _, f := range e {
		if f.key == key {
			return f.value
		}
	}
	return ""
}

func (e entry) number(key string) int64 {
	n, _ := strconv.ParseInt(e.get(key), 10, 64)
	return n
}

// with is the entry with other values for the fields that it has.
func (e entry) with(values map[string]string) entry {
	e = slices.Clone(e)
	for i, f := range e {
		if v, ok := values[f.key]; ok {
			e[i].value = v
		}
	}
	return e
}

func (e entry) appendTo(b []byte) []byte {
	for i, f := range e {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, f.key...)
		b = append(b, '=')
		b = append(b, f.value...)
	}
	return append(b, '\n')
}

// clientType is the client's type, as CLIENT LIST TYPE calls it.
func (e entry) clientType() string {
	switch flags := e.get("flags"); {
	case strings.Contains(flags, "M"):
		return "master"
	case strings.Contains(flags, "S"):
		return "replica"
	case strings.Contains(flags, "P"):
		return "pubsub"
	}
	return "normal"
}

// A Listing is the upstream's entries, from a reply to CLIENT LIST or INFO, and whose they
// are.
type Listing struct {
	registry *Registry
	at       *upstream.Conn // to the node whose connections they are
	entries  map[int64]entry
	template entry             // any of them: which fields there are
	owners   map[int64]*Client // of connections at that node
	expected map[int64]*Client // whose connections must be among entries, unless they have ended
}

// Listing parses a reply of the node that at leads to. It reports false if that is no text.
func (r *Registry) Listing(reply []byte, at *upstream.Conn) (l *Listing, ok bool) {
	return r.listing(reply, at, nil)
}

func (r *Registry) listing(reply []byte, at *upstream.Conn, expected map[int64]*Client) (l *Listing, ok bool) {
	text, ok := bulkText(reply)
	if !ok {
		return nil, false
	}
	l = &Listing{registry: r, at: at, entries: map[int64]entry{}, expected: expected, owners: r.byUpstream(at)}
	for line := range strings.Lines(text) {
		e := parseEntry(strings.TrimSuffix(line, "\n"))
		id := e.number("id")
		l.entries[id], l.template = e, e
	}
	return l, true
}

// bulkText is the text of a bulk or verbatim string.
func bulkText(reply []byte) (text string, ok bool) {
	switch v, _, _ := resp.First(reply); v.Kind {
	case '$':
		return string(v.Text), true
	case '=':
		return strings.TrimPrefix(string(v.Text), "txt:"), true
	}
	return "", false
}

// absentFields are fields of a client without a connection of its own at the upstream.
var absentFields = map[string]string{
	"fd": "0", "watch": "0",
	"qbuf": "0", "qbuf-free": "0", "argv-mem": "0", "multi-mem": "0", "rbs": "0", "rbp": "0", "obl": "0", "oll": "0",
	"omem": "0", "tot-mem": "0", "tot-net-in": "0", "tot-net-out": "0", "tot-cmds": "0", "events": "r", "redir": "-1",
	"capa": "", "lib-name": "", "lib-ver": "",
}

// ProxyListing is a listing without the upstream's entries: of every client it has what
// the proxy knows, as far as filters ask for it.
func (r *Registry) ProxyListing() *Listing {
	l := &Listing{registry: r}
	for _, key := range []string{"id", "addr", "laddr", "name", "age", "idle", "flags", "capa", "db", "user", "lib-name", "lib-ver"} {
		l.template = append(l.template, entryField{key, absentFields[key]})
	}
	return l
}

// entryOf is the entry of a client; nil for one that the upstream has disconnected, which
// the proxy is about to notice.
func (l *Listing) entryOf(c *Client, now time.Time) entry {
	stateful := c.session.Stateful()
	c.mu.Lock()
	own := c.upstreamIDLocked(l.at)
	lost := l.entries[own] == nil && l.expected[own] == c
	dead := stateful != nil && stateful == c.state.Pinned && (lost || !stateful.Alive())
	c.mu.Unlock()
	if dead {
		return nil
	}
	return l.anyEntryOf(c, now)
}

// anyEntryOf is the entry of a client, whatever has become of it.
func (l *Listing) anyEntryOf(c *Client, now time.Time) entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.upstreamIDLocked(l.at)
	e := l.entries[own]
	idle := secondsSince(now, c.lastActive)
	if own == 0 || e == nil {
		e = l.template.with(absentFields).with(c.fieldsLocked())
	} else {
		idle = min(idle, e.number("idle")) // messages count, too
	}
	return e.with(c.libraryLocked()).with(map[string]string{
		"id":    strconv.FormatInt(c.ID, 10),
		"addr":  c.Addr,
		"laddr": c.LocalAddr,
		"age":   strconv.FormatInt(secondsSince(now, c.connected), 10),
		"idle":  strconv.FormatInt(idle, 10),
		"flags": flagsFor(e.get("flags"), c.Peer),
		"cmd":   c.command.shown(l.registry.CommandName),
		"redir": strconv.FormatInt(l.redirect(e.number("redir"), c.redirect), 10),
	})
}

// flagsFor are the upstream's flags with that of a Unix socket as it is between the client
// and the proxy.
func flagsFor(flags string, to Peer) string {
	flags = strings.ReplaceAll(strings.ReplaceAll(flags, "U", ""), "N", "")
	if strings.HasPrefix(to.Addr, "/") {
		flags += "U"
	}
	if flags == "" {
		return "N"
	}
	return flags
}

// redirect is our id of the client with the number n at the upstream; of one that has left
// it is what to says.
func (l *Listing) redirect(n int64, to redirectTarget) int64 {
	switch c := l.owners[n]; {
	case n <= 0:
		return n
	case c != nil:
		return c.ID
	case n == to.upstream:
		return to.id
	}
	return n
}

// secondsSince is how many seconds ago something was, as Redis counts.
func secondsSince(now, then time.Time) int64 { return max(0, now.Unix()-then.Unix()) }
