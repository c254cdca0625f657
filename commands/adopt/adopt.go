package adopt

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/loglimit"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/join"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/commands/adopt/readers"
	"github.com/lockproxy/lockproxy/commands/adopt/turns"
)

// An Engine decides about locks; *locks.Service is one.
type Engine interface {
	Lock(context.Context, locks.LockRequest) (locks.Decision, error)
	Renew(context.Context, locks.RenewRequest) (time.Duration, error)
	Unlock(context.Context, locks.UnlockRequest) (holdsLeft int, err error)
	Read(context.Context, locks.Key) (locks.Reading, error)
	Undo(locks.Grant)
}

// A Connection is a client's connection, as adopted commands need it.
type Connection interface {
	Database() int
	Protocol() int
	// Address is where the client is, for an operator to see.
	Address() string
	// MayLock returns nil if the client may take, move and release that lock.
	MayLock(ctx context.Context, name string) error
	// MayAsk returns nil if the client's rights at the upstream allow a command. The command is sent there, so it must
	// change nothing.
	MayAsk(ctx context.Context, command []string) error
	// Ask sends the upstream a command with the client's rights, after what the client has sent, and returns the reply.
	Ask(ctx context.Context, args []string) (reply []byte, err error)
	// Begin is Ask without waiting for the reply. It returns nil, with nothing sent, if it would have to wait for a
	// connection.
	Begin(args []string) Answer
	// Burst returns the Burst that the command belongs to.
	Burst() Burst
	// About returns the attributes that identify the client in a line of the log.
	About() []slog.Attr
}

// Options are read once by New.
type Options struct {
	Engine         Engine
	Inspector      Inspector     // required for flush=release, and for read/write locks
	MinTTL, MaxTTL time.Duration // of leases
	Log            *slog.Logger  // for refused calls; nil: slog.Default()
	Peers          Peers         // nil: there is no other proxy
	Random         locks.RandSource
	Dialect        func() idiom.Dialect // the upstream's, called for every call; nil: not known
}

// remembered is how many locks an Adoption remembers.
const remembered = 16384

// An Adoption decides commands on the keys of its patterns.
type Adoption struct {
	opt      Options
	patterns []*pattern.Pattern
	prefixes pattern.Prefixes // of patterns and fence keys
	flush    bool             // a pattern has flush=release
	fenced   bool             // a pattern has fence-key
	scripts  *idiom.Scripts
	guesses  *lru.Cache[locks.Key, guess] // what each lock was last known to be; a wrong guess costs a round
	classes  *lru.Cache[shape, verdict]   // of scripts
	flights  *flights                     // acquisitions under way
	reads    *flights
	turns    turns.Turns[locks.Key] // orders calls that replace the same lock: if two asked at once, each might get some nodes

	counters    counters
	divergences [][numDivergences]atomic.Int64 // of the patterns
	lines       loglimit.Kinds[[2]string]      // a pattern, and what lines are about
}

// New makes an Adoption. The first pattern that matches a key counts.
func New(patterns []*pattern.Pattern, o Options) (*Adoption, error) {
	if o.Log = cmp.Or(o.Log, slog.Default()); o.Dialect == nil {
		o.Dialect = func() idiom.Dialect { return idiom.Dialect{} }
	}
	a := &Adoption{opt: o, patterns: patterns, scripts: idiom.NewScripts(), reads: newFlights(0, nil),
		divergences: make([][numDivergences]atomic.Int64, len(patterns))}
	a.flights = newFlights(pollPace, a.reads)
	var err, also error
	a.guesses, err = lru.New[locks.Key, guess](remembered)
	a.classes, also = lru.New[shape, verdict](remembered)
	for _, p := range patterns {
		a.flush, a.fenced = a.flush || p.Flushes(pattern.AnyDatabase), a.fenced || p.FenceKey != ""
		a.prefixes.Add(p.Literal())
		if p.FenceKey != "" {
			a.prefixes.Add(p.FenceKey)
		}
	}
	return a, errors.Join(err, also)
}

// A Call is a command on the key of one lock.
type Call struct {
	*idiom.Call
	pattern *pattern.Pattern
	command string
	class   idiom.Class
	onHash  bool     // its lock is a hash
	script  string   // SHA-1 of the script that it runs; empty: none
	follows bool     // the script reads its key only for CLIENT TRACKING
	words   []string // as the client has sent it
	fault   []byte   // the error reply to a command that is malformed, whatever the key holds
	inTurn  bool     // it has the turn of its lock in Adoption.turns
	alone   bool     // mode both: the nodes alone decide it

	absent   idiom.Outcome // what it does if nobody has the lock, at the time absentAt
	absentAt int64         // in ms since 1970; 0: absent is not known

	parts   []*Call  // one for each lock of a command that has several keys
	rest    []string // the command for the other keys, which the upstream has
	places  []int    // positions of those keys among all keys
	list    []int    // of a script on several locks: by key, the index of its part, or -1 if only the upstream has the key
	isFence bool     // it is GET of the fence key of the lock

	renewals *idiom.Renewals // of a script that extends read/write locks: one for each part
	extends  []idiom.Renewal // what each part extends

	flushes bool // rest is FLUSHDB or FLUSHALL, which has no key; the embedded Call is nil
}

// each returns the calls on one lock each that the call consists of.
func (c *Call) each() []*Call {
	if c.parts == nil {
		return []*Call{c}
	}
	return c.parts
}

// errNoScript answers EVALSHA of a script that the proxy does not know.
//
//lint:ignore ST1005 Redis ends this sentence with a full stop
var errNoScript = errors.New("NOSCRIPT No matching script. Please use EVAL.")

