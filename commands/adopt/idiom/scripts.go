package idiom

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// maxScripts is how many scripts are remembered, and maxScriptBytes how much text they have in all: parsed they
// take some 100 times as much.
const (
	maxScripts     = 1024
	maxScriptBytes = 1 << 20
)

// A Script is one that was parsed, or that is refused whenever it is called.
type Script struct {
	SHA      string
	parsed   *lua.Script
	refused  *Refusal
	noWrites bool
	size     int // of its text
}

// ParseScript parses a script. What cannot be run is refused when it is called.
func ParseScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	s := &Script{SHA: hex.EncodeToString(sum[:]), size: min(len(text), lua.MaxText)}
	if strings.HasPrefix(text, "#!") {
		line, rest, _ := strings.Cut(text, "\n")
		engine, flags, _ := strings.Cut(strings.TrimPrefix(line, "#!"), " ")
		if engine != "lua" {
			s.refused = refusef("a script for %s", engine)
			return s
		}
		s.noWrites = strings.Contains(flags, "no-writes")
		text = "\n" + rest
	}
	var err error
	if s.parsed, err = lua.Parse(text); err != nil {
		s.refused = asRefusal(err)
	}
	return s
}

// Begins reports whether a string that is written in the script begins with prefix.
func (s *Script) Begins(prefix string) bool {
	return s.parsed != nil && slices.ContainsFunc(s.parsed.Strings(), func(text string) bool { return strings.HasPrefix(text, prefix) })
}

// Scripts remember scripts by their SHA-1, parsed or refused. They are safe for concurrent use.
type Scripts struct {
	bySHA *lru.Cache[string, *Script]
	bytes atomic.Int64
}

// Follows reports whether the script reads a key and drops the reply. It does so to have a server with CLIENT TRACKING
// tell the client when the key changes.
func (s *Script) Follows() bool {
	return s.parsed != nil && slices.ContainsFunc(s.parsed.Dropped(), func(name string) bool {
		c, known := commandTable[name]
		return known && !c.writes
	})
}

// NewScripts returns an empty Scripts.
func NewScripts() *Scripts {
	s := &Scripts{}
	c, err := lru.NewWithEvict(maxScripts, func(_ string, old *Script) { s.bytes.Add(-int64(old.size)) })
	if err != nil {
		panic(err)
	}
	s.bySHA = c
	return s
}

// Know returns the script with this text, and remembers it.
func (s *Scripts) Know(text string) *Script {
	sum := sha1.Sum([]byte(text))
	if known, ok := s.bySHA.Get(hex.EncodeToString(sum[:])); ok {
		return known
	}
	made := ParseScript(text)
	if there, _ := s.bySHA.ContainsOrAdd(made.SHA, made); there {
		return made
	}
	for s.bytes.Add(int64(made.size)); s.bytes.Load() > maxScriptBytes; {
		s.bySHA.RemoveOldest()
	}
	return made
}

// Find returns the script with this SHA-1, in hexadecimal; nil if it is not known.
func (s *Scripts) Find(sha string) *Script {
	known, _ := s.bySHA.Get(strings.ToLower(sha))
	return known
}

// Len is the number of scripts that are known.
func (s *Scripts) Len() int { return s.bySHA.Len() }

// Flush forgets all scripts.
func (s *Scripts) Flush() { s.bySHA.Purge() }
