package meter

import (
	"bytes"
	"sync/atomic"
)

// words are the first words of errors that are counted apart. There are so few, and all
// others are one, that no server and no client can make more.
var words = [...]string{
	"ERR", "NOAUTH", "NOPERM", "WRONGPASS", "WRONGTYPE", "EXECABORT", "NOSCRIPT", "BUSY", "LOADING", "MASTERDOWN",
	"READONLY", "NOREPLICAS", "MISCONF", "OOM", "MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN", "UNBLOCKED",
	"UPSTREAMDOWN", "NOQUORUM", "LOCKLOST", "NOTOWNER", "QUEUEFULL", "MAXWAIT", "DRAINING",
}

// Errors counts errors by their first words. It may be used by any number of goroutines,
// waits for none and allocates nothing. The zero value is ready.
type Errors struct {
	counts [len(words) + 1]atomic.Int64
}

// Count counts an error reply, which begins with "-". A part of one, or what is no error,
// counts as "other".
func (e *Errors) Count(reply []byte) { e.counts[word(reply)].Add(1) }

// word is the index of a reply's first word.
func word(reply []byte) int {
	if len(reply) == 0 || reply[0] != '-' {
		return len(words)
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
	return len(words)
}

// Snapshot has every word that is counted apart, and "other".
func (e *Errors) Snapshot() map[string]int64 {
	all := make(map[string]int64, len(words)+1)
	for i, w := range words {
		all[w] = e.counts[i].Load()
	}
	all["other"] = e.counts[len(words)].Load()
	return all
}
