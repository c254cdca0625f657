package adopt

import (
	"context"
	"strings"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/join"
	"github.com/lockproxy/lockproxy/commands/adopt/turns"
)

// newRenewalsCall makes a call of a script that extends several read/write locks, or what several threads have of one; nil:
// it is another one. Keys that the upstream has are extended there by the same script, which finds nothing of the others.
func (a *Adoption) newRenewalsCall(c Connection, s *idiom.Script, words []string, n int) *Call {
	r, err := s.Renewals(a.opt.Dialect(), words[3:3+n], words[3+n:], c.Protocol())
	if err != nil {
		return nil
	}
	all := &Call{command: strings.ToUpper(words[0]), class: idiom.ReaderExtend, onHash: true, script: s.SHA, renewals: r}
	for _, one := range r.Each {
		p := a.pattern(c.Database(), one.Key)
		if p == nil {
			all.rest = words
			continue
		}
		all.parts = append(all.parts, &Call{Call: r.Call(one), pattern: p, command: all.command, class: all.class, onHash: true, script: s.SHA})
		all.extends = append(all.extends, idiom.Renewal{Key: one.Key, Thread: one.Thread})
	}
	if len(all.parts) == 0 {
		return nil
	}
	all.Call, all.pattern = all.parts[0].Call, all.parts[0].pattern
	return all
}

// decideRenewals extends what it can, and has the script say what that was.
func (a *Adoption) decideRenewals(ctx context.Context, conn Connection, c *Call) (Result, error) {
	one := &oneAtATime{Connection: conn}
	of := make([]Result, len(c.parts))
	err := turns.Each(len(c.parts), atOnce, func(i int) (err error) {
		of[i], err = a.decideByMode(ctx, one, c.parts[i])
		return err
	})
	if err != nil {
		return Result{}, err
	}
	found := map[idiom.Renewal]bool{}
	for i, r := range of {
		found[c.extends[i]] = r.did == idiom.Renew
	}
	reply, err := c.renewals.Reply(func(r idiom.Renewal) bool { return found[r] })
	if err != nil || c.rest == nil {
		return Result{Reply: reply, did: mostDone(of)}, err
	}
	none, err := c.renewals.Reply(func(idiom.Renewal) bool { return false })
	if err != nil {
		return Result{}, err
	}
	theirs, err := conn.Ask(ctx, c.rest)
	if err != nil {
		return Result{}, err
	}
	return Result{Reply: join.Either(reply, theirs, none), did: mostDone(of), sentUpstream: true}, nil
}
