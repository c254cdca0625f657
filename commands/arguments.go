package commands

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

const (
	lockUsage   = "LOCK name ttl [OWNER owner] [FRESH | NOREENTER] [WAIT time] [SESSION [ONLOSS CLOSE|PUSH]] [MAXHOLD time] [REQ id] [INFO text] [RETRYAFTER]"
	renewUsage  = "RENEW name ttl [owner] [FENCE n]"
	unlockUsage = "UNLOCK name [owner] [FENCE n] [REQ id] [ALL]"
)

// An acquisition is what LOCK says.
type lockArgs struct {
	locks.LockRequest
	session    bool // it is bound to the connection
	retryAfter bool // a refusal says when to come back
}

// parseLock reads the arguments of LOCK.
func (d *Dispatcher) parseLock(args [][]byte) (a lockArgs, err error) {
	if len(args) < 3 {
		return a, arityError(args[0], lockUsage)
	}
	if a.Name, err = lockName(args[1]); err != nil {
		return a, err
	}
	if a.TTL, err = d.parseTTL(args[2]); err != nil {
		return a, err
	}
	opts := options{rest: args[3:], usage: lockUsage}
	for opts.next() {
		if err := d.lockOption(&a, &opts); err != nil {
			return a, err
		}
	}
	switch {
	case opts.err != nil:
		return a, opts.err
	case a.MaxHold > 0 && !a.session:
		return a, errors.New("ERR MAXHOLD needs SESSION: nothing else renews the lock")
	case a.OnLoss != locks.OnLossDefault && !a.session:
		return a, errors.New("ERR ONLOSS needs SESSION: nothing else tells of a loss")
	case a.Req != "" && a.Owner == "":
		return a, errReqOwner
	case a.Fresh && a.NoReenter:
		return a, errors.New("ERR FRESH and NOREENTER exclude each other")
	case a.Fresh && a.Owner == "":
		return a, errors.New("ERR FRESH needs OWNER: an owner that the proxy generates has no earlier holds")
	case a.NoReenter && a.Owner == "":
		return a, errors.New("ERR NOREENTER needs OWNER: an owner that the proxy generates never re-enters")
	}
	return a, nil
}

var errReqOwner = errors.New("ERR REQ needs OWNER: an owner that the proxy generates is another one each time")

// lockOption reads one option of LOCK.
func (d *Dispatcher) lockOption(a *lockArgs, opts *options) (err error) {
	switch opts.word {
	case "OWNER":
		a.Owner, err = opts.bounded(1, locks.MaxOwner)
		if err == nil && isOption(a.Owner) {
			err = fmt.Errorf("ERR the owner cannot be the word %s", a.Owner)
		}
	case "FRESH":
		a.Fresh = true
	case "NOREENTER":
		a.NoReenter = true
	case "WAIT":
		a.Wait, err = opts.time()
	case "SESSION":
		a.session = true
	case "ONLOSS":
		a.OnLoss, err = opts.onLoss()
	case "MAXHOLD":
		a.MaxHold, err = opts.time()
		switch {
		case err != nil:
		case a.MaxHold < d.opt.MinTTL:
			err = fmt.Errorf("ERR MAXHOLD %s is under the minimum of %s", formatTime(a.MaxHold), formatTime(d.opt.MinTTL))
		case a.MaxHold > d.opt.MaxHold:
			err = fmt.Errorf("ERR MAXHOLD %s is over the maximum of %s; raise --max-hold", formatTime(a.MaxHold), formatTime(d.opt.MaxHold))
		}
	case "REQ":
		a.Req, err = opts.bounded(1, locks.MaxReq)
	case "INFO":
		a.Info, err = opts.bounded(0, locks.MaxInfo)
	case "RETRYAFTER":
		a.retryAfter = true
	default:
		err = opts.unknown()
	}
	return err
}

// releaseArgs is what RENEW and UNLOCK say.
type releaseArgs struct {
	name, owner string
	ttl         time.Duration // RENEW
	fence       int64
	all         bool   // UNLOCK
	req         string // UNLOCK
}

