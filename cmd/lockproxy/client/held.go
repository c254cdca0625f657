package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
)

const (
	// takeSlack is added to the wait of a LOCK for the timeout of its answer.
	takeSlack = 10 * time.Second
	// reachTimeout bounds connecting for the first LOCK.
	reachTimeout = 5 * time.Second
	// releaseTimeout bounds the UNLOCK at the end.
	releaseTimeout = 5 * time.Second
	// aliveTimeout is the part of it for a connection to answer a probe.
	aliveTimeout = 2 * time.Second
	// silenceLimit bounds the time for which the lock counts as held without an answer of a
	// proxy. It is shorter than a proxy's detection of a vanished client, after which it gives
	// the lock away.
	silenceLimit = 12 * time.Second
	// maxProbeInterval bounds the time between two probes.
	maxProbeInterval = 3 * time.Second
	reconnectPause   = 50 * time.Millisecond // between two attempts
	attemptTimeout   = time.Second           // of one attempt, at most
)

// Options say which lock is to be held, where, and for how long.
type Options struct {
	Proxies           []*backends.Server // at least one; tried in turn
	Name, Owner, Info string
	Shared            bool // to read, beside others that do
	TTL, Wait         time.Duration
	MaxHold           time.Duration // 0: the proxy's own limit
	KillAfter         time.Duration // for the child to end when the lock is lost

	Say func(string) // is told who has the lock that is waited for; nil: nobody is

	request string // the REQ of LOCK and UNLOCK, of one Take: others may have the same owner
}

// SetName sets the name once: of two the command would run without the other lock.
func (a *Options) SetName(name string) error {
	if a.Name != "" {
		return errors.New("is given twice; run takes one lock: let it run another `lockproxy run` for the next")
	}
	a.Name = name
	return nil
}

// maxSilence is the time for which the lock counts as held after a proxy's last answer. A
// proxy renews at a third of the lease, so half of it is left then, unless renewals fail.
func (a *Options) maxSilence() time.Duration { return min(a.TTL/2, silenceLimit) }

// childGrace is the part of the silence that is left for the child to end.
func (a *Options) childGrace() time.Duration { return min(a.KillAfter, a.maxSilence()/3) }

// probeInterval is the time between two probes, and the time for an answer: after it the lock
// is acquired on another connection too.
func (a *Options) probeInterval() time.Duration { return min(a.maxSilence()/4, maxProbeInterval) }

// lossNotice is the least time from the announcement of a loss to the end of the lease: the
// child has no longer.
func (a *Options) lossNotice() time.Duration {
	return min(a.KillAfter, max(20*time.Millisecond, min(a.TTL/10, time.Second)))
}

// command is LOCK with SESSION. maxHold is the rest of it.
func (a *Options) command(wait, maxHold time.Duration) []string {
	args := a.reading("LOCK", a.Name, Millis(a.TTL), "OWNER", a.Owner, "REQ", a.request, "SESSION", "ONLOSS", "PUSH", "INFO", a.Info)
	if wait > 0 {
		args = append(args, "WAIT", Millis(wait))
	}
	if maxHold > 0 {
		args = append(args, "MAXHOLD", Millis(maxHold))
	}
	return args
}

// reading is a command with SHARED, if the lock is.
func (a *Options) reading(command ...string) []string {
	if a.Shared {
		command = append(command, "SHARED")
	}
	return command
}

// unlock is UNLOCK of what this run took under a fence, over whichever connections. Holds that others took as the same owner stay.
func (a *Options) unlock(fence string) []string {
	return a.reading("UNLOCK", a.Name, a.Owner, "FENCE", fence, "REQ", a.request)
}

// Millis is a duration as an argument of LOCK: whole milliseconds, at least one.
func Millis(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + "ms"
}

// A Loss is the end of a lock before that of the child, which must be gone by then.
type Loss struct {
	Reason    string
	By        time.Time
	Announced bool // by the proxy
}

// A Held is a lock that a proxy keeps for this process. It is not safe for concurrent use.
type Held struct {
	*Options
	Fence    string
	since    time.Time
	until    time.Time // the lock counts as held until then, and the child must be gone
	wire     *Conn     // may be broken
	probedAt time.Time // when the last probe was sent
	probing  bool      // the last probe is not answered yet
}

