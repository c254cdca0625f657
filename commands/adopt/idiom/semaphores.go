package idiom

import (
	"slices"
	"strings"
)

// Commands of semaphores and of lines of waiters. They are refused as any other command that has no meaning for a lock, and
// the reason says what it looks like: a lock of a majority is a grant to somebody, with an end.
var (
	counting = []string{"INCR", "INCRBY", "INCRBYFLOAT", "DECR", "DECRBY"}
	lining   = []string{"LINDEX", "LLEN", "LPOP", "LRANGE", "LREM", "RPOP"}
)

// ofALock refuses a command with the key of a lock.
func ofALock(name string) *Refusal {
	if slices.Contains(counting, name) {
		return refusef("%s of a lock: a counter, or a semaphore, whose permits have neither owner nor end", name)
	}
	return refusef("%s of a lock", name)
}

// besideALock refuses a command of a script with another key than the lock's.
func besideALock(name string) *Refusal {
	switch {
	case name != "INCR" && slices.Contains(counting, name):
		return refusef("%s beside the lock: a semaphore, whose permits are counted apart", name)
	case strings.HasPrefix(name, "Z"):
		return refusef("%s beside the lock: a semaphore, or a line of those who wait, in a sorted set of its own", name)
	case slices.Contains(lining, name):
		return refusef("%s beside the lock: a line of those who wait", name)
	}
	return refusef("%s beside the lock", name)
}
