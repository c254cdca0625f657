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

// classify says what a call of a script is for. A class is remembered for all calls of the same shape, words
// aside. That a call is unclear may lie in its words, a ttl that is no number, say: it is remembered for
// these words only.
func (a *Adoption) classify(call *idiom.Call, shape string, words []string) verdict {
	if v, known := a.classes.Get(shape); known {
		return v
	}
	hash := sha1.New()
	for _, w := range words {
		fmt.Fprintf(hash, "%d:%s", len(w), w)
	}
	exact := shape + string(hash.Sum(nil))
	if v, known := a.classes.Get(exact); known {
		return v
	}
	rows, class := call.Accept(time.Now())
	v := verdict{class: class, hash: rows.OnHash()}
	if class != idiom.Unclear {
		a.classes.Add(shape, v)
		return v
	}
	v.why = rows.Why()
	a.classes.Add(exact, v)
	return v
}
