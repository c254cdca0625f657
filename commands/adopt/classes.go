package adopt

import (
	"crypto/sha1"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// A verdict is what the calls of a script are for.
type verdict struct {
	class idiom.Class
	hash  bool   // the lock that they are for is a Hash
	why   string // why the class is Unclear; empty: not known, or it may hold values
}

// A shape is how a script is called.
type shape struct {
	script     string // its SHA-1
	keys, args int    // how many
	first      bool   // the lock is the first argument that a pattern matches
	version    int    // of the upstream
	batch      bool   // it is called as one that renews several locks
	words      string // a hash of them; empty: it is the same with all
}

// classify says what a call of a script is for. A class is remembered for all calls of the same shape, words
// aside. That a call is unclear may lie in its words, a ttl that is no number, say: it is remembered for
// these words only.
func (a *Adoption) classify(call *idiom.Call, as shape, words []string) verdict {
	if v, known := a.classes.Get(as); known {
		return v
	}
	hash := sha1.New()
	for _, w := range words {
		fmt.Fprintf(hash, "%d:%s", len(w), w)
	}
	exact := as
	exact.words = string(hash.Sum(nil))
	if v, known := a.classes.Get(exact); known {
		return v
	}
	rows, class := call.Accept(time.Now())
	v := verdict{class: class, hash: rows.OnHash()}
	if class != idiom.Unclear {
		a.classes.Add(as, v)
		return v
	}
	v.why = rows.Why()
	a.classes.Add(exact, v)
	return v
}
