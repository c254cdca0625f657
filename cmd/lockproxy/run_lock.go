package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends"
)

const (
	// takeSlack is how much longer than its wait a LOCK may take to be answered.
	takeSlack = 10 * time.Second
	// reachTimeout bounds the opening of a connection for the first LOCK.
	reachTimeout = 5 * time.Second
	// giveBackFor bounds the UNLOCK at the end.
	giveBackFor = 5 * time.Second
	// mostSilence is for how long at most the lock is taken to be held while no proxy
	// says so. It is shorter than what a proxy needs to see that a client has vanished,
	// after which it gives the lock away.
	mostSilence = 12 * time.Second
	// mostBetween is the longest time between two questions whether the proxy is there.
	mostBetween = 3 * time.Second
	resumePause = 50 * time.Millisecond // between two rounds of trying to connect again
	tryFor      = time.Second           // one of these tries
)

// A lockAsk is what run wants.
type lockAsk struct {
	proxies           []*backends.Server // at least one; tried in turn
	name, owner, info string
	ttl, wait         time.Duration
	maxHold           time.Duration // 0: the proxy's own limit
	killAfter         time.Duration
}

// silence is for how long the lock counts as held after a proxy last said so. A proxy
// renews at a third of the lease, so half of it is left then, unless renewals fail.
func (a *lockAsk) silence() time.Duration { return min(a.ttl/2, mostSilence) }

// grace is how much of the silence is left for the child to end.
func (a *lockAsk) grace() time.Duration { return min(a.killAfter, a.silence()/3) }

// between is the time between two questions, and how long an answer may take.
func (a *lockAsk) between() time.Duration { return min(a.silence()/4, mostBetween) }

// notice is how long before the end of a lease its loss is told, at least: so the child
// of a lost lock has no longer.
func (a *lockAsk) notice() time.Duration {
	return min(a.killAfter, max(20*time.Millisecond, min(a.ttl/10, time.Second)))
}

// command is LOCK, bound to the connection. maxHold is what is left of it.
func (a *lockAsk) command(wait, maxHold time.Duration) []string {
	args := []string{"LOCK", a.name, millis(a.ttl), "OWNER", a.owner, "SESSION", "INFO", a.info}
	if wait > 0 {
		args = append(args, "WAIT", millis(wait))
	}
	if maxHold > 0 {
		args = append(args, "MAXHOLD", millis(maxHold))
	}
	return args
}

func millis(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + "ms"
}

// A loss is the end of a lock before that of the child, which must be gone by then.
type loss struct {
	reason string
	by     time.Time
}

// A held is a lock that a proxy keeps for this process. Its methods belong to one
// goroutine at a time.
type held struct {
	*lockAsk
	fence string
	since time.Time
	alive time.Time // when the proxy was last known to keep the lock
	wire  *wire     // nil: broken
}

// take asks for the lock, and if the proxy that is asked shuts down, the next one that
// can be reached, for what is left of the wait. An error is a *exitError.
func (a *lockAsk) take(ctx context.Context) (*held, error) {
	until := time.Now().Add(a.wait)
	for wait := a.wait; ; wait = max(0, time.Until(until)) {
		h, err := a.takeWithin(ctx, wait)
		if r := (refusal{}); !errors.As(err, &r) || r.word() != "DRAINING" || !time.Now().Before(until) {
			return h, err
		}
		pause(ctx, resumePause)
	}
}

func (a *lockAsk) takeWithin(ctx context.Context, wait time.Duration) (*held, error) {
	w, err := a.reach(ctx)
	if err != nil {
		return nil, refused(err, exitUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, wait+takeSlack)
	defer cancel()
	v, err := w.ask(ctx, a.command(wait, a.maxHold)...)
	now := time.Now()
	switch {
	case err != nil:
		w.close()
		if r := (refusal{}); errors.As(err, &r) && strings.HasPrefix(r.text, "ERR unknown command") {
			return nil, &exitError{exitUnavailable, errors.New("LOCK: a Redis answers there, not a lockproxy")}
		}
		return nil, refused(err, exitMisuse)
	case v.kind == '_':
		w.close()
		return nil, &exitError{exitBusy, fmt.Errorf("%s is held by another", a.name)}
	case v.kind != '*' || len(v.elems) != 4:
		w.close()
		return nil, &exitError{exitUnavailable, errors.New("LOCK: not the answer of a lockproxy")}
	}
	return &held{lockAsk: a, fence: v.elems[0].text, since: now, alive: now, wire: w}, nil
}

// reach connects to the first proxy that can be.
func (a *lockAsk) reach(ctx context.Context) (*wire, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	var errs []error
	for _, s := range a.proxies {
		w, err := dialWire(ctx, s)
		if err == nil {
			return w, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s, err))
	}
	return nil, errors.Join(errs...)
}

