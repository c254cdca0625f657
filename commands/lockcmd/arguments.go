package lockcmd

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

const (
	lockUsage   = "LOCK name ttl [OWNER owner] [FRESH | NOREENTER] [SHARED | PERMITS k] [WAIT time [ASYNC]] [SESSION [ONLOSS CLOSE|PUSH] [MAXHOLD time]] [REQ id] [INFO text] [RETRYAFTER]"
	renewUsage  = "RENEW name ttl [owner] [SHARED] [FENCE n]"
	unlockUsage = "UNLOCK name [owner] [SHARED] [FENCE n] [REQ id] [ALL]"
)

// Limits bound what clients may ask for. Fields that are not positive have their defaults.
type Limits struct {
	MinTTL  time.Duration // the shortest lease; 100 ms
	MaxTTL  time.Duration // the longest lease; 60 s
	MaxHold time.Duration // the longest MAXHOLD; 1 h
}

// WithDefaults returns l with its defaults in place.
func (l Limits) WithDefaults() Limits {
	l.MinTTL = cmp.Or(max(l.MinTTL, 0), 100*time.Millisecond)
	l.MaxTTL = cmp.Or(max(l.MaxTTL, 0), time.Minute)
	l.MaxHold = cmp.Or(max(l.MaxHold, 0), time.Hour)
	return l
}

// A Lock is the arguments of a LOCK or LOCKALL. DB, Client and Session of the request, and DB of the others, are the
// caller's to set.
type Lock struct {
	locks.LockRequest
	Several        bool // it is a LOCKALL, perhaps for one name
	BindsToSession bool // SESSION
	RetryAfter     bool // a refusal tells who holds the lock and for how long
	Async          bool // the wait is answered at once, and the client told of the grant
}

// ParseLock parses a LOCK, whose name is args[0].
func (l Limits) ParseLock(args [][]byte) (a Lock, err error) {
	if len(args) < 3 {
		return a, arityError(args[0], lockUsage)
	}
	if a.Name, err = lockName(args[1]); err != nil {
		return a, err
	}
	return a, l.behindNames(&a, args[2:], lockUsage)
}

// behindNames parses the ttl, of which there is one in rest, and the options of a LOCK.
func (l Limits) behindNames(a *Lock, rest [][]byte, usage string) (err error) {
	if a.TTL, err = l.parseTTL(rest[0]); err != nil {
		return err
	}
	opts := options{rest: rest[1:], usage: usage}
	for opts.next() {
		if err := l.lockOption(a, &opts); err != nil {
			return err
		}
	}
	if opts.err != nil {
		return opts.err
	}
	return a.check()
}

// check returns an error for options that need others, or exclude them.
func (a *Lock) check() error {
	switch {
	case a.MaxHold > 0 && !a.BindsToSession:
		return errors.New("ERR MAXHOLD needs SESSION: nothing else renews the lock")
	case a.OnLoss != locks.OnLossDefault && !a.BindsToSession:
		return errors.New("ERR ONLOSS needs SESSION: nothing else tells of a loss")
	case a.Req != "" && a.Owner == "":
		return errReqOwner
	case a.Several && a.Async:
		return errors.New("ERR LOCKALL takes no ASYNC: what is told of a grant later is told of one name")
	case a.Several && a.Permits > 0:
		return errors.New("ERR LOCKALL takes no PERMITS: a permit is taken of one name at a time")
	case a.Async && (a.Wait <= 0 || a.Req == ""):
		return errors.New("ERR ASYNC needs WAIT, OWNER and REQ: with them the grant is collected")
	case a.Shared && a.Permits > 0:
		return errors.New("ERR SHARED and PERMITS exclude each other")
	case a.Fresh && a.NoReenter:
		return errors.New("ERR FRESH and NOREENTER exclude each other")
	case a.Fresh && a.Owner == "":
		return errors.New("ERR FRESH needs OWNER: an owner that the proxy generates has no earlier holds")
	case a.NoReenter && a.Owner == "":
		return errors.New("ERR NOREENTER needs OWNER: an owner that the proxy generates never re-enters")
	}
	return nil
}

