package adopt

import (
	"bytes"
	"slices"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// Concerns reports whether a command may touch adopted keys: by an argument, by the text of a script, or by emptying a
// database. It does not allocate.
func (a *Adoption) Concerns(args [][]byte) bool {
	if a.mayFlush(args) {
		return true
	}
	for _, arg := range args[1:] {
		if a.prefixes.May(arg) {
			return true
		}
	}
	return bringsText(args) && slices.ContainsFunc(a.patterns, func(p *pattern.Pattern) bool {
		return p.Literal() != "" && bytes.Contains(args[1], []byte(p.Literal()))
	})
}

// Keys are the arguments of a command that are keys.
type Keys struct {
	At    []int // indices of arguments
	Known bool  // false while nobody has said yet, or if only the upstream knows
}

// Adopts reports whether a command is on the key of a lock, or may be: one that runs a script, or whose keys are not
// known, may have it in any argument.
func (a *Adoption) Adopts(db int, args [][]byte, keys Keys) bool {
	_, p := a.lock(db, args, keys)
	return p != nil
}

// lock returns the first argument that is, or may be, the key of a lock, and its pattern; nil: there is none.
func (a *Adoption) lock(db int, args [][]byte, keys Keys) (string, *pattern.Pattern) {
	if p := a.flushing(db, args); p != nil {
		return p.Glob, p
	}
	if toAnotherDatabase(args) {
		db = pattern.AnyDatabase
	}
	if !keys.Known || runsScript(args[0]) {
		for _, arg := range args[1:] {
			if !a.prefixes.May(arg) {
				continue
			}
			key := string(arg)
			if p := a.patternOf(db, key); p != nil {
				return key, p
			}
		}
		if p := a.inText(db, args); p != nil {
			return p.Glob, p
		}
		return "", nil
	}
	for _, at := range keys.At {
		if !a.prefixes.May(args[at]) {
			continue
		}
		key := string(args[at])
		if p := a.patternOf(db, key); p != nil {
			return key, p
		}
	}
	return "", nil
}

// toAnotherDatabase reports whether a command may put a key into another database than its client's.
func toAnotherDatabase(args [][]byte) bool {
	return resp.Is(args[0], "MOVE") || len(args) > 3 && resp.Is(args[0], "COPY") &&
		slices.ContainsFunc(args[3:], func(a []byte) bool { return resp.Is(a, "DB") })
}

// bringsText reports whether a command contains the text of a script.
func bringsText(args [][]byte) bool {
	return len(args) > 2 && (resp.Is(args[0], "EVAL") || resp.Is(args[0], "EVAL_RO"))
}

// inText returns the pattern whose literal prefix begins a string in the text of a script; nil: there is none. Scripts that
// are called by EVALSHA are not searched.
func (a *Adoption) inText(db int, args [][]byte) *pattern.Pattern {
	if !bringsText(args) {
		return nil
	}
	for _, p := range a.patterns {
		if p.Mode.Adopts() && (p.DB < 0 || p.DB == db) && p.Literal() != "" && bytes.Contains(args[1], []byte(p.Literal())) &&
			a.scripts.Know(string(args[1])).Begins(p.Literal()) {
			return p
		}
	}
	return nil
}

// runsScript reports whether a command runs a script or a function, whose keys may be any of its arguments.
func runsScript(name []byte) bool {
	return IsScript(name) || resp.Is(name, "FCALL") || resp.Is(name, "FCALL_RO")
}

// IsScript reports whether a command runs a script. Which of its arguments are keys need not be known.
func IsScript(name []byte) bool {
	return resp.Is(name, "EVAL") || resp.Is(name, "EVALSHA") || resp.Is(name, "EVAL_RO") || resp.Is(name, "EVALSHA_RO")
}

// patternOf returns the pattern of a key that is a lock or the fence key of one; nil: it is neither.
func (a *Adoption) patternOf(db int, key string) *pattern.Pattern {
	if a.fenced {
		if _, p := a.fenceOf(db, key); p != nil {
			return p
		}
	}
	return a.pattern(db, key)
}

// pattern returns the first pattern that matches a key; nil: the key is no lock.
func (a *Adoption) pattern(db int, key string) *pattern.Pattern {
	if a.fenced { // the key of a fence may match as well
		if _, p := a.fenceOf(db, key); p != nil {
			return nil
		}
	}
	for _, p := range a.patterns {
		if p.Matches(db, key) {
			if !p.Mode.Adopts() {
				return nil
			}
			return p
		}
	}
	return nil
}
