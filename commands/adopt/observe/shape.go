package observe

import (
	"regexp"
	"strconv"
	"strings"
)

// longestShape is how much of a key is looked at, in bytes.
const longestShape = 256

var (
	uuidPart  = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
	longPart  = regexp.MustCompile(`[A-Za-z0-9+_-]{16,}={0,2}`)
	hexPart   = regexp.MustCompile(`[0-9a-fA-F]{8,}`)
	digitPart = regexp.MustCompile(`[0-9]+`)
	starPart  = regexp.MustCompile(`\*+`)
	globSigns = regexp.MustCompile(`[*?\[\]\\]`)
)

// shapeOf returns a key with * in place of what differs from lock to lock: digits, hex, UUIDs and base64. It is a
// pattern for --adopt.
func shapeOf(key string) string {
	const star = "\x00"
	if len(key) > longestShape {
		key = key[:longestShape] + star
	}
	s := uuidPart.ReplaceAllString(key, star)
	s = longPart.ReplaceAllStringFunc(s, func(part string) string {
		if isRandom(part) {
			return star
		}
		return part
	})
	s = replaceWhole(s, hexPart, star)
	s = digitPart.ReplaceAllString(s, star)
	s = globSigns.ReplaceAllString(s, `\$0`)
	s = strings.ReplaceAll(s, star, "*")
	return starPart.ReplaceAllString(s, "*")
}

// replaceWhole replaces matches that are no part of a longer word.
func replaceWhole(s string, match *regexp.Regexp, with string) string {
	var b strings.Builder
	last := 0
	for _, at := range match.FindAllStringIndex(s, -1) {
		if at[0] > 0 && isLetter(s[at[0]-1]) || at[1] < len(s) && isLetter(s[at[1]]) {
			continue
		}
		b.WriteString(s[last:at[0]] + with)
		last = at[1]
	}
	b.WriteString(s[last:])
	return b.String()
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// isRandom reports whether letters and digits alternate as they do in base64, and in no name.
func isRandom(part string) bool {
	var before byte
	changes, kinds := 0, map[byte]bool{}
	for i := range len(part) {
		var kind byte
		switch c := part[i]; {
		case '0' <= c && c <= '9':
			kind = '0'
		case 'a' <= c && c <= 'z':
			kind = 'a'
		case 'A' <= c && c <= 'Z':
			kind = 'A'
		default:
			continue
		}
		if kinds[kind] = true; before != 0 && kind != before {
			changes++
		}
		before = kind
	}
	return len(kinds) == 3 && changes >= len(part)/4
}

// printable is a key as text for people: what cannot be printed is escaped as in Go.
func printable(s string) string {
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