var errReqOwner = errors.New("ERR REQ needs OWNER: an owner that the proxy generates is another one each time")

var errAdoptedOwner = errors.New(`ERR the owner cannot begin with \x00lpa, as those of adopted locks do`)

// lockOption parses the current option of a LOCK.
func (l Limits) lockOption(a *Lock, opts *options) (err error) {
	switch opts.word {
	case "OWNER":
		a.Owner, err = opts.bounded(1, locks.MaxOwner)
		if err == nil && isOption(a.Owner) {
			err = fmt.Errorf("ERR the owner cannot be the word %s", a.Owner)
		} else if strings.HasPrefix(a.Owner, locks.AdoptedPrefix) {
			err = errAdoptedOwner
		}
	case "FRESH":
		a.Fresh = true
	case "NOREENTER":
		a.NoReenter = true
	case "SHARED":
		a.Shared = true
	case "PERMITS":
		a.Permits, err = opts.permits()
	case "WAIT":
		a.Wait, err = opts.time()
	case "SESSION":
		a.BindsToSession = true
	case "ONLOSS":
		a.OnLoss, err = opts.onLoss()
	case "MAXHOLD":
		a.MaxHold, err = l.maxHold(opts)
	case "REQ":
		a.Req, err = opts.bounded(1, locks.MaxReq)
	case "INFO":
		a.Info, err = opts.bounded(0, locks.MaxInfo)
	case "RETRYAFTER":
		a.RetryAfter = true
	case "ASYNC":
		a.Async = true
	default:
		err = opts.unknown()
	}
	return err
}

func (l Limits) maxHold(opts *options) (time.Duration, error) {
	hold, err := opts.time()
	switch {
	case err != nil:
		return 0, err
	case hold < l.MinTTL:
		return 0, fmt.Errorf("ERR MAXHOLD %s is under the minimum of %s", formatTime(hold), formatTime(l.MinTTL))
	case hold > l.MaxHold:
		return 0, fmt.Errorf("ERR MAXHOLD %s is over the maximum of %s; raise --max-hold", formatTime(hold), formatTime(l.MaxHold))
	}
	return hold, nil
}

// A Release is the arguments of a RENEW or an UNLOCK.
type Release struct {
	Name  string
	Owner string        // empty: the implicit owner
	Fence int64         // 0: any
	TTL   time.Duration // RENEW only
	All   bool          // UNLOCK only: every hold
	Req   string        // UNLOCK only

	Shared bool // the lock by which the owner reads

	several bool // Name is one of several
}

// ParseRenew parses a RENEW, whose name is args[0].
func (l Limits) ParseRenew(args [][]byte) (r Release, err error) {
	if len(args) < 3 {
		return r, arityError(args[0], renewUsage)
	}
	if r.Name, err = lockName(args[1]); err != nil {
		return r, err
	}
	if r.TTL, err = l.parseTTL(args[2]); err != nil {
		return r, err
	}
	return r, r.options(args[3:], renewUsage, (*options).unknown)
}

// ParseUnlock parses an UNLOCK, whose name is args[0].
func ParseUnlock(args [][]byte) (r Release, err error) {
	if len(args) < 2 {
		return r, arityError(args[0], unlockUsage)
	}
	if r.Name, err = lockName(args[1]); err != nil {
		return r, err
	}
	return r, r.unlockOptions(args[2:], unlockUsage)
}

