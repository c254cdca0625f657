package spec

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// Keys appends to dst the positions in args of the command's keys, in the order of
// COMMAND GETKEYS; none if args are too many, too few or malformed. It does not allocate
// if dst has room. It reports false if only the upstream knows the keys, as for some
// commands of modules.
func (c *Command) Keys(args [][]byte, dst []int) (keys []int, ok bool) {
	if !c.Takes(len(args)) {
		return dst, true
	}
	if c.specsFirst {
		if keys, ok := c.specKeys(args, dst, false); ok {
			return keys, true
		}
	}
	if c.keyFinder != nil {
		return c.keyFinder(args, dst), true
	}
	if c.Flags&MovableKeys != 0 {
		return dst, false
	}
	keys, _ = c.specKeys(args, dst, false) // what a later Redis's own function would say: that it has one is not told
	return keys, true
}

// Routing is Keys including arguments that decide the slot without being keys, such as
// the channels of SSUBSCRIBE and SPUBLISH.
func (c *Command) Routing(args [][]byte, dst []int) (at []int, ok bool) {
	if c.notKeys && c.Takes(len(args)) {
		if at, ok := c.specKeys(args, dst, true); ok {
			return at, true
		}
	}
	return c.Keys(args, dst)
}

// specKeys finds keys by the specs; with notKeys also what has a slot without being a
// key. It reports false, and leaves dst alone, if a spec does not fit the arguments or
// is incomplete.
func (c *Command) specKeys(args [][]byte, dst []int, notKeys bool) ([]int, bool) {
	keys := dst
	for i := range c.specs {
		s := &c.specs[i]
		if s.notKey && !notKeys {
			continue
		}
		first, found := s.start(args)
		if !found {
			continue
		}
		first, last, ok := s.bounds(args, first)
		if !ok || s.incomplete {
			return dst, false
		}
		for at := first; at <= last; at += s.step {
			keys = append(keys, at)
		}
	}
	return keys, true
}

// start is the position where a spec's keys begin: 0, where no key can be, if the spec
// does not say. It reports false if its keyword is missing.
func (s *keySpec) start(args [][]byte) (at int, found bool) {
	switch s.begin {
	case beginIndex:
		return s.at, true
	case beginKeyword:
		return s.search(args)
	}
	return 0, true
}

// search looks for the keyword, forwards and not at the last argument, or backwards
// down to the second.
func (s *keySpec) search(args [][]byte) (at int, found bool) {
	from, to, step := s.at, len(args)-1, 1
	if s.at <= 0 {
		from, to = len(args)+s.at, 1
	}
	if from > to {
		step = -1
	}
	for i := from; i != to && 1 <= i && i < len(args); i += step {
		if equalFold(args[i], s.keyword) {
			return i + 1, true
		}
	}
	return 0, false
}

// bounds are the first and the last position of a spec's keys, which begin at at. It
// reports false if these are out of range.
func (s *keySpec) bounds(args [][]byte, at int) (first, last int, ok bool) {
	if at < 1 || s.step < 1 {
		return 0, 0, false
	}
	switch s.find {
	case findRange:
		first, last = at, at+s.last
		if s.last < 0 && s.limit <= 0 {
			last = len(args) + s.last
		} else if s.last < 0 {
			last = at + (len(args)-at)/s.limit + s.last
		}
	case findNum:
		if at+s.num < 1 || at+s.num >= len(args) {
			return 0, 0, false
		}
		n, isNum := number(args[at+s.num])
		if !isNum || n < 0 {
			return 0, 0, false
		}
		first = at + s.first
		last = first + int(int32(n)) - 1 // Redis keeps no more of it; the largest there is are -1 keys, so none
	}
	return first, last, 1 <= first && first <= last && last < len(args)
}

// A keyFinder appends the positions of keys to dst. The number of args has been checked.
type keyFinder func(args [][]byte, dst []int) []int

// keyFinders are Redis's own functions for commands whose specs do not always fit.
var keyFinders = map[string]keyFinder{
	"set": firstKey, "bitfield": firstKey, "sort_ro": firstKey,
	"sort": sortKeys, "migrate": migrateKeys, "xread": xreadKeys, "xreadgroup": xreadKeys,
	"eval": thirdCounts, "evalsha": thirdCounts, "eval_ro": thirdCounts, "evalsha_ro": thirdCounts,
	"fcall": thirdCounts, "fcall_ro": thirdCounts, "blmpop": thirdCounts, "bzmpop": thirdCounts,
	"lmpop": secondCounts, "zmpop": secondCounts, "sintercard": secondCounts, "zintercard": secondCounts,
	"zdiff": secondCounts, "zinter": secondCounts, "zunion": secondCounts,
	"zdiffstore": storeKeys, "zinterstore": storeKeys, "zunionstore": storeKeys,
}