// parseRelease reads the arguments of RENEW or UNLOCK, whichever usage says.
func (d *Dispatcher) parseRelease(args [][]byte, usage string) (r releaseArgs, err error) {
	renew := usage == renewUsage
	rest := args[1:]
	if len(rest) < 1 || renew && len(rest) < 2 {
		return r, arityError(args[0], usage)
	}
	if r.name, err = lockName(rest[0]); err != nil {
		return r, err
	}
	rest = rest[1:]
	if renew {
		if r.ttl, err = d.parseTTL(rest[0]); err != nil {
			return r, err
		}
		rest = rest[1:]
	}
	if len(rest) > 0 && !isOption(string(rest[0])) {
		if r.owner = string(rest[0]); len(r.owner) < 1 || len(r.owner) > locks.MaxOwner {
			return r, fmt.Errorf("ERR the owner must have 1 to %d bytes", locks.MaxOwner)
		}
		rest = rest[1:]
	}
	opts := options{rest: rest, usage: usage}
	for opts.next() {
		switch {
		case opts.word == "FENCE":
			r.fence, err = opts.fence()
		case opts.word == "ALL" && !renew:
			r.all = true
		case opts.word == "REQ" && !renew:
			r.req, err = opts.bounded(1, locks.MaxReq)
		default:
			err = opts.unknown()
		}
		if err != nil {
			return r, err
		}
	}
	if opts.err == nil && r.req != "" && r.owner == "" {
		return r, errReqOwner
	}
	return r, opts.err
}

func isOption(word string) bool {
	switch strings.ToUpper(word) {
	case "FENCE", "REQ", "ALL":
		return true
	}
	return false
}

// options walks the words behind the fixed arguments, each of which may come once.
type options struct {
	rest  [][]byte
	usage string
	word  string // the current option, in upper case
	raw   []byte // as the client wrote it
	seen  []string
	err   error
}

func (o *options) next() bool {
	if len(o.rest) == 0 || o.err != nil {
		return false
	}
	o.raw, o.rest = o.rest[0], o.rest[1:]
	o.word = strings.ToUpper(string(o.raw))
	for _, w := range o.seen {
		if w == o.word {
			o.err = fmt.Errorf("ERR option %s was given twice; usage: %s", o.word, o.usage)
			return false
		}
	}
	o.seen = append(o.seen, o.word)
	return true
}

// value is the argument of the current option.
func (o *options) value() ([]byte, error) {
	if len(o.rest) == 0 {
		return nil, fmt.Errorf("ERR option %s needs a value; usage: %s", o.word, o.usage)
	}
	v := o.rest[0]
	o.rest = o.rest[1:]
	return v, nil
}

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

func (o *options) fence() (int64, error) {
	v, err := o.value()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < 1 {
		return 0, errors.New("ERR FENCE must be a positive integer")
	}
	return n, nil
}

func (o *options) unknown() error {
	return fmt.Errorf("ERR unknown option '%s'; usage: %s", shorten(o.raw), o.usage)
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

// parseTTL reads a lease and checks it against the limits.
func (d *Dispatcher) parseTTL(arg []byte) (time.Duration, error) {
	ttl, bare, ok := parseTime(string(arg))
	switch {
	case !ok:
		return 0, fmt.Errorf("ERR ttl '%s' is not a time: write milliseconds, or 500ms, 30s, 2m", shorten(arg))
	case ttl < d.opt.MinTTL && bare && ttl > 0:
		return 0, fmt.Errorf("ERR ttl %s is under the minimum of %s; write %ds for seconds", formatTime(ttl), formatTime(d.opt.MinTTL), ttl.Milliseconds())
	case ttl < d.opt.MinTTL:
		return 0, fmt.Errorf("ERR ttl %s is under the minimum of %s", formatTime(ttl), formatTime(d.opt.MinTTL))
	case ttl > d.opt.MaxTTL:
		return 0, fmt.Errorf("ERR ttl %s is over the maximum of %s; RENEW the lock in time, use SESSION, or raise --max-ttl", formatTime(ttl), formatTime(d.opt.MaxTTL))
	}
	return ttl, nil
}

var units = []struct {
	suffix string
	unit   time.Duration
}{{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}

// parseTime reads a time of SPEC: an integer of milliseconds (bare), or one with a
// unit. It refuses signs, fractions and what does not fit.
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

// formatTime writes a time as a client would: in seconds if it is whole ones.
func formatTime(t time.Duration) string {
	if t >= time.Second && t%time.Second == 0 {
		return strconv.FormatInt(int64(t/time.Second), 10) + "s"
	}
	return strconv.FormatInt(t.Milliseconds(), 10) + "ms"
}

func ceilMillis(t time.Duration) int64 {
	return int64((t + time.Millisecond - 1) / time.Millisecond)
}

func shorten(arg []byte) string {
	if len(arg) > 64 {
		return string(arg[:64]) + "..."
	}
	return string(arg)
}

func lower(arg []byte) string { return strings.ToLower(shorten(arg)) }