// unlockOptions parses the owner, if rest begins with one, and the options of an UNLOCK behind it.
func (r *Release) unlockOptions(rest [][]byte, usage string) error {
	err := r.options(rest, usage, func(opts *options) (err error) {
		switch opts.word {
		case "ALL":
			r.All = true
		case "REQ":
			r.Req, err = opts.bounded(1, locks.MaxReq)
		default:
			err = opts.unknown()
		}
		return err
	})
	if err == nil && r.Req != "" && r.Owner == "" {
		err = errReqOwner
	}
	return err
}

// options parses the owner, if rest begins with one, and the options behind it: those of RENEW and UNLOCK, and what others the
// verb has.
func (r *Release) options(rest [][]byte, usage string, others func(*options) error) error {
	opts, err := r.owner(rest, usage)
	if err != nil {
		return err
	}
	for opts.next() {
		switch opts.word {
		case "FENCE":
			r.Fence, err = opts.positive(64)
		case "SHARED":
			r.Shared = true
		default:
			err = others(&opts)
		}
		if err != nil {
			return err
		}
	}
	return opts.err
}

// owner parses the owner, if rest begins with one, and returns the options behind it.
func (r *Release) owner(rest [][]byte, usage string) (options, error) {
	if len(rest) > 0 && !isOption(string(rest[0])) {
		if r.Owner = string(rest[0]); len(r.Owner) < 1 || len(r.Owner) > locks.MaxOwner {
			return options{}, fmt.Errorf("ERR the owner must have 1 to %d bytes", locks.MaxOwner)
		}
		if strings.HasPrefix(r.Owner, locks.AdoptedPrefix) {
			return options{}, errAdoptedOwner
		}
		rest = rest[1:]
	}
	opts := options{rest: rest, usage: usage}
	if strings.EqualFold(r.Owner, "OWNER") {
		opts.hint = "; the owner is said without the word OWNER"
	}
	return opts, nil
}

// isOption reports whether a word in the place of an owner is an option instead.
func isOption(word string) bool {
	switch strings.ToUpper(word) {
	case "FENCE", "REQ", "ALL", "SHARED":
		return true
	}
	return false
}

// options iterates over the options behind the fixed arguments. Each may come once.
type options struct {
	rest  [][]byte // not parsed yet
	usage string   // of the command, for error texts
	hint  string   // behind the name of an unknown option, if not empty
	word  string   // the current option, in upper case
	raw   []byte   // the current option as sent
	seen  []string // the options so far
	err   error    // ended the iteration; may be nil
}

// next moves to the next option, if there is one and the last one was fine.
func (o *options) next() bool {
	if len(o.rest) == 0 || o.err != nil {
		return false
	}
	o.raw, o.rest = o.rest[0], o.rest[1:]
	o.word = strings.ToUpper(string(o.raw))
	if slices.Contains(o.seen, o.word) {
		o.err = fmt.Errorf("ERR option %s was given twice; usage: %s", o.word, o.usage)
		return false
	}
	o.seen = append(o.seen, o.word)
	return true
}

// value consumes the argument of the current option.
func (o *options) value() ([]byte, error) {
	if len(o.rest) == 0 {
		return nil, fmt.Errorf("ERR option %s needs a value; usage: %s", o.word, o.usage)
	}
	v := o.rest[0]
	o.rest = o.rest[1:]
	return v, nil
}

// bounded consumes an argument of least to most bytes.
func (o *options) bounded(least, most int) (string, error) {
	v, err := o.value()
	if err == nil && (len(v) < least || len(v) > most) {
		err = fmt.Errorf("ERR the value of %s must have %d to %d bytes", o.word, least, most)
	}
	return string(v), err
}

func (o *options) onLoss() (locks.OnLoss, error) {
	v, err := o.value()
	switch {
	case err != nil:
		return 0, err
	case resp.Is(v, "CLOSE"):
		return locks.OnLossClose, nil
	case resp.Is(v, "PUSH"):
		return locks.OnLossPush, nil
	}
	return 0, fmt.Errorf("ERR ONLOSS '%s' is neither CLOSE nor PUSH", shorten(v))
}

