// Package idiom says what a command or a script does to a lock that is kept in a key of Redis, as many
// libraries and applications do: SET NX PX to take it, a script that compares and deletes to give it back.
//
// Nothing is recognised by its text. A command is run over what the key is, a State, and yields an Outcome:
// what is to be done to the lock (an Op), what is to be sent behind it (signals), and the reply. Scripts are
// run by package lua, and their commands the same way. Accept runs a call over every state that it may meet,
// and the rows name its Class.
//
// What the package cannot do right it refuses, with a *Refusal and nothing done. Where the documentation of
// lockproxy is silent, the answer is that of one Redis server whose clock and memory never fail; the tests
// compare with a real one.
//
// The package does no I/O and starts no goroutines. All its functions and the methods of Scripts are safe for
// concurrent use; a Call is used by one goroutine.
package idiom

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// A Kind is what a key holds.
type Kind uint8

// The kinds.
const (
	Absent Kind = iota
	String
	Hash
	Sorted    // a sorted set: see sorted.go
	ReadWrite // a read/write lock in a hash: see readers.go
	Permits   // a semaphore in a sorted set: see permits.go
	Native    // a lock that was taken with LOCK
)

func (k Kind) String() string {
	return [...]string{"absent", "string", "hash", "sorted set", "read/write", "permits", "native"}[k]
}

// Forever is the rest of a lease without an end.
const Forever = time.Duration(math.MaxInt64)

// A State is what a key is while it is decided on. The zero State is a key that is not there.
type State struct {
	Kind  Kind
	Value string        // of a String or a Native; the field of a Hash; the token of a Sorted; the thread that writes of a ReadWrite; an owner of one of the Permits, or empty
	Count int           // of a Hash; of the writer of a ReadWrite, 0 if nobody writes
	Left  time.Duration // until it ends, in whole milliseconds, or Forever

	Reader string // of a ReadWrite: a thread that reads
	Reads  int    // its holds; 0: there is none
	Others bool   // and there are others

	Owners int // of Permits: how many others have one
}

// A Do is what is done to a lock.
type Do uint8

// What is done to a lock.
const (
	Nothing Do = iota
	Take       // take a lock that nobody has
	Enter      // one more hold of a Hash, or the first
	Renew      // give the lock another end
	Replace    // give the lock another value and end
	Leave      // give back one of several holds of a Hash
	Release
)

func (d Do) String() string {
	return [...]string{"nothing", "take", "enter", "renew", "replace", "leave", "release"}[d]
}

// An Op is what a call does to the one lock it is about. It does nothing if Do is Nothing.
type Op struct {
	Do    Do
	Value string        // Take, Replace: the value, or token; Enter: the field; Nothing, with a Latch: that of which it would give a hold back
	TTL   time.Duration // Take, Enter, Renew, Replace: until the end, or Forever; Leave: 0 leaves it as it is
	Kind  Kind          // Take: Sorted for a lock in a sorted set; otherwise it is a String. ReadWrite: see Shared. Permits: it is about one, that of Value; a Release without a Value is of all
	Latch string        // Leave, Release, Nothing: the id of this release, which is done once however often it is sent; empty: it has none

	// Of a ReadWrite: it is about the lock by which the thread Value reads; else about the one by which it writes. A Release
	// without a Value is of all who have it.
	Shared bool
	Theirs bool // Renew, Shared: and those by which others read
}

// An Outcome is what a call does in one state.
type Outcome struct {
	Op       Op
	Signals  [][]string // commands for the upstream, behind Op
	Reply    []byte     // RESP of the client's protocol
	TimeRead bool       // the call has read what is left of the lease, or whether it has an end
	LeftRead bool       // it has read what is left
}

// A Refusal says why a call is not run on a lock.
type Refusal struct {
	Why    string
	Raised bool // by the script: Why has its text, which may hold values
}

func (r *Refusal) Error() string { return r.Why }

func refusef(format string, args ...any) *Refusal { return &Refusal{Why: fmt.Sprintf(format, args...)} }

// wrongType reports whether a script failed because the key is of another kind.
func (r *Refusal) wrongType() bool { return strings.Contains(r.Why, "WRONGTYPE") }