// refused puts a failure to get the lock into an exit code; misuse is that of an error
// reply which names no other.
func refused(err error, misuse int) error {
	code := exitUnavailable
	if r := (refusal{}); errors.As(err, &r) {
		switch r.word() {
		case "ERR", "MAXWAIT":
			code = misuse
		case "QUEUEFULL":
			code = exitBusy
		case "NOAUTH", "NOPERM", "WRONGPASS":
			code = exitNoPermission
		}
	}
	return &exitError{code, err}
}

// keep watches over the lock until ctx ends, which is no loss: nil.
func (h *held) keep(ctx context.Context) *loss {
	t := time.NewTicker(h.between())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case push := <-h.wire.losses:
			if reason, ours := h.lostBy(push); ours {
				return &loss{reason, time.Now().Add(h.notice())}
			}
			continue
		case <-h.wire.ended:
		case <-t.C:
			if h.stillThere() {
				continue
			}
		}
		if l := h.resume(ctx); l != nil || ctx.Err() != nil {
			return l
		}
	}
}

// lostBy reads a push: lock-lost, name, fence, reason.
func (h *held) lostBy(push reply) (reason string, ours bool) {
	e := push.elems
	if e[1].text != h.name || e[2].text != h.fence {
		return "", false
	}
	return e[3].text, true
}

// stillThere asks the proxy for something that it answers by itself, whatever state
// its upstream is in; any answer will do.
func (h *held) stillThere() bool {
	sent := time.Now()
	if _, err := h.wire.within(h.between(), "LOCKCTL", "HELP"); err != nil {
		return false
	}
	h.alive = sent
	return true
}

// resume binds the lock to a new connection, after the old one broke. It is nil when
// that is done, or ctx has ended, and else says why the lock is lost: nobody could be
// asked in time, or the lock is not what it was.
func (h *held) resume(ctx context.Context) *loss {
	old := h.wire
	h.wire = nil
	old.close()
	select {
	case push := <-old.losses:
		if reason, ours := h.lostBy(push); ours {
			return &loss{reason, time.Now().Add(h.notice())}
		}
	default:
	}
	last := old.err
	until := h.alive.Add(h.silence() - h.grace())
	for i := 0; ctx.Err() == nil && time.Now().Before(until); i++ {
		l, err := h.again(ctx, h.proxies[i%len(h.proxies)], until)
		if err == nil {
			return l
		}
		last = err
		pause(ctx, resumePause)
	}
	if ctx.Err() != nil {
		return nil
	}
	return &loss{"the proxy is gone: " + last.Error(), h.alive.Add(h.silence())}
}

// again asks one proxy for the lock that is held: its owner enters once more, under the
// same fence, unless it was lost in between. An error says that it is not known.
func (h *held) again(ctx context.Context, s *backends.Server, until time.Time) (*loss, error) {
	ctx, cancel := context.WithDeadline(ctx, minTime(until, time.Now().Add(tryFor)))
	defer cancel()
	left := h.maxHold - time.Since(h.since)
	if h.maxHold > 0 && left <= 0 {
		return &loss{"MAXHOLD is over", time.Now().Add(h.notice())}, nil
	}
	w, err := dialWire(ctx, s)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	v, err := w.ask(ctx, h.command(0, max(left, 0))...)
	switch {
	case err != nil:
		w.close()
		return nil, err
	case v.kind == '*' && len(v.elems) == 4 && v.elems[0].text == h.fence:
		h.wire, h.alive = w, sent
		return nil, nil
	}
	if v.kind == '*' && len(v.elems) > 0 { // another grant, which nobody waits for
		_, _ = w.do(ctx, "UNLOCK", h.name, h.owner, "FENCE", v.elems[0].text, "ALL")
	}
	w.close()
	return &loss{"it was lost with the connection", time.Now().Add(h.notice())}, nil
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// pause is for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// errGone says that the lock was lost before it was given back.
var errGone = errors.New("the lock was lost before the command ended")

// giveBack unlocks and closes the connection. Its error is errGone, or says why the
// lock stays until its lease ends.
func (h *held) giveBack() error {
	ctx, cancel := context.WithTimeout(context.Background(), giveBackFor)
	defer cancel()
	if h.wire == nil || !h.stillThere() {
		if err := h.connect(ctx); err != nil {
			return err
		}
	}
	defer h.drop()
	_, err := h.wire.ask(ctx, "UNLOCK", h.name, h.owner, "FENCE", h.fence, "ALL")
	if r := (refusal{}); errors.As(err, &r) && (r.word() == "LOCKLOST" || r.word() == "NOTOWNER") {
		return errGone
	}
	return err
}

func (h *held) connect(ctx context.Context) (err error) {
	h.drop()
	h.wire, err = h.reach(ctx)
	return err
}

// drop closes the connection, if there is one.
func (h *held) drop() {
	if h.wire != nil {
		h.wire.close()
	}
	h.wire = nil
}
