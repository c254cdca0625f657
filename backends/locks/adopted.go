package locks

import "strings"

// AdoptedPrefix begins the owner of every adopted lock: one that a client takes with commands of Redis and not
// with LOCK. LOCK refuses owners that begin so.
const AdoptedPrefix = "\x00lpa"

const (
	stringPrefix = AdoptedPrefix + "s"
	hashPrefix   = AdoptedPrefix + "h"
	sortedPrefix = AdoptedPrefix + "z"
	threadPrefix = AdoptedPrefix + "t"
	permitPrefix = AdoptedPrefix + "p"
	randomLength = 16 // of the random text that makes the owner of a string, or of a sorted set, unique
)

// An AdoptedKind is the type that the key of an adopted lock has for its client. It is empty for a lock of LOCK.
type AdoptedKind string

// The kinds.
const (
	AdoptedString AdoptedKind = "string"     // with a value, which need not be unique
	AdoptedHash   AdoptedKind = "hash"       // with a field for its owner, which may re-enter
	AdoptedSorted AdoptedKind = "sorted set" // with a token, which need not be unique
	AdoptedThread AdoptedKind = "read/write" // a hash with fields for those who read it, or for the one who writes
	AdoptedPermit AdoptedKind = "semaphore"  // a sorted set with a member for each owner of a permit
)

// NewAdoptedString makes the owner of a new grant to a client that stores value. No other grant has it.
func NewAdoptedString(random *RandSource, value string) (owner string) {
	return stringPrefix + random.ID()[:randomLength] + value
}

// NewAdoptedSorted is NewAdoptedString for a client that adds a token to a sorted set.
func NewAdoptedSorted(random *RandSource, token string) (owner string) {
	return sortedPrefix + random.ID()[:randomLength] + token
}

// NewAdoptedHash makes the owner that a field of a hash stands for. It is the same each time.
func NewAdoptedHash(field string) (owner string) { return hashPrefix + field }

// NewAdoptedThread makes the owner that a thread is of a read/write lock in a hash, whether it reads or writes. It is the
// same each time.
func NewAdoptedThread(thread string) (owner string) { return threadPrefix + thread }

// NewAdoptedPermit makes the owner of a permit that a member of a sorted set stands for. It is the same each time.
func NewAdoptedPermit(member string) (owner string) { return permitPrefix + member }

// ShownOwner is an owner as people are shown it: for an adopted lock the client's value, field or token, for a lock of
// LOCK the owner itself, with an empty kind.
func ShownOwner(owner string) (shown string, kind AdoptedKind) {
	if rest, isString := strings.CutPrefix(owner, stringPrefix); isString && len(rest) >= randomLength {
		return rest[randomLength:], AdoptedString
	}
	if rest, isSorted := strings.CutPrefix(owner, sortedPrefix); isSorted && len(rest) >= randomLength {
		return rest[randomLength:], AdoptedSorted
	}
	if field, isHash := strings.CutPrefix(owner, hashPrefix); isHash {
		return field, AdoptedHash
	}
	if thread, isThread := strings.CutPrefix(owner, threadPrefix); isThread {
		return thread, AdoptedThread
	}
	if member, isPermit := strings.CutPrefix(owner, permitPrefix); isPermit {
		return member, AdoptedPermit
	}
	return owner, ""
}
