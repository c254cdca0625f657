package peers

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lockproxy/lockproxy/backends/glob"
)

// none is the index for keys for which a proxy has no pattern: they are off.
const none = -1

// A Clash says that two proxies have keys in modes that do not go together.
type Clash struct {
	Ours, Theirs int    // indices of the patterns that count for the keys; -1: there is none
	DB           int    // one of the databases; -1: none that a pattern names
	Key          string // one of the keys; of Unknown, none
	Unknown      bool   // it could not be found out: the patterns are too many, and differ
}

// mostSteps bounds a comparison: some 20 ms of work. A thousand patterns that begin with a literal need less.
const mostSteps = 500_000

// Compare finds the clashes between the patterns of two proxies: every pair of patterns, or of a pattern and none,
// with one key for which these two count. It looks at all keys there can be, so that patterns may be written
// differently, overlap, or stand in another order.
func Compare(ours, theirs []Pattern) (clashes []Clash) {
	same := func(a, b Pattern) bool { return a.Glob == b.Glob && a.DB == b.DB && a.Mode == b.Mode }
	if slices.EqualFunc(ours, theirs, same) {
		return nil
	}
	for _, db := range databases(ours, theirs) {
		for _, c := range compareIn(db, ours, theirs) {
			if !slices.ContainsFunc(clashes, func(k Clash) bool { return k.Ours == c.Ours && k.Theirs == c.Theirs }) {
				clashes = append(clashes, c)
			}
		}
	}
	return clashes
}

// databases are those that a pattern names, and -1 for the rest.
func databases(ours, theirs []Pattern) []int {
	all := []int{-1}
	for _, p := range slices.Concat(ours, theirs) {
		all = append(all, p.DB)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// compareIn follows all keys of a database, byte by byte, through all globs at once.
func compareIn(db int, ours, theirs []Pattern) (clashes []Clash) {
	var globs []glob.Glob
	var texts []string
	index := func(all []Pattern) (of []int) {
		for _, p := range all {
			if p.DB != -1 && p.DB != db {
				of = append(of, none)
				continue
			}
			i := slices.Index(texts, p.Glob)
			if i < 0 {
				i = len(texts)
				g, _, _ := glob.Parse(p.Glob) // --adopt has refused one that is an error, and Redis would read it
				texts, globs = append(texts, p.Glob), append(globs, g)
			}
			of = append(of, i)
		}
		return of
	}
	inOurs, inTheirs := index(ours), index(theirs)
	type state struct {
		spots []spot
		key   string
	}
	start := state{}
	for i := range globs {
		start.spots = enter(start.spots, globs, spot{uint16(i), 0})
	}
	letters, seen, steps := alphabet(globs), map[string]bool{}, 0
	for queue := []state{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		matched := make([]bool, len(globs))
		for _, s := range at.spots {
			if int(s.at) == len(globs[s.glob]) {
				matched[s.glob] = true
			}
		}
		c := Clash{Ours: first(inOurs, matched), Theirs: first(inTheirs, matched), DB: db, Key: at.key}
		if !Neighbours(modeOf(ours, c.Ours), modeOf(theirs, c.Theirs)) &&
			!slices.ContainsFunc(clashes, func(k Clash) bool { return k.Ours == c.Ours && k.Theirs == c.Theirs }) {
			clashes = append(clashes, c)
		}
		if steps += len(at.spots) * len(letters); steps > mostSteps {
			return unknown(db, ours, theirs)
		}
		for _, b := range letters {
			next := step(at.spots, globs, b)
			if id := identify(next); len(next) > 0 && !seen[id] {
				seen[id] = true
				queue = append(queue, state{next, at.key + string([]byte{b})})
			}
		}
	}
	return clashes
}

// first is the first pattern whose glob matches.
func first(globOf []int, matched []bool) int {
	return slices.IndexFunc(globOf, func(g int) bool { return g != none && matched[g] })
}

func modeOf(all []Pattern, i int) string {
	if i == none {
		return Off
	}
	return all[i].Mode
}

func identify(spots []spot) string {
	var id []byte
	for _, s := range spots {
		id = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(id, s.glob), s.at)
	}
	return string(id)
}

// unknown returns clashes for all keys that are locks at either proxy.
func unknown(db int, ours, theirs []Pattern) (clashes []Clash) {
	for i, p := range ours {
		if Adopts(p.Mode) {
			clashes = append(clashes, Clash{Ours: i, Theirs: none, DB: db, Unknown: true})
		}
	}
	for i, p := range theirs {
		if Adopts(p.Mode) {
			clashes = append(clashes, Clash{Ours: none, Theirs: i, DB: db, Unknown: true})
		}
	}
	return clashes
}

// has is what a proxy has for the keys of a clash.
func has(all []Pattern, i int) string {
	if i == none {
		return "no pattern for it, so it is off"
	}
	return fmt.Sprintf("%q", all[i].String())
}

// text describes a clash, from the side of ours.
func (c Clash) text(ours, theirs []Pattern) string {
	if c.Unknown {
		return "its patterns differ from those here, and are too many to be compared"
	}
	in := ""
	if c.DB >= 0 {
		in = fmt.Sprintf(" in database %d", c.DB)
	}
	return fmt.Sprintf("for a key like %q%s it has %s; here there is %s", c.Key, in, has(theirs, c.Theirs), has(ours, c.Ours))
}

// Differences are the words in which the same pattern, adopted by both, differs.
func Differences(ours, theirs []Pattern) (texts []string) {
	for _, p := range ours {
		for _, q := range theirs {
			if p.Glob != q.Glob || p.DB != q.DB || !Adopts(p.Mode) || !Adopts(q.Mode) {
				continue
			}
			for _, w := range []struct{ name, ours, theirs string }{
				{"as", p.As, q.As}, {"no-expiry", p.NoExpiry, q.NoExpiry}, {"flush", cmp.Or(p.Flush, "keep"), cmp.Or(q.Flush, "keep")}, {"guard", yesNo(p.Guard), yesNo(q.Guard)},
				{"timestamps", cmp.Or(p.Timestamps, "off"), cmp.Or(q.Timestamps, "off")}, {"fence-key", p.FenceKey, q.FenceKey},
			} {
				if w.ours != w.theirs {
					texts = append(texts, fmt.Sprintf("%q has %s=%s there and %s=%s here", p.Glob, w.name, w.theirs, w.name, w.ours))
				}
			}
		}
	}
	return texts
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
