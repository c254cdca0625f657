// Package glob has the patterns of KEYS as data, so that they can be compared as well as matched.
package glob

import "errors"

// A Glob is a pattern of KEYS: what each byte of a key may be, and where any number of bytes may stand. It does not
// change.
type Glob []Part

// A Part is one byte of a Set, or any number of any bytes.
type Part struct {
	Star bool
	Set  Set
}

// A Set is a set of bytes, with a bit for each.
type Set [4]uint64

// Add adds the bytes from one to another, both included.
func (s *Set) Add(from, to byte) {
	for c := int(from); c <= int(to); c++ {
		s[c/64] |= 1 << (c % 64)
	}
}

// Has reports whether a byte is in the set.
func (s *Set) Has(c byte) bool { return s[c/64]&(1<<(c%64)) != 0 }

// within reports whether all of s is in t.
func (s *Set) within(t *Set) bool {
	for i := range s {
		if s[i]&^t[i] != 0 {
			return false
		}
	}
	return true
}

func (s *Set) meets(t *Set) bool {
	for i := range s {
		if s[i]&t[i] != 0 {
			return true
		}
	}
	return false
}

// errOpen is that of a class without an end.
var errOpen = errors.New("a [ without ]")

// Parse parses a pattern as Redis reads it. Every key that it matches begins with literal. A [ without ] is an error;
// the Glob is as Redis reads that, too: the class has all the rest.
func Parse(text string) (g Glob, literal string, err error) {
	plain := true
	for i := 0; i < len(text); i++ {
		var part Part
		switch c := text[i]; c {
		case '*':
			if part.Star, plain = true, false; len(g) > 0 && g[len(g)-1].Star {
				continue
			}
		case '?':
			part.Set.Add(0, 255)
			plain = false
		case '[':
			part.Set, i = parseClass(text, i+1)
			if plain = false; i >= len(text) {
				err = errOpen
			}
		default:
			if c == '\\' && i+1 < len(text) {
				i++
				c = text[i]
			}
			part.Set.Add(c, c)
			if plain {
				literal += string([]byte{c})
			}
		}
		g = append(g, part)
	}
	return g, literal, err
}

// Begins is the Glob of all keys that begin with prefix.
func Begins(prefix string) Glob {
	g := make(Glob, 0, len(prefix)+1)
	for i := range len(prefix) {
		var part Part
		part.Set.Add(prefix[i], prefix[i])
		g = append(g, part)
	}
	return append(g, Part{Star: true})
}

// parseClass parses what stands behind a [, and returns the index of the ]; that of the end if there is none.
func parseClass(text string, at int) (set Set, end int) {
	not := at < len(text) && text[at] == '^'
	if not {
		at++
	}
	for ; at < len(text) && text[at] != ']'; at++ {
		from := text[at]
		switch {
		case from == '\\' && at+1 < len(text):
			at++
			set.Add(text[at], text[at])
		case at+2 < len(text) && text[at+1] == '-' && text[at+2] != ']':
			set.Add(min(from, text[at+2]), max(from, text[at+2]))
			at += 2
		default:
			set.Add(from, from)
		}
	}
	if not {
		for i := range set {
			set[i] = ^set[i]
		}
	}
	return set, at
}

// Matches reports whether a key matches. It does not allocate.
func (g Glob) Matches(key string) bool {
	at, star, tried := 0, -1, 0
	for i := 0; i < len(key); {
		switch {
		case at < len(g) && g[at].Star:
			if star, tried = at, i; at+1 == len(g) {
				return true
			}
			at++
		case at < len(g) && g[at].Set.Has(key[i]):
			at++
			i++
		case star >= 0:
			tried++
			at, i = star+1, tried
		default:
			return false
		}
	}
	for at < len(g) && g[at].Star {
		at++
	}
	return at == len(g)
}

// Covers reports whether every key that matches h matches g. It may miss that where a star stands beside a ?.
func (g Glob) Covers(h Glob) bool {
	return g.compare(h, func(rest func(i, j int) bool, i, j int) bool {
		switch {
		case i == len(g):
			return j == len(h)
		case g[i].Star:
			return rest(i+1, j) || j < len(h) && rest(i, j+1)
		case j == len(h) || h[j].Star:
			return false
		}
		return h[j].Set.within(&g[i].Set) && rest(i+1, j+1)
	})
}

// Overlaps reports whether some key matches both.
func (g Glob) Overlaps(h Glob) bool {
	return g.compare(h, func(rest func(i, j int) bool, i, j int) bool {
		switch {
		case i == len(g) && j == len(h):
			return true
		case i < len(g) && g[i].Star:
			return rest(i+1, j) || j < len(h) && rest(i, j+1)
		case j < len(h) && h[j].Star:
			return rest(i, j+1) || i < len(g) && rest(i+1, j)
		case i == len(g) || j == len(h):
			return false
		}
		return h[j].Set.meets(&g[i].Set) && rest(i+1, j+1)
	})
}

// compare answers a question about what is left of two globs by its answers for shorter rests, each asked once.
func (g Glob) compare(h Glob, ask func(rest func(i, j int) bool, i, j int) bool) bool {
	known := map[[2]int]bool{}
	var rest func(i, j int) bool
	rest = func(i, j int) bool {
		at := [2]int{i, j}
		if answer, found := known[at]; found {
			return answer
		}
		answer := ask(rest, i, j)
		known[at] = answer
		return answer
	}
	return rest(0, 0)
}
