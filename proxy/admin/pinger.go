package admin

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/loglimit"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

const (
	pingEvery = time.Second
	// pingValid is how old a master's last answer may be. It is several pings: a slow command
	// is no reason to be unready.
	pingValid = 3 * time.Second
)

// A pinger sends a PING to each master of the upstream every pingEvery. It is safe for
// concurrent use.
type pinger struct {
	up  *upstream.Upstream
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	masters map[*upstream.Pool]*pingState
}

type pingState struct {
	pinging  bool // a PING is not answered yet
	answered time.Time
	took     time.Duration // by the last answer
	err      error         // of the last PING
	silent   bool          // as logged
	lines    loglimit.Limit
}

func newPinger(up *upstream.Upstream, log *slog.Logger) *pinger {
	return &pinger{up: up, log: log, now: time.Now, masters: map[*upstream.Pool]*pingState{}}
}

// run pings until ctx ends.
func (p *pinger) run(ctx context.Context) {
	var pings sync.WaitGroup
	defer pings.Wait()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		for _, pool := range p.due() {
			pings.Go(func() { p.ping(ctx, pool) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		p.logSilence()
	}
}

// logSilence logs which masters are silent now, and which answer again. That one cannot be reached its Pool logs.
func (p *pinger) logSilence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pool, at := range p.masters {
		silentFor := p.now().Sub(at.answered)
		silent := at.pinging && !at.answered.IsZero() && silentFor >= pingValid
		leftOut, due := at.lines.State(silent != at.silent, p.now())
		at.silent = silent
		if line := []slog.Attr{slog.String("upstream", pool.Addr())}; due && silent {
			line = append(line, slog.Duration("for", silentFor.Round(time.Millisecond)))
			p.log.LogAttrs(context.Background(), slog.LevelWarn, "upstream is silent", loglimit.With(line, leftOut)...)
		} else if due {
			p.log.LogAttrs(context.Background(), loglimit.Level(leftOut), "upstream is silent no more", loglimit.With(line, leftOut)...)
		}
	}
}

// due are the masters to ping now. Former masters are forgotten.
func (p *pinger) due() (pools []*upstream.Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.masters
	p.masters = map[*upstream.Pool]*pingState{}
	for _, pool := range p.up.View().Masters() {
		at := before[pool]
		if at == nil {
			at = &pingState{}
		}
		if p.masters[pool] = at; !at.pinging {
			at.pinging = true
			pools = append(pools, pool)
		}
	}
	return pools
}

func (p *pinger) ping(ctx context.Context, pool *upstream.Pool) {
	began := p.now()
	err := pool.Ping(ctx, p.up.DefaultIdentity())
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.masters[pool]
	if at == nil {
		return
	}
	at.pinging, at.err = false, err
	if err == nil {
		at.answered = p.now()
		at.took = at.answered.Sub(began)
	}
}

// check checks that a master has answered recently. One of a Cluster is enough: the others
// would be missing at other proxies, too.
func (p *pinger) check() check {
	up, all, why := 0, 0, "not asked yet"
	for _, b := range p.statuses() {
		all++
		if b.up {
			up++
		} else if b.err != nil {
			why = b.err.Error()
		} else if !b.answered.IsZero() {
			why = "silent for " + p.now().Sub(b.answered).Round(time.Second).String()
		}
	}
	switch {
	case up == 0:
		return check{true, "upstream", why}
	case all == 1:
		return check{false, "upstream", "answers"}
	}
	return check{false, "upstream", fmt.Sprintf("%d of %d masters answer", up, all)}
}

// A pingStatus is a master's pingState at one time.
type pingStatus struct {
	pingState
	addr string
	up   bool
}

func (p *pinger) statuses() (all []pingStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pool, at := range p.masters {
		all = append(all, pingStatus{*at, pool.Addr(), at.err == nil && p.now().Sub(at.answered) < pingValid})
	}
	slices.SortFunc(all, func(a, b pingStatus) int { return strings.Compare(a.addr, b.addr) })
	return all
}
