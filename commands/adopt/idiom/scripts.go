package idiom

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// maxScripts is how many scripts are remembered.
const maxScripts = 1024

// A Script is a parsed one, or one that cannot be run.
type Script struct {
	SHA      string
	parsed   *lua.Script
	refused  *Refusal
	noWrites bool
}

// ParseScript parses a script. What cannot be run is refused when it is called.
func ParseScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	s := &Script{SHA: hex.EncodeToString(sum[:])}
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

// Scripts remember scripts by their SHA-1, parsed or refused. They are safe for concurrent use.
type Scripts struct{ bySHA *lru.Cache[string, *Script] }

// NewScripts remembers nothing yet.
func NewScripts() *Scripts {
	c, err := lru.New[string, *Script](maxScripts)
	if err != nil {
		panic(err)
	}
	return &Scripts{c}
}

// Know returns the script with this text, and remembers it.
func (s *Scripts) Know(text string) *Script {
	sum := sha1.Sum([]byte(text))
	if known, ok := s.bySHA.Get(hex.EncodeToString(sum[:])); ok {
		return known
	}
	made := ParseScript(text)
	s.bySHA.Add(made.SHA, made)
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
