package peers

import (
	"slices"
	"strings"
)

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
			end := strings.IndexByte(glob[i:], ']')
			if end < 0 {
				t.add(c)
				break
			}
			t.addClass(glob[i+1 : i+end])
			i += end
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

// addClass adds the bytes of what stands between [ and ].
func (t *token) addClass(class string) {
	not := strings.HasPrefix(class, "^")
	class = strings.TrimPrefix(class, "^")
	for i := 0; i < len(class); i++ {
		if class[i] == '\\' && i+1 < len(class) {
			i++
			t.add(class[i])
			continue
		}
		if i+2 < len(class) && class[i+1] == '-' {
			for b := int(min(class[i], class[i+2])); b <= int(max(class[i], class[i+2])); b++ {
				t.add(byte(b))
			}
			i += 2
			continue
		}
		t.add(class[i])
	}
	if not {
		for i := range t.set {
			t.set[i] = ^t.set[i]
		}
	}
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