func (o *options) time() (time.Duration, error) {
	v, err := o.value()
	if err != nil {
		return 0, err
	}
	t, _, ok := parseTime(string(v))
	if !ok {
		return 0, fmt.Errorf("ERR %s '%s' is not a time: write milliseconds, or 500ms, 30s, 2m", o.word, shorten(v))
	}
	return t, nil
}

// positive consumes a positive integer of so many bits.
func (o *options) positive(bits int) (int64, error) {
	v, err := o.value()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(v), 10, bits)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("ERR %s must be a positive integer", o.word)
	}
	return n, nil
}

func (o *options) permits() (int, error) {
	n, err := o.positive(32)
	if err == nil && n > locks.MaxPermits {
		err = fmt.Errorf("ERR PERMITS %d is over the maximum of %d", n, locks.MaxPermits)
	}
	return int(n), err
}

func (o *options) unknown() error {
	return fmt.Errorf("ERR unknown option '%s'%s; usage: %s", shorten(o.raw), o.hint, o.usage)
}

func arityError(name []byte, usage string) error {
	return fmt.Errorf("ERR wrong number of arguments for '%s' command; usage: %s", lower(name), usage)
}

func lockName(arg []byte) (string, error) {
	if len(arg) < 1 || len(arg) > locks.MaxName {
		return "", fmt.Errorf("ERR the name of a lock must have 1 to %d bytes", locks.MaxName)
	}
	return string(arg), nil
}

// parseTTL parses the length of a lease.
func (l Limits) parseTTL(arg []byte) (time.Duration, error) {
	ttl, bare, ok := parseTime(string(arg))
	switch {
	case !ok:
		return 0, fmt.Errorf("ERR ttl '%s' is not a time: write milliseconds, or 500ms, 30s, 2m", shorten(arg))
	case ttl < l.MinTTL && bare && ttl > 0:
		return 0, fmt.Errorf("ERR ttl %s is under the minimum of %s; write %ds for seconds", formatTime(ttl), formatTime(l.MinTTL), ttl.Milliseconds())
	case ttl < l.MinTTL:
		return 0, fmt.Errorf("ERR ttl %s is under the minimum of %s", formatTime(ttl), formatTime(l.MinTTL))
	case ttl > l.MaxTTL:
		return 0, fmt.Errorf("ERR ttl %s is over the maximum of %s; RENEW the lock in time, use SESSION, or raise --max-ttl", formatTime(ttl), formatTime(l.MaxTTL))
	}
	return ttl, nil
}

var units = []struct {
	suffix string
	unit   time.Duration
}{{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}

// parseTime parses an integer of milliseconds (bare), or one with a unit. It refuses
// signs, fractions and what a Duration cannot hold.
func parseTime(s string) (t time.Duration, bare, ok bool) {
	unit, bare := time.Millisecond, true
	for _, u := range units {
		if rest, found := strings.CutSuffix(s, u.suffix); found {
			s, unit, bare = rest, u.unit, false
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/unit) || s[0] == '+' {
		return 0, bare, false
	}
	return time.Duration(n) * unit, bare, true
}

// formatTime formats a time as a client would write it: whole seconds as such.
func formatTime(t time.Duration) string {
	if t >= time.Second && t%time.Second == 0 {
		return strconv.FormatInt(int64(t/time.Second), 10) + "s"
	}
	return strconv.FormatInt(t.Milliseconds(), 10) + "ms"
}

// ceilMillis is t in milliseconds, rounded up: what is left of a lease is not over yet.
func ceilMillis(t time.Duration) int64 {
	return int64((t + time.Millisecond - 1) / time.Millisecond)
}

// shorten bounds what an error text repeats of an argument.
func shorten(arg []byte) string {
	if len(arg) > 64 {
		return string(arg[:64]) + "..."
	}
	return string(arg)
}

func lower(arg []byte) string { return strings.ToLower(shorten(arg)) }
