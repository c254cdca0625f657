package idiom

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// A Unit is the unit of Unix times that clients store as values of locks: such a value says when its lock ends.
type Unit string

// The units.
const (
	NoDeadlines  Unit = ""      // values are no times
	Seconds      Unit = "s"     // whole ones
	Milliseconds Unit = "ms"    // whole ones
	Fractions    Unit = "float" // seconds with a fraction
)

// parse reads a value as milliseconds since 1970.
func (u Unit) parse(value string) (ms int64, fine bool) {
	if u == Fractions {
		f, err := strconv.ParseFloat(value, 64)
		return int64(math.Floor(f * 1000)), err == nil && math.Abs(f) < 1e12
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || n > 1e15 {
		return 0, false
	}
	if u == Seconds {
		n *= 1000
	}
	return n, true
}

// Looks returns the unit in which a value is a time within a day of now; NoDeadlines: in none.
func Looks(value string, now time.Time) Unit {
	for _, u := range []Unit{Seconds, Milliseconds, Fractions} {
		if ms, fine := u.parse(value); fine && now.Sub(time.UnixMilli(ms)).Abs() < 24*time.Hour {
			return u
		}
	}
	return NoDeadlines
}

// deadlines say how values give the end of a lock, and for how long it may be taken.
type deadlines struct {
	unit        Unit
	least, most time.Duration
}

// left returns for how long a lock with that value is taken.
func (d deadlines) left(value string, now time.Time) (time.Duration, error) {
	if d.unit == NoDeadlines {
		return Forever, nil
	}
	ms, fine := d.unit.parse(value)
	if !fine {
		return 0, refusef("its value is no Unix time in the unit of timestamps=%s", d.unit)
	}
	left := time.UnixMilli(ms).Sub(now.Truncate(time.Millisecond))
	if left < d.least || left > d.most {
		return 0, refusef("its value is a time %v from now, not within min-ttl and max-ttl, %v and %v", left, d.least, d.most)
	}
	return left, nil
}

// Plain is the function Plain for a lock whose values may be deadlines. It also returns the class of the command.
func (r Rule) Plain(args []string, proto int) (*Call, Class, error) {
	c, err := Plain(args, proto)
	if err != nil {
		return nil, Unclear, err
	}
	c.deadlines = deadlines{r.Deadlines, r.MinTTL, r.MaxTTL}
	class := PlainClass(args)
	if r.Deadlines != NoDeadlines && strings.EqualFold(args[0], "GETSET") { // it takes the lock only if nobody has it
		class = Acquire
	}
	return c, class, nil
}
