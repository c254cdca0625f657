// Package nodekeys says under which keys a lock node keeps what it knows of a lock. The header of scripts/prologue.lua says
// what is stored there.
package nodekeys

import (
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// Keys are the keys with which a script is called about a lock.
type Keys struct {
	Lock, Fences, Node string
	Name               string // the record of the name, if the lock is a reader's; else empty
}

// Of are the keys of a lock.
func Of(prefix string, k locks.Key) Keys {
	keys := Keys{Lock: Lock(prefix, k), Node: prefix + "node"}
	kind, tail := "fence:", tailOf(k)
	if k.Reader != "" {
		kind, keys.Name = "readfence:", Lock(prefix, k.Whole())
	}
	keys.Fences = prefix + kind + tail
	return keys
}

// OfNode are the keys with which a script is called that is about the node itself, and about no lock.
func OfNode(prefix string) Keys {
	node := prefix + "node"
	return Keys{Lock: node, Fences: node, Node: node}
}

// Lock is the key of a lock's record, and the channel on which its releases are told. Those of a reader are told
// on the channel of the name.
func Lock(prefix string, k locks.Key) string {
	if k.Reader != "" {
		return prefix + readKind + tailOf(k)
	}
	return Prefix(prefix) + tailOf(k)
}

// tailOf is what the keys of a lock end with. That of a reader has the length of the name in front of it.
func tailOf(k locks.Key) string {
	if k.Reader != "" {
		return strconv.Itoa(k.DB) + ":" + strconv.Itoa(len(k.Name)) + ":" + k.Name + k.Reader
	}
	return strconv.Itoa(k.DB) + ":" + k.Name
}

const readKind = "read:" // of the record of a reader

// Prefix is what the keys of all records of names begin with.
func Prefix(prefix string) string { return prefix + "lock:" }

// Pattern is a pattern of SCAN for what the names of a database have, as records or as sets of readers; "*" stands for
// all databases. A pattern of names is to follow it, and ParseRecord reads what is found.
func Pattern(prefix, db string) string {
	return Literal(prefix) + "lock[:r]" + db + ":"
}

// ParseRecord is the name that a key which Pattern has found is of, and whether it is that of the set of its readers; ok is
// false where it is another key.
func ParseRecord(prefix, key string) (k locks.Key, set, ok bool) {
	tail, set := strings.CutPrefix(key, prefix+"lockr")
	if set {
		key = Prefix(prefix) + tail
	}
	k, ok = Parse(prefix, key)
	return k, set, ok
}

// Parse is the reverse of Lock; ok is false where it is another key.
func Parse(prefix, key string) (k locks.Key, ok bool) {
	tail, ours := strings.CutPrefix(key, Prefix(prefix))
	if !ours {
		return parseReadKey(prefix, key)
	}
	db, name, found := strings.Cut(tail, ":")
	n, err := strconv.Atoi(db)
	return locks.Key{DB: n, Name: name}, found && err == nil
}

// parseReadKey is Parse for the lock of a reader.
func parseReadKey(prefix, key string) (k locks.Key, ok bool) {
	tail, ours := strings.CutPrefix(key, prefix+readKind)
	db, tail, _ := strings.Cut(tail, ":")
	length, tail, _ := strings.Cut(tail, ":")
	n, err := strconv.Atoi(db)
	at, bad := strconv.Atoi(length)
	if !ours || err != nil || bad != nil || at < 0 || at >= len(tail) {
		return k, false
	}
	return locks.Key{DB: n, Name: tail[:at], Reader: tail[at:]}, true
}

// Literal is a pattern of SCAN that matches s alone.
func Literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
