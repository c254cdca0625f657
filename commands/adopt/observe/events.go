package observe

import (
	"strings"

	"github.com/lockproxy/lockproxy/backends/glob"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// longestWatched bounds the pattern of a subscription, in bytes.
const longestWatched = 512

// A subscription is one to the keyspace events of keys that match.
type subscription struct {
	db   int // -1: of every one
	keys glob.Glob
}

func (s subscription) matches(key string) bool { return s.keys.Matches(key) }

// noteSubscribe notes subscriptions to key events by SUBSCRIBE and PSUBSCRIBE.
func (o *Observer) noteSubscribe(channels [][]byte) {
	for _, c := range channels[:min(len(channels), maxLooked)] {
		if len(c) < 6 || string(c[:5]) != "__key" {
			continue
		}
		o.noteKeyEvents(string(c))
	}
}

func (o *Observer) noteKeyEvents(channel string) {
	kind, keys, ok := strings.Cut(strings.TrimPrefix(channel, "__key"), "__:")
	o.mu.Lock()
	defer o.mu.Unlock()
	if !ok || !strings.HasPrefix(kind, "space@") || len(keys) > longestWatched { // the channel is for events, or for both, or too long to be kept
		o.events++
		return
	}
	s := subscription{db: -1}
	s.keys, _, _ = glob.Parse(keys)
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