// extend moves h.until, by an answer to a request that was sent at that time. validity is that
// of the lease in the answer, or 0.
func (h *Held) extend(sent time.Time, validity time.Duration) {
	if until := sent.Add(max(h.maxSilence(), min(validity, h.TTL, silenceLimit))); until.After(h.until) {
		h.until = until
	}
}

// Take acquires the lock. If the proxy shuts down or is lost meanwhile, it asks the next one that can be reached, for the
// rest of the wait. An error is an *exit.Error.
func (a *Options) Take(ctx context.Context) (*Held, error) {
	a.request = rand.Text()
	until := time.Now().Add(a.Wait)
	h, err := a.takeWithin(ctx, a.Wait)
	for first := true; mayBeAnswered(err, first) && time.Now().Before(until) && ctx.Err() == nil; first = false {
		sleep(ctx, reconnectPause)
		h, err = a.takeWithin(ctx, max(0, time.Until(until)))
	}
	return h, err
}

// An unanswered is why a LOCK was not answered.
type unanswered struct {
	error
	sent bool
}

func (u unanswered) Unwrap() error { return u.error }

// mayBeAnswered reports whether a LOCK that failed may do better when it is sent again. Who has reached no proxy yet does
// not try for longer.
func mayBeAnswered(err error, first bool) bool {
	if r := (Refusal{}); errors.As(err, &r) {
		return r.Word() == "DRAINING"
	}
	u := unanswered{}
	return errors.As(err, &u) && (u.sent || !first)
}

func (a *Options) takeWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	w, err := a.Dial(ctx)
	if err != nil {
		return nil, WithCode(unanswered{err, false}, exit.Unavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, wait+takeSlack)
	defer cancel()
	if a.Say != nil && wait > 0 {
		if who := a.holder(ctx, w); who != "" {
			a.Say("waiting up to " + wait.Round(time.Second).String() + ": " + who)
		}
	}
	sent := time.Now()
	v, err := w.Ask(ctx, a.command(wait, a.MaxHold)...)
	now := time.Now()
	if err == nil && isGrant(v) {
		h := &Held{Options: a, Fence: v.Elems[0].Text, since: now, wire: w, probedAt: now}
		h.extend(now, 0)
		h.extend(sent, validity(v))
		return h, nil
	}
	who := ""
	if err == nil && v.Kind == '_' {
		who = a.holder(ctx, w)
	}
	w.Close()
	switch {
	case err != nil:
		return nil, WithCode(unanswered{err, true}, exit.Misuse)
	case v.Kind == '_':
		return nil, exit.With(exit.Busy, errors.New(cmp.Or(who, a.Name+" is held by another")))
	}
	return nil, exit.With(exit.Unavailable, errors.New("LOCK: not the answer of a lockproxy"))
}

// holder says who has a lock, for how long, and what it said of itself, or who reads it; empty if nobody does, or that cannot be told.
func (a *Options) holder(ctx context.Context, w *Conn) string {
	v, err := w.Ask(ctx, "LOCKCTL", "INFO", a.Name)
	ms, bad := strconv.ParseInt(v.Field("held-ms").Text, 10, 64)
	if err != nil || bad != nil {
		return ""
	}
	if v.Field("holds").Text == "0" {
		return a.readers(v.Field("read-by").Elems)
	}
	text := fmt.Sprintf("%s is held by %s for %v", Printable(a.Name), cmp.Or(Printable(v.Field("owner").Text), "another"), time.Duration(ms/100*100)*time.Millisecond)
	if info := v.Field("info").Text; info != "" {
		text += " (" + Printable(info) + ")"
	}
	return text
}

// readers says who reads a lock that nobody holds. Who would read it as well is kept out by a writer that waits.
func (a *Options) readers(all []resp.Tree) string {
	if len(all) == 0 {
		return ""
	}
	text := Printable(a.Name) + " is read by " + cmp.Or(Printable(all[0].Field("owner").Text), "another")
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if a.Shared {
		text += ", and a writer waits"
	}
	return text
}

// Dial connects to the first proxy that can be reached. Each has its share of the time, so that one that is silent leaves
// some for the next.
func (a *Options) Dial(ctx context.Context) (*Conn, error) { return a.dial(ctx, Dial) }

