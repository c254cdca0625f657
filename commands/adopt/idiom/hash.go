package idiom

import (
	"strconv"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// notHash reports whether a command of hashes fails because the key holds something else.
func (w *world) notHash() bool { return w.is.Kind != Absent && w.is.Kind != Hash }

// hget is HGET, HEXISTS and HSTRLEN.
func (w *world) hget(name string, args []string) (lua.Reply, error) {
	if w.notHash() {
		return wrongType, nil
	}
	there := w.is.Kind == Hash && w.is.Value == args[0]
	switch {
	case name == "HEXISTS":
		return flag(there), nil
	case name == "HSTRLEN" && there:
		return int64(len(w.count())), nil
	case name == "HSTRLEN":
		return int64(0), nil
	case there:
		return w.count(), nil
	}
	return nil, nil
}

// hash is HLEN, HKEYS, HVALS and HGETALL.
func (w *world) hash(name string, _ []string) (lua.Reply, error) {
	if w.notHash() {
		return wrongType, nil
	}
	there := w.is.Kind == Hash
	switch {
	case name == "HLEN":
		return flag(there), nil
	case !there:
		return []any{}, nil
	case name == "HKEYS":
		return []any{w.is.Value}, nil
	case name == "HVALS":
		return []any{w.count()}, nil
	}
	return []any{w.is.Value, w.count()}, nil
}

// enter makes the key a hash with one field.
func (w *world) enter(field string, count int) error {
	switch {
	case len(field) > maxValue:
		return refusef("a field of %d bytes, more than %d", len(field), maxValue)
	case w.is.Kind == Hash && w.is.Value != field:
		return refusef("a second field")
	case w.is.Kind == Absent && w.was.Kind != Absent:
		return refusef("a hash in place of a lock")
	case count < 1:
		return refusef("a count under one")
	}
	left := Forever
	if w.is.Kind == Hash {
		left = w.is.Left
	}
	w.is = State{Kind: Hash, Value: field, Count: count, Left: left}
	return nil
}

func (w *world) hset(name string, args []string) (lua.Reply, error) {
	if w.notHash() {
		return wrongType, nil
	}
	there := w.is.Kind == Hash && w.is.Value == args[0]
	if there && name == "HSETNX" {
		return int64(0), nil
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || strconv.Itoa(n) != args[1] {
		return nil, refusef("a field that is no number")
	}
	return flag(!there), w.enter(args[0], n)
}

func (w *world) hincrby(_ string, args []string) (lua.Reply, error) {
	by, isInt := integer(args[1])
	switch {
	case !isInt:
		return notInteger, nil
	case w.notHash():
		return wrongType, nil
	case by != 1 && by != -1:
		return nil, refusef("HINCRBY by %d", by)
	}
	count := int(by)
	if w.is.Kind == Hash && w.is.Value == args[0] {
		count += w.is.Count
	}
	if count == 0 && w.is.Kind == Hash { // scripts remove it next, or not: it is there with a count of 0
		w.is.Count = 0
		return int64(0), nil
	}
	return int64(count), w.enter(args[0], count)
}

func (w *world) hdel(_ string, args []string) (lua.Reply, error) {
	if w.notHash() {
		return wrongType, nil
	}
	if w.is.Kind != Hash || w.is.Value != args[0] {
		return int64(0), nil
	}
	w.is = State{}
	return int64(1), nil
}
