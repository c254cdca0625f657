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
	// answerFor is how much of it a connection may take to show that it works.
	answerFor = 2 * time.Second
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

// between is the time between two questions. An answer that takes longer is late, which
// is no loss: the lock is asked for on another connection too.
func (a *lockAsk) between() time.Duration { return min(a.silence()/4, mostBetween) }

// notice is how long before the end of a lease its loss is told, at least: so the child
// of a lost lock has no longer.
func (a *lockAsk) notice() time.Duration {
	return min(a.killAfter, max(20*time.Millisecond, min(a.ttl/10, time.Second)))
}

// command is LOCK, bound to the connection. maxHold is what is left of it.
func (a *lockAsk) command(wait, maxHold time.Duration) []string {
	args := []string{"LOCK", a.name, millis(a.ttl), "OWNER", a.owner, "SESSION", "ONLOSS", "PUSH", "INFO", a.info}
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
	told   bool // by the proxy that kept the lock
}

// A held is a lock that a proxy keeps for this process. Its methods belong to one
// goroutine at a time.
type held struct {
	*lockAsk
	fence string
	since time.Time
	until time.Time // the lock counts as held until then, and the child must be gone
	wire  *wire     // may be broken
	asked time.Time // when the proxy was last asked
	owed  bool      // a question is not answered yet
}

// heard moves the end of what counts as held, by the answer to a question sent at that
// time. validity is what the answer told of the lease, or 0.
func (h *held) heard(sent time.Time, validity time.Duration) {
	if until := sent.Add(max(h.silence(), min(validity, h.ttl, mostSilence))); until.After(h.until) {
		h.until = until
	}
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
	sent := time.Now()
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
	h := &held{lockAsk: a, fence: v.elems[0].text, since: now, wire: w, asked: now}
	h.heard(now, 0)
	h.heard(sent, v.validity())
	return h, nil
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case push := <-h.wire.losses:
			if l := h.lostBy(push); l != nil {
				return l
			}
			continue
		case <-h.wire.replies:
			h.answered()
			continue
		case <-h.wire.ended:
		case <-time.After(time.Until(h.asked.Add(h.between()))):
			if !h.owed && h.question() == nil {
				continue
			}
		}
		if l := h.resume(ctx); l != nil || ctx.Err() != nil {
			return l
		}
	}
}

// lostBy reads a push: lock-lost, name, fence, reason. It is nil for another grant's.
func (h *held) lostBy(push reply) *loss {
	e := push.elems
	if e[1].text != h.name || e[2].text != h.fence {
		return nil
	}
	return &loss{reason: e[3].text, by: time.Now().Add(h.notice()), told: true}
}

// question asks the proxy for something that it answers by itself, whatever state its
// upstream is in; any answer will do.
func (h *held) question() error {
	now := time.Now()
	if err := h.wire.send(now.Add(h.between()), "LOCKCTL", "HELP"); err != nil {
		return err
	}
	h.asked, h.owed = now, true
	return nil
}

// answered notes that the question was.
func (h *held) answered() {
	h.heard(h.asked, 0)
	h.owed = false
}

// resume is for a connection that broke, or on which an answer is late. It goes on with
// another connection that the lock is bound to as well, or with the late answer, whichever
// comes first; until then the old connection stays open, since a proxy gives the lock away
// at its end. It is nil when that is done, or ctx has ended, and else says why the lock is
// lost: nobody answered in time, or the lock is not what it was.
func (h *held) resume(ctx context.Context) *loss {
	trying, stop := context.WithDeadline(ctx, h.until.Add(-h.grace()))
	defer stop()
	tried := make(chan attempt, 1)
	go func() { tried <- h.elsewhere(trying) }()
	select {
	case a := <-tried:
		return h.conclude(ctx, a)
	case push := <-h.wire.losses:
		if l := h.lostBy(push); l != nil {
			stop()
			(<-tried).drop()
			return l
		}
	case <-h.wire.replies:
		h.answered()
	}
	stop()
	if a := <-tried; a.err == nil {
		return h.conclude(ctx, a)
	}
	return nil
}

// conclude is what follows from an attempt, whose error says that the time is over.
func (h *held) conclude(ctx context.Context, a attempt) *loss {
	if a.err == nil && a.wire != nil {
		h.wire.close()
		h.wire, h.asked, h.owed = a.wire, a.sent, false
		h.heard(a.sent, a.validity)
		return nil
	}
	if a.err == nil {
		return &loss{reason: a.lost, by: time.Now().Add(h.notice())}
	}
	select {
	case <-h.wire.replies: // at the last moment
		h.answered()
		return nil
	default:
	}
	if ctx.Err() != nil {
		return nil
	}
	return &loss{reason: "the proxy is gone: " + a.err.Error(), by: h.until}
}

// An attempt is what became of asking other proxies, or on other connections, for the
// lock that is held.
type attempt struct {
	err      error         // not nil: nobody knows
	lost     string        // why it is lost; empty: it is not
	wire     *wire         // that the lock is bound to as well
	sent     time.Time     // when it was asked for
	validity time.Duration // that it has
}

// drop closes the connection, if there is one.
func (a attempt) drop() {
	if a.wire != nil {
		a.wire.close()
	}
}

// elsewhere asks one proxy after the other until one knows, or ctx ends.
func (h *held) elsewhere(ctx context.Context) attempt {
	last := attempt{err: h.wire.fault()}
	for i := 0; ctx.Err() == nil; i++ {
		if last = h.again(ctx, h.proxies[i%len(h.proxies)]); last.err == nil {
			break
		}
		pause(ctx, resumePause)
	}
	return last
}

// again asks one proxy for the lock that is held: its owner enters once more, under the
// same fence, unless it was lost in between.
func (h *held) again(ctx context.Context, s *backends.Server) attempt {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	left := h.maxHold - time.Since(h.since)
	if h.maxHold > 0 && left <= 0 {
		return attempt{lost: "MAXHOLD is over"}
	}
	w, err := dialWire(ctx, s)
	if err != nil {
		return attempt{err: err}
	}
	sent := time.Now()
	v, err := w.ask(ctx, h.command(0, max(left, 0))...)
	switch {
	case err != nil:
		w.close()
		return attempt{err: err}
	case v.kind == '*' && len(v.elems) == 4 && v.elems[0].text == h.fence:
		return attempt{wire: w, sent: sent, validity: v.validity()}
	}
	if v.kind == '*' && len(v.elems) > 0 { // another grant, which nobody waits for
		_, _ = w.do(ctx, "UNLOCK", h.name, h.owner, "FENCE", v.elems[0].text, "ALL")
	}
	w.close()
	return attempt{lost: "it was lost with the connection"}
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
	defer h.drop()
	w := h.wire
	if !h.stillThere() {
		var err error
		if w, err = h.reach(ctx); err != nil {
			return err
		}
		defer w.close()
	}
	_, err := w.ask(ctx, "UNLOCK", h.name, h.owner, "FENCE", h.fence, "ALL")
	if r := (refusal{}); errors.As(err, &r) && (r.word() == "LOCKLOST" || r.word() == "NOTOWNER") {
		return errGone
	}
	return err
}

// stillThere reports whether the connection still works.
func (h *held) stillThere() bool {
	if !h.owed && h.question() != nil {
		return false
	}
	select {
	case <-h.wire.replies:
		h.answered()
		return true
	case <-h.wire.ended:
	case <-time.After(answerFor):
	}
	return false
}

// drop closes the connection.
func (h *held) drop() { h.wire.close() }