// DialToAsk is Dial for questions about locks, which a proxy also answers while its upstream is down.
func (a *Options) DialToAsk(ctx context.Context) (*Conn, error) { return a.dial(ctx, dialToAsk) }

func (a *Options) dial(ctx context.Context, dial func(context.Context, *backends.Server) (*Conn, error)) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	end, _ := ctx.Deadline()
	var errs []error
	for i, s := range a.Proxies {
		share, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(len(a.Proxies)-i))
		w, err := dial(share, s)
		cancel()
		if err == nil {
			return w, nil
		}
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = op.Err // without the address again
		}
		errs = append(errs, fmt.Errorf("%s: %w", s, err))
	}
	err := errors.Join(errs...)
	if r := (Refusal{}); errors.As(err, &r) {
		return nil, err
	}
	return nil, fmt.Errorf("%w\nNo lockproxy answers there. Say where one is with --proxy or LOCKPROXY_PROXY, or start one: lockproxy serve, or for a trial lockproxy dev", err)
}

// WithCode is an error with its exit code: that of what a proxy refused, or that no proxy answered. misuse is the code of an
// error reply that has none of its own.
func WithCode(err error, misuse int) error {
	code := exit.Unavailable
	if r := (Refusal{}); errors.As(err, &r) {
		switch r.Word() {
		case "ERR", "MAXWAIT":
			code = misuse
		case "QUEUEFULL":
			code = exit.Busy
		case "NOAUTH", "NOPERM", "WRONGPASS":
			code = exit.NoPermission
		}
	}
	return exit.With(code, err)
}

// Keep probes the proxy until the lock is lost, or ctx ends, which is no loss: nil.
func (h *Held) Keep(ctx context.Context) *Loss {
	for {
		select {
		case <-ctx.Done():
			return nil
		case push := <-h.wire.losses:
			if l := h.lossOf(push); l != nil {
				return l
			}
			continue
		case <-h.wire.replies:
			h.probeAnswered()
			continue
		case <-h.wire.ended:
		case <-time.After(time.Until(h.probedAt.Add(h.probeInterval()))):
			if !h.probing && h.probe() == nil {
				continue
			}
		}
		if l := h.reconnect(ctx); l != nil || ctx.Err() != nil {
			return l
		}
	}
}

// lossOf reads a push: lock-lost, name, fence, reason. It is nil for another grant.
func (h *Held) lossOf(push resp.Tree) *Loss {
	e := push.Elems
	if e[1].Text != h.Name || e[2].Text != h.Fence {
		return nil
	}
	return &Loss{Reason: e[3].Text, By: time.Now().Add(h.lossNotice()), Announced: true}
}

// probe sends a command that the proxy answers by itself, whatever the state of its upstream.
// Any answer will do.
func (h *Held) probe() error {
	now := time.Now()
	if err := h.wire.send(now.Add(h.probeInterval()), "LOCKCTL", "HELP"); err != nil {
		return err
	}
	h.probedAt, h.probing = now, true
	return nil
}

// probeAnswered notes the answer.
func (h *Held) probeAnswered() {
	h.extend(h.probedAt, 0)
	h.probing = false
}

// reconnect is for a connection that is broken, or on which an answer is late. It acquires the
// lock on another connection as well, or takes the late answer, whichever comes first; until
// then the old connection stays open, since a proxy gives the lock away at its end. It
// returns nil when that is done, or ctx has ended. Otherwise the lock is lost: no proxy
// answered in time, or another grant has the lock.
func (h *Held) reconnect(ctx context.Context) *Loss {
	trying, stop := context.WithDeadline(ctx, h.until.Add(-h.childGrace()))
	defer stop()
	tried := make(chan attempt, 1)
	go func() { tried <- h.reacquireAnywhere(trying) }()
	select {
	case a := <-tried:
		return h.finish(ctx, a)
	case push := <-h.wire.losses:
		if l := h.lossOf(push); l != nil {
			stop()
			(<-tried).closeConn()
			return l
		}
	case <-h.wire.replies:
		h.probeAnswered()
	}
	stop()
	if a := <-tried; a.err == nil {
		return h.finish(ctx, a)
	}
	return nil
}