// Call makes a call of a command, whose keys are those in the command table. It returns nil for a command that concerns no
// lock. The error is a *RefusedError, or one for the client.
func (a *Adoption) Call(c Connection, args [][]byte, keys Keys) (*Call, error) {
	call, err := a.newCall(c, args, keys)
	if err == nil && call != nil {
		err = a.accept(call)
	}
	if err != nil {
		a.noteRefusal(c, err)
		return nil, err
	}
	return call, nil
}

// newCall is Call, but leaves it open whether the pattern allows the call, and a refusal unnoted.
func (a *Adoption) newCall(c Connection, args [][]byte, keys Keys) (*Call, error) {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = string(arg)
	}
	name := strings.ToUpper(words[0])
	switch name {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
		return a.newScriptCall(c, name, words)
	}
	key, p := a.lock(c.Database(), args, keys)
	if a.mayFlush(args) && p != nil {
		return &Call{command: name, pattern: p, class: idiom.ForceRelease, rest: words, flushes: true}, nil
	}
	if call, p, err := a.newFenceCall(c, name, words, keys); p != nil {
		return call, err
	}
	refused := func(reason Reason, why string) (*Call, error) {
		return nil, &RefusedError{Command: name, Key: key, Why: why, Pattern: p.Glob, Reason: reason}
	}
	switch several := len(keys.At) > 1; {
	case p == nil:
		return nil, nil
	case !keys.Known:
		return refused(NotForLocks, "which of its arguments are keys is not known")
	case several && join.Replies[name] != nil:
		return a.newMultiKeyCall(c, name, words)
	case several:
		return refused(OtherKeys, "it has other keys as well")
	case a.opt.Dialect().Lacks(name): // the upstream says so
		return nil, nil
	case len(keys.At) == 0 || keys.At[0] != 1:
		return refused(NotForLocks, name+" of a lock")
	}
	return a.newPlainCall(c, p, name, words)
}

// newPlainCall makes a call of a command whose first argument is its only key, and a lock.
func (a *Adoption) newPlainCall(c Connection, p *pattern.Pattern, name string, words []string) (*Call, error) {
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

// rule is what a pattern allows.
func (a *Adoption) rule(p *pattern.Pattern) idiom.Rule {
	return idiom.Rule{As: p.As, NoExpiry: p.NoExpiry, Deadlines: p.Deadlines, MinTTL: a.opt.MinTTL, MaxTTL: a.opt.MaxTTL}
}

// accept refuses a call whose class its pattern does not allow.
func (a *Adoption) accept(c *Call) error {
	if c.flushes {
		return nil
	}
	for _, one := range c.each() {
		if one.fault != nil {
			continue
		}
		if refused := a.rule(one.pattern).AllowsCall(one.Call, one.class, time.Now()); refused != nil {
			reason := TooStrict
			if one.class == idiom.Unclear {
				reason = NotClear
			}
			return one.refused(reason, refused.Why)
		}
		if err := a.checkPeers(one); err != nil {
			return err
		}
	}
	return nil
}

// NoteScript follows SCRIPT LOAD and SCRIPT FLUSH, which the upstream gets as well.
func (a *Adoption) NoteScript(args [][]byte) {
	switch {
	case !resp.Is(args[0], "SCRIPT"):
	case len(args) == 3 && resp.Is(args[1], "LOAD"):
		a.scripts.Know(string(args[2]))
	case len(args) >= 2 && resp.Is(args[1], "FLUSH"):
		a.scripts.Flush()
	}
}

// A Result is the outcome of a call.
type Result struct {
	Reply []byte
	Taken locks.Grant // the grant it has taken, to be undone if the client has left; Fence 0: none

	did          idiom.Do
	op           idiom.Op // what was done to the one lock of the call; zero: nothing, or it is not known
	sentUpstream bool     // a part of the call, or a signal, was sent to the upstream
	at           guess    // did is Nothing: what the nodes answered

	Burst Burst // for the client's next command, if that had come by then; zero: it begins a new one

	copied idiom.Op  // mode both: how the upstream has granted the lock; see GiveBack
	sent   time.Time // when the upstream was asked
}

// Changed reports whether the call has done something, to the lock or at the upstream.
func (r Result) Changed() bool { return r.did != idiom.Nothing || r.sentUpstream }

// An Op is what a call does to a lock.
type Op = idiom.Op

// Op is what a call has done to its one lock; zero: nothing, or something that is not known in full.
func (r Result) Op() Op { return r.op }

// Undo releases what a call has taken for a client that has left.
func (a *Adoption) Undo(g locks.Grant) {
	a.guesses.Remove(g.Key)
	a.opt.Engine.Undo(g)
	a.flights.hurry(g.Key)
}

// ReplyText is the text of the error reply for an error of this package; empty for others.
func ReplyText(err error) string {
	var refused *RefusedError
	if fault := faultError(nil); errors.As(err, &fault) || errors.As(err, &refused) || errors.Is(err, errNoScript) || errors.Is(err, errChanging) || errors.Is(err, errLate) || errors.Is(err, errMalformed) || errors.Is(err, errUnclear) {
		return err.Error()
	}
	return ""
}

// ErrClientLeft is the answer to a client that has closed only its sending half: its call is undone.
var ErrClientLeft = errors.New("ERR the lock was given back: the client closed its side of the connection")

// errChanging answers a call that found the lock changed at every try.
var errChanging = readers.ErrChanging

// errLate answers an acquisition whose lease ended before the upstream had said whether it has the key.
var errLate = errors.New("NOQUORUM the lease was over before the upstream had answered")

// remember keeps the state of a key as a guess for later calls.
func (a *Adoption) remember(key locks.Key, g guess) {
	if g.owner == "" {
		a.guesses.Remove(key)
		return
	}
	a.guesses.Add(key, g)
}
