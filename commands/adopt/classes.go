package adopt

import (
	"crypto/sha1"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// A verdict is the class of a script's calls.
type verdict struct {
	class idiom.Class
	hash  bool   // their lock is a Hash
	why   string // why the class is Unclear; empty: not known, or it may hold values
}

// A shape identifies calls of a script that are classified alike.
type shape struct {
	script     string // its SHA-1
	keys, args int    // how many
	first      bool   // the lock is the first argument that a pattern matches
	version    int    // of the upstream
	batch      bool   // it is called as one that renews several locks
	words      string // hash of the arguments; empty: the class does not depend on them
}

// classify returns the class of a call of a script. It is remembered for all calls of the same shape, whatever their
// arguments, if it changes a lock in a way that the pattern allows. Any other class is remembered for these arguments alone: one
// of them may choose what the script does, or be the cause that it cannot be run, such as a ttl that is no number.
func (a *Adoption) classify(call *idiom.Call, p *pattern.Pattern, as shape, words []string) verdict {
	forAll := func(c idiom.Class) bool { return c != idiom.ReadOnly && p.As.Allows(c) }
	if v, known := a.classes.Get(as); known && forAll(v.class) {
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
	if forAll(class) {
		a.classes.Add(as, v)
		return v
	}
	if class == idiom.Unclear {
		v.why = rows.Why()
	}
	a.classes.Add(exact, v)
	return v
}
