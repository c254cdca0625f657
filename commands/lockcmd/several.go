package lockcmd

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

const (
	lockAllUsage   = "LOCKALL n name [name ...] ttl [OWNER owner] [FRESH | NOREENTER] [SHARED] [WAIT time] [SESSION [ONLOSS CLOSE|PUSH] [MAXHOLD time]] [REQ id] [INFO text] [RETRYAFTER]"
	renewAllUsage  = "RENEWALL n name [name ...] ttl [owner] [SHARED]"
	unlockAllUsage = "UNLOCKALL n name [name ...] [owner] [SHARED] [REQ id] [ALL]"
)

// isLock reports whether a verb takes locks: then it may have to wait.
func isLock(verb []byte) bool { return resp.Is(verb, "LOCK") || resp.Is(verb, "LOCKALL") }

// parseLock parses a LOCK or LOCKALL.
func (l Limits) parseLock(args [][]byte) (Lock, error) {
	if resp.Is(args[0], "LOCKALL") {
		return l.ParseLockAll(args)
	}
	return l.ParseLock(args)
}

// ParseLockAll parses a LOCKALL, whose name is args[0].
func (l Limits) ParseLockAll(args [][]byte) (a Lock, err error) {
	a.Several = true
	names, rest, err := lockNames(args, 1, lockAllUsage)
	if err != nil {
		return a, err
	}
	a.Name = names[0]
	for _, name := range names[1:] {
		a.Others = append(a.Others, locks.Key{Name: name})
	}
	return a, l.behindNames(&a, rest, lockAllUsage)
}

// ParseRenewAll parses a RENEWALL, whose name is args[0]. r has no name.
func (l Limits) ParseRenewAll(args [][]byte) (names []string, r Release, err error) {
	names, rest, err := lockNames(args, 1, renewAllUsage)
	if err != nil {
		return nil, r, err
	}
	if r.TTL, err = l.parseTTL(rest[0]); err != nil {
		return nil, r, err
	}
	if err = r.options(rest[1:], renewAllUsage, (*options).unknown); err == nil {
		err = r.checkAll("RENEWALL")
	}
	return names, r, err
}

// ParseUnlockAll parses an UNLOCKALL, whose name is args[0]. r has no name.
func ParseUnlockAll(args [][]byte) (names []string, r Release, err error) {
	names, rest, err := lockNames(args, 0, unlockAllUsage)
	if err != nil {
		return nil, r, err
	}
	if err = r.unlockOptions(rest, unlockAllUsage); err == nil {
		err = r.checkAll("UNLOCKALL")
	}
	return names, r, err
}

func (r *Release) checkAll(verb string) error {
	if r.Fence != 0 {
		return fmt.Errorf("ERR %s takes no FENCE: each name has one of its own", verb)
	}
	return nil
}

// lockNames parses the number of names in args[1] and the names behind it, which differ. In rest are at least so many arguments.
func lockNames(args [][]byte, atLeast int, usage string) (names []string, rest [][]byte, err error) {
	if len(args) < 3+atLeast {
		return nil, nil, arityError(args[0], usage)
	}
	n, err := strconv.ParseUint(string(args[1]), 10, 63)
	switch {
	case err != nil || n == 0:
		return nil, nil, fmt.Errorf("ERR '%s' is not a number of names; usage: %s", shorten(args[1]), usage)
	case n > locks.MaxNames:
		return nil, nil, fmt.Errorf("ERR %d names are over the maximum of %d", n, locks.MaxNames)
	case int(n) > len(args)-2-atLeast:
		return nil, nil, fmt.Errorf("ERR fewer arguments than for %d names; usage: %s", n, usage)
	}
	seen := make(map[string]bool, n)
	for _, arg := range args[2:][:n] {
		name, err := lockName(arg)
		if err != nil {
			return nil, nil, err
		}
		if seen[name] {
			return nil, nil, fmt.Errorf("ERR the name '%s' was given twice", shorten(arg))
		}
		seen[name] = true
		names = append(names, name)
	}
	return names, args[2+n:], nil
}

// validityOf is the smallest of an answer's grants.
func validityOf(a locks.Decision) time.Duration {
	least := a.Grant.Validity
	for _, g := range a.Others {
		least = min(least, g.Validity)
	}
	return least
}

// appendGrants appends the reply to a granted LOCKALL, whose answer came then.
func appendGrants(b []byte, a locks.Decision, then time.Time) []byte {
	b = resp.AppendArray(b, 3+len(a.Others))
	b = appendRemaining(b, validityOf(a), then)
	b = resp.AppendBulkString(b, a.Grant.Owner)
	for _, g := range a.All() {
		b = resp.AppendArray(b, 3)
		b = resp.AppendBulkString(b, g.Name)
		b = resp.AppendInt(b, g.Fence)
		b = resp.AppendInt(b, int64(g.Holds))
	}
	return b
}

// appendRefusalOf appends the reply to a refused LOCKALL with RETRYAFTER. name is the one in the way.
func appendRefusalOf(b []byte, a locks.Decision, holder, name string) []byte {
	b = appendRefusalFields(resp.AppendArray(b, 5), a, holder)
	return resp.AppendBulkString(b, name)
}
