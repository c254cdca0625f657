package adopt

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// A Mode is what is done with the keys of a pattern.
type Mode uint8

// The modes.
const (
	Off     Mode = iota // they are keys like any other
	Observe             // they are, and are reported on
	On                  // they are locks
)

var modeNames = map[string]Mode{"off": Off, "observe": Observe, "on": On}

// A Pattern names keys that are locks.
type Pattern struct {
	Glob     string
	DB       int // -1: every database
	Mode     Mode
	As       idiom.Strictness
	NoExpiry time.Duration // the lease of a lock without an end; 0: it is refused
	Guard    bool          // a key that the upstream has counts as held

	literal string // every key begins with it
	match   *regexp.Regexp
}

// ParsePattern parses PATTERN [name=value …]. The error names every fault.
func ParsePattern(text string) (*Pattern, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, errors.New("a pattern for keys is missing")
	}
	p := &Pattern{Glob: strings.ReplaceAll(words[0], `\x20`, " "), DB: -1, Mode: On, As: idiom.Usual, Guard: true}
	var faults []error
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		if err := p.set(name, value); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", w, err))
		}
	}
	var err error
	if p.literal, p.match, err = compileGlob(p.Glob); err != nil {
		faults = append(faults, err)
	}
	return p, errors.Join(faults...)
}

func (p *Pattern) set(name, value string) (err error) {
	known := true
	switch name {
	case "db":
		if value == "*" {
			p.DB = -1
		} else if p.DB, err = strconv.Atoi(value); err != nil || p.DB < 0 {
			err = errors.New("is no database")
		}
	case "mode":
		if p.Mode, known = modeNames[value]; !known {
			err = errors.New("is none of off, observe, on")
		}
	case "as":
		if p.As, known = map[string]idiom.Strictness{"strict": idiom.Strict, "usual": idiom.Usual}[value]; !known {
			err = errors.New("is none of strict, usual")
		}
	case "no-expiry":
		lease, isLease := strings.CutPrefix(value, "lease:")
		switch {
		case value == "refuse":
			p.NoExpiry = 0
		case !isLease:
			err = errors.New("is none of refuse, lease:DURATION")
		default:
			if p.NoExpiry, err = time.ParseDuration(lease); err == nil && p.NoExpiry <= 0 {
				err = errors.New("is no lease")
			}
		}
	case "guard":
		if p.Guard, known = map[string]bool{"yes": true, "no": false}[value]; !known {
			err = errors.New("is none of yes, no")
		}
	default:
		err = errors.New("is no word of a pattern: db, mode, as, no-expiry, guard")
	}
	return err
}

// compileGlob compiles a pattern of KEYS. Every match begins with literal.
func compileGlob(glob string) (literal string, match *regexp.Regexp, err error) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	plain := true
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case c == '*':
			b.WriteString(".*")
			plain = false
		case c == '?':
			b.WriteString(".")
			plain = false
		case c == '[':
			end := strings.IndexByte(glob[i:], ']')
			if end < 0 {
				return "", nil, fmt.Errorf("%q: a [ without ]", glob)
			}
			b.WriteString(glob[i : i+end+1])
			i += end
			plain = false
		default:
			if c == '\\' && i+1 < len(glob) {
				i++
				c = glob[i]
			}
			b.WriteString(regexp.QuoteMeta(string(c)))
			if plain {
				literal += string(c)
			}
		}
	}
	b.WriteString(`\z`)
	if match, err = regexp.Compile(b.String()); err != nil {
		return "", nil, fmt.Errorf("%q: %w", glob, err)
	}
	return literal, match, nil
}

// adopts reports whether a key is a lock by this pattern.
func (p *Pattern) adopts(db int, key string) bool {
	return p.Mode == On && (p.DB < 0 || p.DB == db) && strings.HasPrefix(key, p.literal) && p.match.MatchString(key)
}
