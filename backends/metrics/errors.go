package metrics

import (
	"bytes"
	"sync/atomic"
)

// words are the first words of errors that are counted apart, and what all others are
// counted as: neither a server nor a client can make more.
var words = [...]string{
	"ERR", "NOAUTH", "NOPERM", "WRONGPASS", "WRONGTYPE", "EXECABORT", "NOSCRIPT", "BUSY", "LOADING", "MASTERDOWN",
	"READONLY", "NOREPLICAS", "MISCONF", "OOM", "MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN", "UNBLOCKED",
	"UPSTREAMDOWN", "NOQUORUM", "LOCKLOST", "NOTOWNER", "QUEUEFULL", "MAXWAIT", "DRAINING", "ADOPTREFUSED",

	"other",
}

// Errors counts errors by their first words. It is safe for concurrent use, never blocks and
// does not allocate. The zero value is ready.
type Errors struct {
	counts [len(words)]atomic.Int64
}

// Count counts an error reply, which begins with "-". A part of one, or what is no
// error, counts as "other".
func (e *Errors) Count(reply []byte) { e.counts[word(reply)].Add(1) }

// word is the index of a reply's first word.
func word(reply []byte) int {
	if len(reply) == 0 || reply[0] != '-' {
		return len(words) - 1
	}
	first := reply[1:]
	if i := bytes.IndexAny(first, " \r\n"); i >= 0 {
		first = first[:i]
	}
	for i, w := range words {
		if string(first) == w {
			return i
		}
	}
	return len(words) - 1
}
