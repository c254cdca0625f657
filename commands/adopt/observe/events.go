package observe

import (
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// A subscription is one to keyspace events, of keys that match.
type subscription struct {
	db   int // -1: of every one
	glob string
}

func (s subscription) matches(key string) bool { return Glob(s.glob, key) }

// noteSubscribe takes over SUBSCRIBE and PSUBSCRIBE.
func (o *Observer) noteSubscribe(channels [][]byte) {
	for _, c := range channels[:min(len(channels), maxLooked)] {
		if len(c) < 6 || string(c[:5]) != "__key" {
			continue
		}
		o.noteKeyEvents(string(c))
	}
}

func (o *Observer) noteKeyEvents(channel string) {
	kind, glob, ok := strings.Cut(strings.TrimPrefix(channel, "__key"), "__:")
	o.mu.Lock()
	defer o.mu.Unlock()
	if !ok || !strings.HasPrefix(kind, "space@") { // of an event, or of both
		o.events++
		return
	}
	s := subscription{glob: glob, db: -1}
	if db := []byte(strings.TrimPrefix(kind, "space@")); len(db) > 0 && db[0] >= '0' && db[0] <= '9' {
		s.db = int(resp.Int(append([]byte(":"), append(db, "\r\n"...)...)))
	}
	for _, k := range o.keys.Values() {
		if s.of(k.db) && s.matches(k.name) {
			k.row.hazard(keyspaceEvents, k.name)
		}
	}
	if len(o.waiting) < maxSubscriptions {
		o.waiting = append(o.waiting, s)
	}
}

// of reports whether the subscription is to keys of a database.
func (s subscription) of(db int) bool { return s.db < 0 || s.db == db }

// Glob reports whether a text matches a pattern as of KEYS.
func Glob(pattern, text string) bool {
	star, mark := -1, 0
	p, t := 0, 0
	for t < len(text) {
		if next, ok := one(pattern, p, text[t]); ok {
			p, t = next, t+1
			continue
		}
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// one reports whether the part of a pattern at p matches one byte, and where the next part is.
func one(pattern string, p int, c byte) (next int, ok bool) {
	if p >= len(pattern) {
		return p, false
	}
	switch pattern[p] {
	case '*':
		return p, false
	case '?':
		return p + 1, true
	case '\\':
		if p+1 < len(pattern) {
			return p + 2, pattern[p+1] == c
		}
	case '[':
		return class(pattern, p, c)
	}
	return p + 1, pattern[p] == c
}

// class is one for [abc], [^abc] and [a-c].
func class(pattern string, p int, c byte) (next int, ok bool) {
	end := strings.IndexByte(pattern[p+1:], ']')
	if end < 0 {
		return p + 1, pattern[p] == c
	}
	set := pattern[p+1 : p+1+end]
	rest, not := strings.CutPrefix(set, "^")
	for i := 0; i < len(rest); i++ {
		from, to := rest[i], rest[i]
		if i+2 < len(rest) && rest[i+1] == '-' {
			to = rest[i+2]
			i += 2
		}
		if min(from, to) <= c && c <= max(from, to) {
			ok = true
		}
	}
	return p + 2 + end, ok != not
}