func firstKey(_ [][]byte, dst []int) []int { return append(dst, 1) }

func secondCounts(args [][]byte, dst []int) []int { return counted(args, dst, 1) }
func thirdCounts(args [][]byte, dst []int) []int  { return counted(args, dst, 2) }

// storeKeys appends the destination behind the counted keys.
func storeKeys(args [][]byte, dst []int) []int {
	keys := counted(args, dst, 2)
	if len(keys) > len(dst) {
		keys = append(keys, 1)
	}
	return keys
}

// counted appends the keys behind their number, which is read as leniently as C does.
func counted(args [][]byte, dst []int, at int) []int {
	n := int(atoi(args[at]))
	if n > len(args)-at-1 {
		return dst
	}
	for i := range n {
		dst = append(dst, at+1+i)
	}
	return dst
}

// sortKeys is the key and that of the last STORE. An option's own arguments are not
// options.
func sortKeys(args [][]byte, dst []int) []int {
	store := 0
	for i := 2; i < len(args); i++ {
		switch {
		case equalFold(args[i], "limit"):
			i += 2
		case equalFold(args[i], "get"), equalFold(args[i], "by"):
			i++
		case equalFold(args[i], "store") && i+1 < len(args):
			store = i + 1
		}
	}
	dst = append(dst, 1)
	if store > 0 {
		dst = append(dst, store)
	}
	return dst
}

// migrateKeys is the one key, or all behind KEYS if that one is empty.
func migrateKeys(args [][]byte, dst []int) []int {
	for i := 6; i < len(args); i++ {
		switch {
		case equalFold(args[i], "keys"):
			if len(args[3]) > 0 {
				return dst
			}
			for at := i + 1; at < len(args); at++ {
				dst = append(dst, at)
			}
			return dst
		case equalFold(args[i], "auth"):
			i++
		case equalFold(args[i], "auth2"):
			i += 2
		}
	}
	return append(dst, 3)
}

// xreadKeys is the first half of what follows STREAMS; a group, and a stream, may
// have that name too.
func xreadKeys(args [][]byte, dst []int) []int {
	for i := 1; i < len(args); i++ {
		switch {
		case equalFold(args[i], "block"), equalFold(args[i], "count"):
			i++
		case equalFold(args[i], "group"):
			i += 2
		case equalFold(args[i], "noack"):
		case equalFold(args[i], "streams"):
			rest := len(args) - i - 1
			for at := 0; rest%2 == 0 && at < rest/2; at++ {
				dst = append(dst, i+1+at)
			}
			return dst
		default:
			return dst
		}
	}
	return dst
}

// equalFold compares an argument with a word in any case, as C does: a NUL ends it.
func equalFold(arg []byte, word string) bool {
	if len(arg) < len(word) || len(arg) > len(word) && arg[len(word)] != 0 {
		return false
	}
	for i := range len(word) {
		if lower(arg[i]) != lower(word[i]) {
			return false
		}
	}
	return true
}

// number reads an integer as Redis is strict about it: no sign but a minus, no
// leading zero, and nothing around it. What is too large becomes the largest there is.
func number(p []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(p), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	first := bytes.TrimPrefix(p, []byte("-"))[0]
	return n, p[0] != '+' && (first != '0' || len(p) == 1)
}

// atoi is C's: blanks, a sign, and what digits there are, of which 32 bits are kept. What is
// too large becomes the largest there is before that.
func atoi(p []byte) int32 {
	p = bytes.TrimLeft(p, " \t\n\v\f\r")
	end := 0
	for end < len(p) && ('0' <= p[end] && p[end] <= '9' || end == 0 && (p[0] == '-' || p[0] == '+')) {
		end++
	}
	n, _ := strconv.ParseInt(string(p[:end]), 10, 64)
	return int32(n)
}

// HasBlock reports whether an XREAD or XREADGROUP has the BLOCK option, which comes before
// STREAMS.
func HasBlock(args [][]byte) bool {
	for _, a := range args[1:] {
		if resp.Is(a, "BLOCK") {
			return true
		}
		if resp.Is(a, "STREAMS") {
			return false
		}
	}
	return false
}
