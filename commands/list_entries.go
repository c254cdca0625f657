package commands

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A row is one line of CLIENT LIST, its fields in the upstream's order.
type listEntry []entryField

type entryField struct{ key, value string }

// parseEntry reads a line. What has no "=" belongs to the value before it: the path of
// a Unix socket may have spaces.
func parseEntry(line string) (r listEntry) {
	for part := range strings.SplitSeq(line, " ") {
		key, value, ok := strings.Cut(part, "=")
		if !ok && len(r) > 0 {
			r[len(r)-1].value += " " + part
			continue
		}
		r = append(r, entryField{key, value})
	}
	return r
}

func (r listEntry) get(key string) string {
	for _, f := range r {
		if f.key == key {
			return f.value
		}
	}
	return ""
}

func (r listEntry) number(key string) int64 {
	n, _ := strconv.ParseInt(r.get(key), 10, 64)
	return n
}

// with is the row with other values for the fields that it has.
func (r listEntry) with(values map[string]string) listEntry {
	r = slices.Clone(r)
	for i, f := range r {
		if v, ok := values[f.key]; ok {
			r[i].value = v
		}
	}
	return r
}

func (r listEntry) appendTo(b []byte) []byte {
	for i, f := range r {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, f.key...)
		b = append(b, '=')
		b = append(b, f.value...)
	}
	return append(b, '\n')
}

// clientType is what CLIENT LIST TYPE calls the row's client.
func (r listEntry) clientType() string {
	switch flags := r.get("flags"); {
	case strings.Contains(flags, "M"):
		return "master"
	case strings.Contains(flags, "S"):
		return "replica"
	case strings.Contains(flags, "P"):
		return "pubsub"
	}
	return "normal"
}

// A listing is what the upstream says of its connections, as a reply to CLIENT LIST
// or INFO, and whose they are.
type listing struct {
	at       *upstream.Conn // to the node whose connections they are
	entries  map[int64]listEntry
	template listEntry // any of them: which fields there are
	owners   map[int64]*Session
	expected map[int64]*Session // whose connections must be in it, unless they have ended
}

// listing reads a reply of the node that at leads to, which must have rows for those
// expected; ok is false if it is no text.
func (c *clientRegistry) listing(reply []byte, at *upstream.Conn, expected map[int64]*Session) (l *listing, ok bool) {
	text, ok := bulkText(reply)
	if !ok {
		return nil, false
	}
	l = &listing{at: at, entries: map[int64]listEntry{}, expected: expected, owners: c.byUpstream(at)}
	for line := range strings.Lines(text) {
		r := parseEntry(strings.TrimSuffix(line, "\n"))
		id := r.number("id")
		l.entries[id], l.template = r, r
	}
	return l, true
}

// bulkText is what a bulk or verbatim string says.
func bulkText(reply []byte) (text string, ok bool) {
	if len(reply) == 0 || reply[0] != '$' && reply[0] != '=' {
		return "", false
	}
	_, body, ok := bytes.Cut(reply, []byte("\r\n"))
	if !ok || len(body) < 2 {
		return "", false
	}
	body = body[:len(body)-2]
	if reply[0] == '=' {
		body = bytes.TrimPrefix(body, []byte("txt:"))
	}
	return string(body), true
}

// appendTextLike appends a text in the form of like, a bulk or verbatim string.
func appendTextLike(b, like, text []byte) []byte {
	if like[0] != '=' {
		return resp.AppendBulk(b, text)
	}
	b = strconv.AppendInt(append(b, '='), int64(len(text)+len("txt:")), 10)
	b = append(b, "\r\ntxt:"...)
	b = append(b, text...)
	return append(b, '\r', '\n')
}

// absentFields are the fields of a client that has nothing at the upstream, as far as the
// session does not know them.
var absentFields = map[string]string{
	"fd": "0", "watch": "0",
	"qbuf": "0", "qbuf-free": "0", "argv-mem": "0", "multi-mem": "0", "rbs": "0", "rbp": "0", "obl": "0", "oll": "0",
	"omem": "0", "tot-mem": "0", "tot-net-in": "0", "tot-net-out": "0", "tot-cmds": "0", "events": "r", "redir": "-1",
	"capa": "", "lib-name": "", "lib-ver": "",
}

// proxyListing is a listing without the upstream's word: of all clients it has what the proxy
// knows, as far as filters ask for it.
func proxyListing() *listing {
	l := &listing{}
	for _, key := range []string{"id", "addr", "laddr", "name", "age", "idle", "flags", "capa", "db", "user", "lib-name", "lib-ver"} {
		l.template = append(l.template, entryField{key, absentFields[key]})
	}
	return l
}

// entryOf is the row of a client. It is nil for one that the upstream has disconnected,
// which the proxy is about to notice.
func (l *listing) entryOf(s *Session, now time.Time) listEntry {
	stateful := s.stateful.Load()
	p := &s.info
	p.mu.Lock()
	own := p.upstreamIDLocked(l.at)
	lost := l.entries[own] == nil && l.expected[own] == s
	dead := stateful != nil && stateful == p.own && (lost || !stateful.Alive())
	p.mu.Unlock()
	if dead {
		return nil
	}
	return l.anyEntryOf(s, now)
}

// anyEntryOf is the row of a client, whatever has become of it.
func (l *listing) anyEntryOf(s *Session, now time.Time) listEntry {
	p := &s.info
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.upstreamIDLocked(l.at)
	r := l.entries[own]
	idle := secondsSince(now, p.lastActive)
	if own == 0 || r == nil {
		r = l.template.with(absentFields).with(p.fieldsLocked())
	} else {
		idle = min(idle, r.number("idle")) // messages count, too
	}
	return r.with(p.libraryLocked()).with(map[string]string{
		"id":    strconv.FormatInt(p.ID, 10),
		"addr":  p.Addr,
		"laddr": p.LocalAddr,
		"age":   strconv.FormatInt(secondsSince(now, p.connectedAt), 10),
		"idle":  strconv.FormatInt(idle, 10),
		"flags": flagsFor(r.get("flags"), p.Peer),
		"cmd":   p.command.nameIn(s.d.upstreamTable()),
		"redir": strconv.FormatInt(l.redirect(r.number("redir"), p.redirect), 10),
	})
}

// flagsFor are the upstream's flags with the one of a Unix socket as it is between
// the client and the proxy.
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

// redirect is our id of the client that the upstream calls by a number; of one
// that has left it is what to says.
func (l *listing) redirect(n int64, to trackingRedirect) int64 {
	switch s := l.owners[n]; {
	case n <= 0:
		return n
	case s != nil:
		return s.info.ID
	case n == to.upstream:
		return to.id
	}
	return n
}

// secondsSince is how many seconds ago something was, as Redis counts.
func secondsSince(now, then time.Time) int64 { return max(0, now.Unix()-then.Unix()) }
