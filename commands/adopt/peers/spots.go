package peers

import (
	"slices"

	"github.com/lockproxy/lockproxy/backends/glob"
)

// alphabet is one byte for each group of bytes that no glob tells apart, letters first.
func alphabet(globs []glob.Glob) (letters []byte) {
	var sets []glob.Set
	for _, g := range globs {
		for _, t := range g {
			if !t.Star && !slices.Contains(sets, t.Set) {
				sets = append(sets, t.Set)
			}
		}
	}
	seen := map[string]bool{}
	group := make([]byte, len(sets))
	for i := range 256 {
		b := byte(i) + 'a' // wraps: letters come first
		for j := range sets {
			group[j] = 0
			if sets[j].Has(b) {
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

// A spot is where in a glob a match of the beginning of a key may stand: the glob's index, and the part that is next.
type spot struct{ glob, at uint16 }

// enter adds a spot, and those behind stars that match nothing.
func enter(spots []spot, globs []glob.Glob, s spot) []spot {
	for {
		if !slices.Contains(spots, s) {
			spots = append(spots, s)
		}
		if int(s.at) == len(globs[s.glob]) || !globs[s.glob][s.at].Star {
			return spots
		}
		s.at++
	}
}

// step is where the matches stand after one more byte, in order.
func step(spots []spot, globs []glob.Glob, b byte) (next []spot) {
	for _, s := range spots {
		if int(s.at) == len(globs[s.glob]) {
			continue
		}
		switch t := &globs[s.glob][s.at]; {
		case t.Star:
			next = enter(next, globs, s)
		case t.Set.Has(b):
			next = enter(next, globs, spot{s.glob, s.at + 1})
		}
	}
	slices.SortFunc(next, func(a, b spot) int { return (int(a.glob)-int(b.glob))<<16 + int(a.at) - int(b.at) })
	return next
}
