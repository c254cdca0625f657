package locks

import "strings"

// AdoptedPrefix is what the owners of adopted locks begin with: those that clients take with commands of Redis
// and not with LOCK. A client cannot name such an owner, since its own words are inside.
const AdoptedPrefix = "\x00lpa"

const (
	stringPrefix = AdoptedPrefix + "s"
	hashPrefix   = AdoptedPrefix + "h"
	sortedPrefix = AdoptedPrefix + "z"
	randomLength = 16 // of what makes the owner of a string, or of a sorted set, unlike all others
)

// An AdoptedKind is what a client takes the key of an adopted lock for. It is empty for a lock of LOCK.
type AdoptedKind string

// The kinds.
const (
	AdoptedString AdoptedKind = "string"     // with a value, which need not be unlike others
	AdoptedHash   AdoptedKind = "hash"       // with a field for its owner, which may enter again
	AdoptedSorted AdoptedKind = "sorted set" // with a token, which need not be unlike others
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

// ShownOwner is an owner for people: of an adopted lock its client's value, field or token. kind is empty, and the owner
// itself shown, where LOCK has taken the lock.
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
	return owner, ""
}
