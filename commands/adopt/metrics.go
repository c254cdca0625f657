package adopt

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// An outcome is how a call ended.
type outcome uint8

const (
	granted  outcome = iota // a lock was taken, perhaps from its holder
	held                    // the lock was not taken, since another client has it
	done                    // a lock was renewed or released
	none                    // nothing was to be done: it reads, or the lock is not its caller's
	refused                 // see reasons
	noQuorum                // too few lock nodes decided
	failed                  // the client lacks the rights, or has left, or a connection was lost
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"granted", "held", "done", "none", "refused", "noquorum", "failed"}

// classes are those of calls, in the order of their counters.
var classes = [...]idiom.Class{
	idiom.Acquire, idiom.AcquireOrExtend, idiom.AcquireFixTTL, idiom.ReleaseOwn, idiom.ExtendOwn, idiom.ReadOnly,
	idiom.ReentrantAcquire, idiom.ReentrantRelease, idiom.ReentrantExtend,
	idiom.ReaderAcquire, idiom.ReaderRelease, idiom.ReaderExtend, idiom.WriterAcquire, idiom.WriterRelease, idiom.ForceRelease, idiom.ForceExtend,
	idiom.Overwrite, idiom.Unclear,
}

// operations are what calls that were decided did, in the order of their histograms.
var operations = [...]string{"take", "change", "read"}

// counters count what became of calls. The zero value is ready, and safe for concurrent use.
type counters struct {
	calls        [len(classes)][numOutcomes]atomic.Int64
	reasons      [numReasons]atomic.Int64
	took         [len(operations)]metrics.Histogram
	upstreamHeld atomic.Int64 // locks not taken, because the upstream has their keys
	unguarded    atomic.Int64 // times when the upstream did not say whether it has a key
	takenOver    atomic.Int64 // locks that only the upstream had
	copiesLeft   atomic.Int64 // copies at the upstream that could not be changed
	signalsSent  atomic.Int64
	signalsLost  atomic.Int64
}

// end counts a call that did what did says, or failed with err. An unknown class counts as Unclear.
func (c *counters) end(class idiom.Class, did idiom.Do, err error) {
	at := slices.Index(classes[:], class)
	if at < 0 {
		at = len(classes) - 1
	}
	row := &c.calls[at]
	switch {
	case err != nil:
		c.fail(row, err)
	case did == idiom.Take, did == idiom.Enter, did == idiom.Replace && class.Acquires():
		row[granted].Add(1)
	case did != idiom.Nothing:
		row[done].Add(1)
	case class.Acquires(): // and has done nothing
		row[held].Add(1)
	default:
		row[none].Add(1)
	}
}

func (c *counters) fail(row *[numOutcomes]atomic.Int64, err error) {
	refusal, quorum := (*RefusedError)(nil), (*locks.QuorumError)(nil)
	switch {
	case errors.As(err, &refusal):
		c.reasons[refusal.Reason].Add(1)
		row[refused].Add(1)
	case errors.As(err, &quorum), errors.Is(err, errChanging), errors.Is(err, errLate), errors.Is(err, errUnclear):
		row[noQuorum].Add(1)
	default:
		row[failed].Add(1)
	}
}

// observe records how long it took to decide a call.
func (c *counters) observe(class idiom.Class, did idiom.Do, took time.Duration) {
	operation := 1
	switch {
	case class.Acquires():
		operation = 0
	case did == idiom.Nothing:
		operation = 2
	}
	c.took[operation].Observe(took)
}

// noteRefusal counts and logs err if it is a refusal of a call that is not decided.
func (a *Adoption) noteRefusal(c Connection, err error) {
	if refusal := (*RefusedError)(nil); errors.As(err, &refusal) {
		a.counters.end(refusal.Class, idiom.Nothing, err)
		a.logRefusal(c, err)
	}
}

// noteDecided counts a call that did what did says, or failed with err, and logs err if it is a refusal. took is how long
// it took to decide it.
func (a *Adoption) noteDecided(conn Connection, c *Call, did idiom.Do, err error, took time.Duration) {
	a.counters.end(c.class, did, err)
	if err == nil {
		a.counters.observe(c.class, did, took)
	}
	a.logRefusal(conn, err)
}

