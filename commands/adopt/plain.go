package adopt

import (
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// newPlainCall makes a call of a command whose first argument is its only key, and a lock.
func (a *Adoption) newPlainCall(c Connection, p *Pattern, name string, words []string) (*Call, error) {
	call, class, err := a.rule(p).Plain(words, c.Protocol())
	if err != nil {
		return nil, &RefusedError{Command: name, Key: words[1], Why: err.Error(), Pattern: p.Glob, Reason: NotForLocks}
	}
	call.Speak(a.opt.Dialect())
	made := &Call{Call: call, pattern: p, command: name, class: class, onHash: name[0] == 'H', words: words}
	now := time.Now()
	if out, err := call.Run(idiom.State{}, now); err == nil && len(out.Reply) > 0 && out.Reply[0] == '-' {
		made.fault = out.Reply
	} else if err == nil {
		made.absent, made.absentAt = out, now.UnixMilli()
	}
	return made, nil
}

// run is Run, but uses the outcome that newPlainCall has found if that was in the same millisecond: commands know no shorter
// time.
func (c *Call) run(state idiom.State, now time.Time) (idiom.Outcome, error) {
	if state.Kind == idiom.Absent && c.absentAt == now.UnixMilli() {
		return c.absent, nil
	}
	return c.Run(state, now)
}