// finish takes over an attempt's connection. Its error means that the time is over.
func (h *Held) finish(ctx context.Context, a attempt) *Loss {
	if a.err == nil && a.wire != nil {
		h.wire.Close()
		h.wire, h.probedAt, h.probing = a.wire, a.sent, false
		h.extend(a.sent, a.validity)
		return nil
	}
	if a.err == nil {
		return &Loss{Reason: a.lost, By: time.Now().Add(h.lossNotice())}
	}
	select {
	case <-h.wire.replies: // at the last moment
		h.probeAnswered()
		return nil
	default:
	}
	if ctx.Err() != nil {
		return nil
	}
	return &Loss{Reason: "the proxy is gone: " + a.err.Error(), By: h.until}
}

// An attempt is the result of acquiring the held lock on another connection.
type attempt struct {
	err      error         // not nil: not known
	lost     string        // the reason of a loss; empty: none
	wire     *Conn         // has the lock as well
	sent     time.Time     // when LOCK was sent
	validity time.Duration // of the lease
}

// closeConn closes the connection; it may be nil.
func (a attempt) closeConn() {
	if a.wire != nil {
		a.wire.Close()
	}
}

// reacquireAnywhere asks one proxy after the other until one answers, or ctx ends.
func (h *Held) reacquireAnywhere(ctx context.Context) attempt {
	last := attempt{err: h.wire.fault()}
	for i := 0; ctx.Err() == nil; i++ {
		at := i % len(h.Proxies)
		share, cancel := shareOf(ctx, len(h.Proxies)-at)
		last = h.reacquire(share, h.Proxies[at])
		if cancel(); last.err == nil {
			break
		}
		sleep(ctx, reconnectPause)
	}
	return last
}

// shareOf is ctx for the first of so many attempts: one at a proxy that is silent leaves time for the others.
func shareOf(ctx context.Context, attempts int) (context.Context, context.CancelFunc) {
	share := attemptTimeout
	if end, ok := ctx.Deadline(); ok {
		share = min(share, time.Until(end)/time.Duration(attempts))
	}
	return context.WithTimeout(ctx, share)
}

// reacquire re-enters the held lock through a proxy, under the same fence. With another fence
// it was lost in between.
func (h *Held) reacquire(ctx context.Context, s *backends.Server) attempt {
	left := h.MaxHold - time.Since(h.since)
	if h.MaxHold > 0 && left <= 0 {
		return attempt{lost: "MAXHOLD is over"}
	}
	w, err := Dial(ctx, s)
	if err != nil {
		return attempt{err: err}
	}
	sent := time.Now()
	v, err := w.Ask(ctx, h.command(0, max(left, 0))...)
	switch {
	case err != nil:
		w.Close()
		return attempt{err: err}
	case isGrant(v) && v.Elems[0].Text == h.Fence && validity(v) > 0: // 0: it has been given back
		return attempt{wire: w, sent: sent, validity: validity(v)}
	}
	if v.Kind == '*' && len(v.Elems) > 0 { // another grant, which is not wanted
		_, _ = w.Do(ctx, h.unlock(v.Elems[0].Text)...)
	}
	w.Close()
	return attempt{lost: "it was lost with the connection"}
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ErrGone: UNLOCK found that the lock was lost.
var ErrGone = errors.New("the lock was lost before the command ended")

// Release unlocks and closes the connection. Its error is ErrGone, or the reason why the
// lock stays until its lease ends.
func (h *Held) Release() error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	defer h.Close()
	w := h.wire
	if !h.alive() {
		var err error
		if w, err = h.Dial(ctx); err != nil {
			return err
		}
		defer w.Close()
	}
	_, err := w.Ask(ctx, h.unlock(h.Fence)...)
	if r := (Refusal{}); errors.As(err, &r) && (r.Word() == "LOCKLOST" || r.Word() == "NOTOWNER") {
		return ErrGone
	}
	return err
}

// alive reports whether the connection answers a probe.
func (h *Held) alive() bool {
	if !h.probing && h.probe() != nil {
		return false
	}
	select {
	case <-h.wire.replies:
		h.probeAnswered()
		return true
	case <-h.wire.ended:
	case <-time.After(aliveTimeout):
	}
	return false
}

// Close closes the connection, at the end of which the proxy gives back what is not released.
func (h *Held) Close() { h.wire.Close() }
