package idiom

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// A Dialect is the version of a server: how it words errors and numbers, and which options its commands have. The zero
// Dialect is of a server that has not said what it is: Redis 7.0 is spoken, and options of later ones are refused.
type Dialect struct {
	Version int  // 80403 is 8.4.3; 0: not known
	Valkey  bool // Version is Valkey's, and not that of Redis
}

// DialectOf reads a reply to INFO server, without its length. A text that names no version is the zero Dialect.
func DialectOf(info string) (d Dialect) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "valkey_version":
			return Dialect{versionOf(value), true}
		case name == "redis_version":
			d.Version = versionOf(value)
		}
	}
	return d
}

// ParseDialect reads a name and a version, such as "redis 8.4" and "valkey 9.0". It reports false for anything else.
func ParseDialect(text string) (d Dialect, ok bool) {
	name, version, _ := strings.Cut(text, " ")
	if name != "redis" && name != "valkey" {
		return d, false
	}
	d = DialectOf(name + "_version:" + version)
	return d, d.Version != 0
}

// A Heard keeps the Dialect that the servers of an upstream have reported. The zero Heard is ready, and safe for
// concurrent use.
type Heard struct{ now atomic.Pointer[Dialect] }

// Dialect returns that of the oldest server in the last Note; the zero Dialect if there is none.
func (h *Heard) Dialect() Dialect {
	if d := h.now.Load(); d != nil {
		return *d
	}
	return Dialect{}
}

// Note takes over what the upstream's servers say, each in reply to INFO server. If none says a version the Dialect
// stays; between servers of Redis and of Valkey there is none.
func (h *Heard) Note(infos []string) {
	var oldest Dialect
	for _, info := range infos {
		switch d := DialectOf(info); {
		case d.Version == 0:
		case oldest.Version != 0 && oldest.Valkey != d.Valkey:
			h.now.Store(&Dialect{})
			return
		case oldest.Version == 0 || d.Version < oldest.Version:
			oldest = d
		}
	}
	if oldest.Version != 0 {
		h.now.Store(&oldest)
	}
}

func versionOf(text string) (n int) {
	parts := strings.Split(text, ".")
	for i := range 3 {
		part := 0
		if i < len(parts) {
			part, _ = strconv.Atoi(parts[i])
		}
		n = n*100 + min(max(part, 0), 99)
	}
	return n
}

// is reports whether the server is known to be of these versions, or later ones; 0: of none.
func (d Dialect) is(redis, valkey int) bool {
	from := redis
	if d.Valkey {
		from = valkey
	}
	return from != 0 && d.Version >= from
}

// old reports whether the server is known to be a Redis before 7.0.
func (d Dialect) old() bool { return d.Version != 0 && !d.is(70000, 1) }

func (d Dialect) lua() lua.Version {
	return lua.Version{BareErrors: d.old(), ShortNumbers: d.is(70200, 1)}
}

// since are commands newer than the default dialect, with the versions of Redis and Valkey that have them.
var since = map[string][2]int{"DELEX": {80400, 90200}, "DELIFEQ": {0, 90000}}

// has reports whether scripts of the server may run a command.
func (d Dialect) has(name string) bool {
	from, isNew := since[name]
	return !d.Lacks(name) && (!isNew || d.is(from[0], from[1]))
}

// Lacks reports whether the server is known not to have a command, in upper case, that Redis 7.0 has.
func (d Dialect) Lacks(name string) bool {
	return d.old() && (name == "EXPIRETIME" || name == "PEXPIRETIME")
}
