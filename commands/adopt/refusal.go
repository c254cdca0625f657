package adopt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockproxy/lockproxy/backends/loglimit"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// A Reason is the kind of a refusal, for metrics and the log.
type Reason uint8

// The reasons.
const (
	Other         Reason = iota
	NotForLocks          // the command, or what the script does, has no meaning for a lock
	OtherKeys            // it has keys beside the lock's
	NotClear             // what the script does to a lock is not clear
	TooStrict            // the pattern's as does not allow its class
	NoExpiry             // it would take a lock without an end
	OverMaxTTL           // its ttl is over max-ttl
	InTransaction        // it is in a transaction with other keys
	OnNative             // it would change a lock that was taken with LOCK
	Tracked              // the client keeps what it reads: CLIENT TRACKING
	PeerConflict         // another proxy has the key in a mode that does not go with this one's
	NotTold              // mode=both: its reply does not tell what it has done
	UpstreamHas          // it would replace the lock of a program that bypasses the proxies
	numReasons
)

var reasonNames = [numReasons]string{"other", "not_for_locks", "other_keys", "not_clear", "strict", "no_expiry", "over_max_ttl", "transaction", "native", "tracking", "peers", "not_told", "upstream"}

func (r Reason) String() string { return reasonNames[r] }

// A RefusedError says why a command on a lock was refused. Nothing was done.
type RefusedError struct {
	Command, Key string
	Why          string
	Pattern      string // that the key matches
	Reason       Reason

	Script string      // the SHA-1 of the script that it runs; empty: none
	Class  idiom.Class // of the call; empty: it has not been found

	private bool // Why is the script's text, which may hold values
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("ADOPTREFUSED %s %s: %s; adopted by %q", e.Command, e.Key, e.Why, e.Pattern)
}

func (c *Call) refused(reason Reason, why string) error {
	return &RefusedError{Command: c.command, Key: c.Key(), Why: why, Pattern: c.pattern.Glob, Reason: reason, Script: c.script, Class: c.class}
}

// cannotRun is the refusal of a call that cannot be run on a lock of that kind.
func (c *Call) cannotRun(on idiom.Kind, err error) error {
	reason := NotForLocks
	if on == idiom.Native {
		reason = OnNative
	}
	refused := c.refused(reason, err.Error()).(*RefusedError)
	refused.private = raised(err)
	return refused
}

// raised reports whether a script ended with an error of its own, whose text may hold anything.
func raised(err error) bool {
	refusal := (*idiom.Refusal)(nil)
	return errors.As(err, &refusal) && refusal.Raised
}

// logRefusal logs err if it is a *RefusedError, once a minute for each pattern and command. A client's value is
// never in the line.
func (a *Adoption) logRefusal(conn Connection, err error) {
	refused := (*RefusedError)(nil)
	if !errors.As(err, &refused) {
		return
	}
	leftOut, due := a.lineDue(refused.Pattern, refused.Command)
	if !due {
		return
	}
	why := refused.Why
	if refused.private {
		why = "the script raises an error"
	}
	line := append(conn.About(), slog.String("command", refused.Command), slog.String("lock", brief(refused.Key)), slog.String("pattern", refused.Pattern),
		slog.String("reason", refused.Reason.String()), slog.String("why", why))
	if refused.Script != "" {
		line = append(line, slog.String("script", refused.Script))
	}
	if refused.Class != "" {
		line = append(line, slog.String("class", string(refused.Class)))
	}
	a.opt.Log.LogAttrs(context.Background(), slog.LevelWarn, "adopted key: command refused", loglimit.With(line, leftOut)...)
}

// lineDue reports whether a line about a pattern is to be written, and how many of the same about were left out before it.
func (a *Adoption) lineDue(of, about string) (leftOut int, due bool) {
	return a.lines.Due([2]string{of, about}, [2]string{of, "others"}, loglimit.OnceAMinute, time.Now())
}

// brief shortens a text of a client for the log.
func brief(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
