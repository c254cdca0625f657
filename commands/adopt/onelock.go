package adopt

import (
	"strings"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// oneLock makes a call of a script that uses one lock; nil: it uses none. lock is the first argument that may be its key,
// and first the pattern of that.
func (a *Adoption) oneLock(c Connection, s *idiom.Script, words []string, n int, first *Pattern, lock string) (*Call, error) {
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
	v := a.classify(call, shape{script: s.SHA, keys: n, args: len(args), first: call.Key() == lock, version: dialect.Version}, words[3:])
	made := &Call{Call: call, pattern: a.pattern(c.Database(), call.Key()), command: name, class: v.class, onHash: v.hash, script: s.SHA, follows: s.Follows(), words: words}
	if v.why != "" {
		return nil, made.refused(NotClear, v.why)
	}
	return made, nil
}

func count(s string) (int, bool) {
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' || n > 1<<20 {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, s != ""
}
