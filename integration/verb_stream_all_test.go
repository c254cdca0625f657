package integration

import (
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// someNames are two or three of the client's.
func (l *locker) someNames() []string {
	names := []string{l.name()}
	for range 1 + l.IntN(3) {
		if n := l.name(); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// several is a verb of several names.
func several(verb string, names []string, rest ...string) []string {
	return slices.Concat([]string{verb, strconv.Itoa(len(names))}, names, rest)
}

// lockAll is a LOCKALL that is granted or refused at once.
func (l *locker) lockAll() {
	names := l.someNames()
	if l.IntN(6) == 0 && l.db == 0 {
		names = append(names, rivalName)
	}
	owner, options := l.lockOptions()
	args := several("LOCKALL", names, slices.Concat([]string{"40s"}, options)...)
	if !l.verb(args...) {
		return
	}
	var states []*lockState
	free := true
	for _, name := range names {
		s := l.at(name)
		states, free = append(states, s), free && name != rivalName && (s.owner == "" || s.owner == owner)
	}
	l.strung = l.strung || slices.Contains(args, "20ms")
	switch {
	case free:
		var each []func(redistest.Value) bool
		for _, s := range states {
			each = append(each, l.granted(s, owner))
		}
		fits := func(v redistest.Value) bool { return grantsAll(v, names, each) }
		l.expect(fits, args...)
		if slices.Contains(args, "REQ") && l.IntN(2) == 0 { // sent again, it is done once
			l.expect(fits, args...)
		}
	case slices.Contains(args, "RETRYAFTER"):
		l.expect(func(v redistest.Value) bool {
			return v.Kind == '*' && len(v.Elems) == 5 && v.Elems[0].Raw == ":0\r\n" && v.Elems[2].Int() > 10_000 && slices.Contains(names, v.Elems[4].Text)
		}, args...)
	default:
		l.expect(l.null(), args...)
	}
}

// grantsAll reports whether the reply to a LOCKALL grants each name as the reply to its LOCK would.
func grantsAll(v redistest.Value, names []string, each []func(redistest.Value) bool) bool {
	if v.Kind != '*' || len(v.Elems) != 2+len(names) {
		return false
	}
	for i, name := range names {
		g := v.Elems[2+i]
		if g.Kind != '*' || len(g.Elems) != 3 || g.Elems[0].Text != name {
			return false
		}
		if !each[i](redistest.Value{Kind: '*', Elems: []redistest.Value{g.Elems[1], v.Elems[1], v.Elems[0], g.Elems[2]}}) {
			return false
		}
	}
	return true
}

// releaseAll is an UNLOCKALL or a RENEWALL of names that one owner has, or of some of them.
func (l *locker) releaseAll() {
	names := l.someNames()
	owner, all := l.at(names[0]).owner, true
	for _, name := range names {
		all = all && l.at(name).owner != "" && (l.at(name).owner == owner || l.at(name).mine && l.at(names[0]).mine)
	}
	unlocks := l.IntN(2) == 0
	rest := []string{}
	if !unlocks {
		rest = append(rest, "39s")
	}
	switch mine := l.at(names[0]).mine; {
	case mine && !all, owner == "?":
		return // it may be that they are looked up among what was given back before
	case owner == "":
		rest = append(rest, "nobody")
	case !mine:
		rest = append(rest, owner)
	}
	verb := "RENEWALL"
	if unlocks {
		verb = "UNLOCKALL"
	}
	args := several(verb, names, rest...)
	if !l.verb(args...) {
		return
	}
	free := true
	for _, name := range names {
		s := l.at(name)
		if !unlocks || owner == "" || s.owner != owner {
			continue
		}
		if s.holds--; s.holds == 0 {
			s.owner, s.mine = "", false
		} else {
			free = false
		}
	}
	switch {
	case all && unlocks && free:
		l.expect(exactly(":1\r\n"), args...)
	case all && unlocks:
		l.expect(exactly(":0\r\n"), args...)
	case all:
		l.expect(func(v redistest.Value) bool { return v.Kind == ':' && v.Int() > 20_000 && v.Int() <= 39_000 }, args...)
	default: // an UNLOCK of what was the last to be released is repeated
		l.expect(func(v redistest.Value) bool {
			return unlocks && v.Kind == ':' || refusal("NOTOWNER ")(v) || refusal("LOCKLOST ")(v)
		}, args...)
	}
}

// lockOptions are the options of a LOCK behind its ttl, and the owner.
func (l *locker) lockOptions() (owner string, args []string) {
	owner = []string{"", "", "one", "two"}[l.IntN(4)]
	var options [][]string
	if owner != "" {
		options = append(options, []string{"OWNER", owner})
		if l.IntN(3) == 0 {
			options = append(options, []string{"REQ", strconv.FormatUint(l.Uint64(), 36)})
		}
	}
	if l.IntN(3) == 0 {
		options = append(options, []string{"INFO", "by\r\nme"})
	}
	if l.IntN(4) == 0 {
		options = append(options, []string{"SESSION"}, []string{"MAXHOLD", "1m"})
	}
	if l.IntN(3) == 0 {
		options = append(options, []string{"WAIT", l.either("0", "20ms")})
	}
	if l.IntN(4) == 0 {
		options = append(options, []string{"RETRYAFTER"})
	}
	l.Shuffle(len(options), func(i, j int) { options[i], options[j] = options[j], options[i] })
	return owner, slices.Concat(options...)
}
