package adopt

import (
	"strings"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// newScriptCall makes a call of a script; nil: it concerns no lock, or is malformed.
func (a *Adoption) newScriptCall(c Connection, name string, words []string) (*Call, error) {
	n, isInt := 0, false
	if len(words) > 2 {
		n, isInt = parseCount(words[2])
	}
	if !isInt || n > len(words)-3 {
		return nil, nil // the upstream says what is wrong with it
	}
	var first *pattern.Pattern
	var lock string
	for _, w := range words[3:] {
		if p := a.patternOf(c.Database(), w); p != nil {
			first, lock = p, w
			break
		}
	}
	if first == nil {
		if first = a.inText(c.Database(), [][]byte{[]byte(name), []byte(words[1]), nil}); first == nil {
			return nil, nil
		}
		lock = first.Glob
	}
	var s *idiom.Script
	if strings.HasPrefix(name, "EVALSHA") {
		if s = a.scripts.Find(words[1]); s == nil {
			return nil, errNoScript
		}
	} else {
		s = a.scripts.Know(words[1])
	}
	if a.knownBatch(s, n, len(words)-3-n) {
		if call, err := a.newBatchCall(c, s, words, n); call != nil || err != nil {
			return call, err
		}
	}
	call, err := a.newOneLockCall(c, s, words, n, first, lock)
	if err != nil && n > 1 {
		if call, err := a.newBatchCall(c, s, words, n); call != nil || err != nil {
			return call, err
		}
		if call := a.newRenewalsCall(c, s, words, n); call != nil {
			return call, nil
		}
	}
	return call, err
}

// newOneLockCall makes a call of a script that uses one lock; nil: it uses none. lock is the first argument that may be its
// key, and first the pattern of that.
func (a *Adoption) newOneLockCall(c Connection, s *idiom.Script, words []string, n int, first *pattern.Pattern, lock string) (*Call, error) {
	name, keys, args := strings.ToUpper(words[0]), words[3:3+n], words[3+n:]
	adopted := func(key string) bool { return a.pattern(c.Database(), key) != nil }
	call, err := s.CallFenced(keys, args, c.Protocol(), strings.HasSuffix(name, "_RO"), adopted, a.fences(c.Database()))
	if err != nil {
		return nil, &RefusedError{Command: name, Key: lock, Why: err.Error(), Pattern: first.Glob, Reason: NotForLocks, Script: s.SHA, private: raised(err)}
	}
	if call == nil {
		return nil, nil
	}
	dialect := a.opt.Dialect()
	call.Speak(dialect)
	call.In(c.Database())
	p := a.pattern(c.Database(), call.Key())
	v := a.classify(call, p, shape{script: s.SHA, keys: n, args: len(args), first: call.Key() == lock, version: dialect.Version}, words[3:])
	made := &Call{Call: call, pattern: p, command: name, class: v.class, onHash: v.hash, script: s.SHA, follows: s.Follows(), words: words}
	if v.class == idiom.ReadOnly {
		call.ReadsOnly()
	}
	if v.why != "" {
		return nil, made.refused(NotClear, v.why)
	}
	return made, nil
}

// parseCount parses a number of keys; false: it is none.
func parseCount(s string) (int, bool) {
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' || n > 1<<20 {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, s != ""
}
