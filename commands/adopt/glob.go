package adopt

import "errors"

// A glob is a pattern of KEYS: what each byte of a key may be, and where any number of bytes may stand.
type glob []globPart

// A globPart is one byte of a set, or any number of any bytes.
type globPart struct {
	star bool
	set  byteSet
}

// A byteSet has a bit for each byte.
type byteSet [4]uint64

func (s *byteSet) add(from, to byte) {
	for c := int(from); c <= int(to); c++ {
		s[c/64] |= 1 << (c % 64)
	}
}

func (s *byteSet) has(c byte) bool { return s[c/64]&(1<<(c%64)) != 0 }

// within reports whether all of s is in t.
func (s *byteSet) within(t *byteSet) bool {
	for i := range s {
		if s[i]&^t[i] != 0 {
			return false
		}
	}
	return true
}

func (s *byteSet) meets(t *byteSet) bool {
	for i := range s {
		if s[i]&t[i] != 0 {
			return true
		}
	}
	return false
}

// parseGlob parses a pattern as Redis reads it. Every key that it matches begins with literal.
func parseGlob(text string) (g glob, literal string, err error) {
	plain := true
	for i := 0; i < len(text); i++ {
		var part globPart
		switch c := text[i]; c {
		case '*':
			part.star, plain = true, false
		case '?':
			part.set.add(0, 255)
			plain = false
		case '[':
			end := 0
			if part.set, end = parseClass(text, i+1); end == 0 {
				return nil, "", errors.New("a [ without ]")
			}
			i, plain = end, false
		default:
			if c == '\\' && i+1 < len(text) {
				i++
				c = text[i]
			}
			part.set.add(c, c)
			if plain {
				literal += string([]byte{c})
			}
		}
		g = append(g, part)
	}
	return g, literal, nil
}

// parseClass parses what stands behind a [, and returns the index of the ]; 0: there is none.
func parseClass(text string, at int) (set byteSet, end int) {
	not := at < len(text) && text[at] == '^'
	if not {
		at++
	}
	for ; at < len(text) && text[at] != ']'; at++ {
		from := text[at]
		switch {
		case from == '\\' && at+1 < len(text):
			at++
			set.add(text[at], text[at])
		case at+2 < len(text) && text[at+1] == '-' && text[at+2] != ']':
			set.add(min(from, text[at+2]), max(from, text[at+2]))
			at += 2
		default:
			set.add(from, from)
		}
	}
	if at >= len(text) {
		return set, 0
	}
	if not {
		for i := range set {
			set[i] = ^set[i]
		}
	}
	return set, at
}

// matches reports whether a key matches. It does not allocate.
func (g glob) matches(key string) bool {
	at, star, tried := 0, -1, 0
	for i := 0; i < len(key); {
		switch {
		case at < len(g) && g[at].star:
			if star, tried = at, i; at+1 == len(g) {
				return true
			}
			at++
		case at < len(g) && g[at].set.has(key[i]):
			at++
			i++
		case star >= 0:
			tried++
			at, i = star+1, tried
		default:
			return false
		}
	}
	for at < len(g) && g[at].star {
		at++
	}
	return at == len(g)
}

// covers reports whether every key that matches h matches g. It may miss that where a star stands beside a ?.
func (g glob) covers(h glob) bool {
	return g.compare(h, func(rest func(i, j int) bool, i, j int) bool {
		switch {
		case i == len(g):
			return j == len(h)
		case g[i].star:
			return rest(i+1, j) || j < len(h) && rest(i, j+1)
		case j == len(h) || h[j].star:
			return false
		}
		return h[j].set.within(&g[i].set) && rest(i+1, j+1)
	})
}

// overlaps reports whether some key matches both.
func (g glob) overlaps(h glob) bool {
	return g.compare(h, func(rest func(i, j int) bool, i, j int) bool {
		switch {
		case i == len(g) && j == len(h):
			return true
		case i < len(g) && g[i].star:
			return rest(i+1, j) || j < len(h) && rest(i, j+1)
		case j < len(h) && h[j].star:
			return rest(i, j+1) || i < len(g) && rest(i+1, j)
		case i == len(g) || j == len(h):
			return false
		}
		return h[j].set.meets(&g[i].set) && rest(i+1, j+1)
	})
}

// compare answers a question about what is left of two globs by its answers for shorter rests, each asked once.
func (g glob) compare(h glob, ask func(rest func(i, j int) bool, i, j int) bool) bool {
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