// Report implements metrics.Reporter. A nil Adoption has none.
func (a *Adoption) Report(r *metrics.Report) {
	if a == nil {
		return
	}
	c := &a.counters
	const calls = "Calls on adopted keys that were decided or refused, by what they are for and what became of them: granted; held, another has the lock; done, it was renewed or released; none, there was nothing to do; refused, see lockproxy_adopt_refused_total; noquorum; failed, the client may not, or has left, or a connection was lost."
	for i, class := range classes {
		r.Counters("lockproxy_adopt_calls_total", calls, "outcome", outcomeNames[:], c.calls[i][:], "class", string(class))
	}
	r.Counters("lockproxy_adopt_refused_total", "Calls on adopted keys that were answered ADOPTREFUSED, by why: not_for_locks, the command or what a script does has no meaning for a lock; other_keys, beside the lock's; not_clear, what the script does to a lock; strict, the pattern's as does not allow it; no_expiry, a lock without an end; over_max_ttl; transaction, it is in one with other keys; native, it would change a lock that LOCK has taken; tracking, the client would keep what it reads; peers, another proxy has the key in a mode that does not go with this one's; not_told, in mode=both its reply would not tell whether it has changed the lock; upstream, it would replace a lock that the upstream has; other.",
		"reason", reasonNames[:], c.reasons[:])
	for i, operation := range operations {
		r.Histogram("lockproxy_adopt_seconds", "From a call on an adopted key to its decision, without those that were refused or not decided: take, of those that want a lock, also if it is held; change, of releases and renewals that were done; read, of all others.", &c.took[i], "operation", operation)
	}
	r.Counter("lockproxy_adopt_upstream_held_total", "Adopted locks that were not taken, since the upstream had their keys: a program that goes past the proxies has them.", c.upstreamHeld.Load())
	r.Counter("lockproxy_adopt_unguarded_total", "Times when the upstream did not say, or not to that client, whether it has the key of an adopted lock: it counts as not having it.", c.unguarded.Load())
	for i, p := range a.patterns {
		if p.Mode == pattern.Both {
			r.Counters("lockproxy_adopt_divergence_total", "Times when the upstream and the lock nodes differed about a lock of a pattern in mode=both: nodes_held, the upstream granted it and the nodes have another's; nodes_lack, the upstream renewed or released it and the nodes have no such grant; upstream_lacks, the nodes have a grant with that value that the upstream has not; unclear, the upstream answered what the call never does.",
				"how", divergenceNames[:], a.divergences[i][:], "pattern", p.Glob)
		}
	}
	r.Counter("lockproxy_adopt_taken_over_total", "Locks that the upstream alone had when they were extended in mode=both, and that the lock nodes have granted to their holders since: they were taken in mode=off, or the nodes had lost them.", c.takenOver.Load())
	r.Counter("lockproxy_adopt_copies_left_total", "Copies at the upstream of grants made in mode=both that were not deleted or moved when the grant was, or not given back when the nodes refused: the upstream did not answer in time, or not to that client. They end by themselves.", c.copiesLeft.Load())
	r.Counter("lockproxy_adopt_signals_sent_total", "Commands that scripts on adopted keys send to waiters behind a change, and that the upstream has answered.", c.signalsSent.Load())
	r.Counter("lockproxy_adopt_signals_lost_total", "Commands to waiters that the upstream has not answered, or has refused: these go on when their own time is over.", c.signalsLost.Load())
	r.Gauge("lockproxy_adopt_scripts", "Scripts that are remembered, also those that cannot be run on a lock.", float64(a.scripts.Len()))
	r.Gauge("lockproxy_adopt_patterns", "Patterns of adopted keys.", float64(len(a.patterns)))
}

// Info adds what the proxy's section of INFO says of adoption. A nil Adoption adds nothing.
func (a *Adoption) Info(add func(name string, value any)) {
	if a == nil {
		return
	}
	calls, refusals := int64(0), int64(0)
	for i := range a.counters.calls {
		for j := range a.counters.calls[i] {
			calls += a.counters.calls[i][j].Load()
		}
		refusals += a.counters.calls[i][refused].Load()
	}
	add("adopt_patterns", len(a.patterns))
	add("adopt_calls", calls)
	add("adopt_refused", refusals)
	add("adopt_upstream_held", a.counters.upstreamHeld.Load())
}
