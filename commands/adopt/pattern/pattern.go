// Package pattern says which keys are locks, and what is done with them, by the words of --adopt.
package pattern

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/glob"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/peers"
)

// A Mode is what is done with the keys of a pattern.
type Mode uint8

// The modes.
const (
	Off     Mode = iota // they are ordinary keys
	Observe             // they are ordinary keys, and reported on
	Both                // they are locks, held only if the upstream and the nodes both say so
	On                  // they are locks, which the nodes alone decide
)

// Adopts reports whether the nodes decide, alone or together with the upstream.
func (m Mode) Adopts() bool { return m >= Both }

var modeNames = map[string]Mode{"off": Off, "observe": Observe, "both": Both, "on": On}

func (m Mode) String() string { return [...]string{"off", "observe", "both", "on"}[m] }

// A Pattern names keys that are locks.
type Pattern struct {
	Glob     string
	DB       int // -1: every database
	Mode     Mode
	As       idiom.Strictness
	NoExpiry time.Duration // the lease of a lock without an end; idiom.Forever: it has none, and is kept; 0: it is refused
	Flush    bool          // FLUSHDB and FLUSHALL release the locks
	Guard    bool          // a key that the upstream has counts as held

	Deadlines idiom.Unit // unit of values that are the time when the lock ends
	FenceKey  string     // prefix of fence keys, before the lock's name; empty: locks have none

	literal string // prefix of every key
	glob    glob.Glob
}

// Parse parses PATTERN [name=value …]. The error names every fault.
func Parse(text string) (*Pattern, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, errors.New("a pattern for keys is missing")
	}
	p := &Pattern{Glob: strings.ReplaceAll(words[0], `\x20`, " "), DB: -1, Mode: On, As: idiom.Usual, NoExpiry: idiom.Forever, Guard: true}
	var faults []error
	given := map[string]bool{}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		err := p.set(name, value)
		if err == nil && given[name] {
			err = errors.New("is given twice")
		}
		if given[name] = true; err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", w, err))
		}
	}
	var err error
	if p.glob, p.literal, err = glob.Parse(p.Glob); err != nil {
		faults = append(faults, err)
	}
	if p.Mode == Both && p.Deadlines != idiom.NoDeadlines { // at the upstream such a lock has no end, and GETSET takes it from its holder
		faults = append(faults, errors.New("timestamps does not go with mode=both: the upstream knows nothing of it"))
	}
	if p.Mode == Both && p.FenceKey != "" {
		faults = append(faults, errors.New("fence-key does not go with mode=both: programs that are off get the upstream's tokens, which are smaller than the lock nodes' fences"))
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
			err = errors.New("is none of off, observe, both, on")
		}
	case "as":
		if p.As, known = map[string]idiom.Strictness{"strict": idiom.Strict, "usual": idiom.Usual, "full": idiom.Full}[value]; !known {
			err = errors.New("is none of strict, usual, full")
		}
	case "no-expiry":
		lease, isLease := strings.CutPrefix(value, "lease:")
		switch {
		case value == "refuse":
			p.NoExpiry = 0
		case value == "keep":
			p.NoExpiry = idiom.Forever
		case !isLease:
			err = errors.New("is none of refuse, lease:DURATION, keep")
		default:
			if p.NoExpiry, err = time.ParseDuration(lease); err == nil && p.NoExpiry <= 0 {
				err = errors.New("is no lease")
			}
		}
	case "flush":
		if p.Flush, known = map[string]bool{"release": true, "keep": false}[value]; !known {
			err = errors.New("is none of keep, release")
		}
	case "guard":
		if p.Guard, known = map[string]bool{"yes": true, "no": false}[value]; !known {
			err = errors.New("is none of yes, no")
		}
	case "timestamps":
		if p.Deadlines, known = map[string]idiom.Unit{"off": idiom.NoDeadlines, "s": idiom.Seconds, "ms": idiom.Milliseconds, "float": idiom.Fractions}[value]; !known {
			err = errors.New("is none of off, s, ms, float")
		}
	case "fence-key":
		if p.FenceKey = value; value == "" {
			err = errors.New("is no beginning of a key")
		}
	default:
		err = errors.New("is no word of a pattern: db, mode, as, no-expiry, flush, guard, timestamps, fence-key")
	}
	return err
}

// AnyDatabase stands for a database that is not known.
const AnyDatabase = -1

// Matches reports whether the pattern names a key, whatever its mode.
func (p *Pattern) Matches(db int, key string) bool {
	return p.inDatabase(db) && strings.HasPrefix(key, p.literal) && p.glob[len(p.literal):].Matches(key[len(p.literal):])
}

// inDatabase reports whether the pattern has keys in a database, or in some database for AnyDatabase.
func (p *Pattern) inDatabase(db int) bool { return p.DB < 0 || p.DB == db || db == AnyDatabase }

// Literal returns the literal prefix of all keys of the pattern. If it is empty, every argument of every command is compared
// with the pattern.
func (p *Pattern) Literal() string { return p.literal }

// Hides reports whether q, a pattern after p, is never used, because p matches all its keys.
func (p *Pattern) Hides(q *Pattern) bool { return (p.DB < 0 || p.DB == q.DB) && p.glob.Covers(q.glob) }

// MatchesPrefix reports whether the pattern matches a key that begins with prefix.
func (p *Pattern) MatchesPrefix(prefix string) bool {
	return p.glob.Overlaps(glob.Begins(prefix))
}

// NoExpiryText returns NoExpiry as it is written in a pattern.
func (p *Pattern) NoExpiryText() string {
	switch p.NoExpiry {
	case 0:
		return "refuse"
	case idiom.Forever:
		return "keep"
	}
	return "lease:" + p.NoExpiry.String()
}

// Flushes reports whether FLUSHDB and FLUSHALL release the locks of the pattern in a database; AnyDatabase stands
// for any.
func (p *Pattern) Flushes(db int) bool {
	return p.Flush && p.Mode.Adopts() && p.inDatabase(db)
}

// Announced returns the pattern in the form that other proxies are told.
func (p *Pattern) Announced() peers.Pattern {
	said := peers.Pattern{Glob: p.Glob, DB: p.DB, Mode: peers.Off, As: p.As.String(), Guard: p.Guard, Timestamps: string(p.Deadlines), FenceKey: p.FenceKey}
	for name, mode := range modeNames {
		if mode == p.Mode {
			said.Mode = name
		}
	}
	if p.Flush {
		said.Flush = "release"
	}
	said.NoExpiry = p.NoExpiryText()
	return said
}

// FenceOf returns the lock whose fence key is key; empty: it is no fence key.
func (p *Pattern) FenceOf(db int, key string) (lock string) {
	rest, begins := strings.CutPrefix(key, p.FenceKey)
	if p.FenceKey == "" || !begins {
		return ""
	}
	if inner, tagged := strings.CutPrefix(rest, "{"); tagged { // so that a Redis Cluster has both in one slot
		if name, closed := strings.CutSuffix(inner, "}"); closed && p.Matches(db, name) {
			return name
		}
	}
	if p.Matches(db, rest) {
		return rest
	}
	return ""
}
