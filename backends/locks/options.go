package locks

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Options configure a Service. Everything has a default.
type Options struct {
	MinTTL       time.Duration // shortest lease; default 100 ms
	MaxHold      time.Duration // how long a lock of a Session is renewed whose LOCK has no MaxHold, and a lock without an end; default 1 h
	SessionGrace time.Duration // how long the locks of a session that has ended are still renewed; default 0
	MaxWait      time.Duration // longest wait of a LOCK; default 10 min
	MaxWaiters   int           // LOCKs that wait at once; default 100,000
	RenewEndless bool          // renew locks without an end, also those of other proxies: see EndlessRenewer

	Log *slog.Logger // gets warnings about locks without an end; nil: slog.Default()

	Random RandSource // for tests: where random values come from; default: values that cannot be guessed
}

// withDefaults fills in what is zero and reports every fault at once. maxTTL is that of the Store.
func (o Options) withDefaults(maxTTL time.Duration) (Options, error) {
	setDefault(&o.MinTTL, 100*time.Millisecond)
	setDefault(&o.MaxHold, time.Hour)
	setDefault(&o.MaxWait, 10*time.Minute)
	setDefault(&o.MaxWaiters, 100_000)
	o.Log = cmp.Or(o.Log, slog.Default())
	return o, o.check(maxTTL)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (o *Options) check(maxTTL time.Duration) error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.MinTTL < time.Millisecond, "min-ttl %v is under 1ms", o.MinTTL)
	refuse(maxTTL < o.MinTTL, "max-ttl %v is under min-ttl %v", maxTTL, o.MinTTL)
	refuse(o.MaxHold < o.MinTTL, "max-hold %v is under min-ttl %v", o.MaxHold, o.MinTTL)
	refuse(o.SessionGrace < 0, "session-grace %v is negative", o.SessionGrace)
	refuse(o.MaxWait < 0, "max-wait %v is negative", o.MaxWait)
	refuse(o.MaxWaiters < 0, "%d waiters at once is negative", o.MaxWaiters)
	return errors.Join(errs...)
}
