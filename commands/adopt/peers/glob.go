package peers

import "slices"

// A token is one element of a glob: any number of any bytes, or one byte out of a set.
type token struct {
	star bool
	set  [4]uint64 // a bit for each byte
}

func (t *token) add(b byte)      { t.set[b>>6] |= 1 << (b & 63) }
func (t *token) has(b byte) bool { return t.set[b>>6]&(1<<(b&63)) != 0 }

// parseGlob reads a pattern of KEYS, as --adopt does. A [ without ] stands for itself; --adopt has refused it.
func parseGlob(glob string) (tokens []token) {
	for i := 0; i < len(glob); i++ {
		var t token
		switch c := glob[i]; c {
		case '*':
			t.star = true
		case '?':
			t.set = [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
		case '[':
			if end := t.addClass(glob, i+1); end > 0 {
				i = end
			} else {
				t.add(c)
			}
		case '\\':
			if i+1 < len(glob) {
				i++
			}
			t.add(glob[i])
		default:
			t.add(c)
		}
		if t.star && len(tokens) > 0 && tokens[len(tokens)-1].star {
			continue
		}
		tokens = append(tokens, t)
	}
	return tokens
}

// addClass adds the bytes of what stands behind a [, and returns the index of the ]. Where there is none it adds nothing and
// returns 0.
func (t *token) addClass(glob string, at int) (end int) {
	var set token
	not := at < len(glob) && glob[at] == '^'
	if not {
		at++
	}
	for ; at < len(glob) && glob[at] != ']'; at++ {
		from, to := glob[at], glob[at]
		switch {
		case from == '\\' && at+1 < len(glob):
			at++
			from, to = glob[at], glob[at]
		case at+2 < len(glob) && glob[at+1] == '-' && glob[at+2] != ']':
			from, to = min(from, glob[at+2]), max(from, glob[at+2])
			at += 2
		}
		for b := int(from); b <= int(to); b++ {
			set.add(byte(b))
		}
	}
	if at >= len(glob) {
		return 0
	}
	for i := range set.set {
		if not {
			set.set[i] = ^set.set[i]
		}
		t.set[i] |= set.set[i]
	}
	return at
}

// alphabet is one byte for each group of bytes that no glob tells apart, letters first.
func alphabet(globs [][]token) (letters []byte) {
	var sets [][4]uint64
	for _, g := range globs {
		for _, t := range g {
			if !t.star && !slices.Contains(sets, t.set) {
				sets = append(sets, t.set)
			}
		}
	}
	seen := map[string]bool{}
	group := make([]byte, len(sets))
	for i := range 256 {
		b := byte(i) + 'a' // wraps: letters come first
		for j := range sets {
			t := token{set: sets[j]}
			group[j] = 0
			if t.has(b) {
				group[j] = 1
			}
		}
		if !seen[string(group)] {
			seen[string(group)] = true
			letters = append(letters, b)
		}
	}
	return letters
}

// A spot is where in a glob a match of the beginning of a key may stand: the glob's index, and the token that is next.
type spot struct{ glob, at uint16 }

// enter adds a spot, and those behind stars that match nothing.
func enter(spots []spot, globs [][]token, s spot) []spot {
	for {
		if !slices.Contains(spots, s) {
			spots = append(spots, s)
		}
		if int(s.at) == len(globs[s.glob]) || !globs[s.glob][s.at].star {
			return spots
		}
		s.at++
	}
}

// step is where the matches stand after one more byte, in order.
func step(spots []spot, globs [][]token, b byte) (next []spot) {
	for _, s := range spots {
		if int(s.at) == len(globs[s.glob]) {
			continue
		}
		switch t := &globs[s.glob][s.at]; {
		case t.star:
			next = enter(next, globs, s)
		case t.has(b):
			next = enter(next, globs, spot{s.glob, s.at + 1})
		}
	}
	slices.SortFunc(next, func(a, b spot) int { return (int(a.glob)-int(b.glob))<<16 + int(a.at) - int(b.at) })
	return next
}
