package upstream

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockproxy/lockproxy/backends/loglimit"
)

// lines limits what a Pool logs. It is guarded by the pool's mu.
type lines struct {
	state, reconnects loglimit.Limit
	last              *time.Timer // runs Pool.logLast; nil: no line was left out yet
	err               error       // why the node was down last
}

// changed logs that the node is down, or up again where err is nil, or sees to it that logLast does.
func (p *Pool) changed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.lines.err = err
	}
	leftOut, due := p.lines.state.State(true, time.Now())
	switch {
	case due:
		p.logStateLocked(err, leftOut)
	case p.lines.last == nil:
		p.lines.last = time.AfterFunc(loglimit.Calm, p.logLast)
	default:
		p.lines.last.Reset(loglimit.Calm)
	}
}

// logLast logs how the node is, if lines were left out and it has been so for a while.
func (p *Pool) logLast() {
	p.mu.Lock()
	defer p.mu.Unlock()
	leftOut, due := p.lines.state.State(false, time.Now())
	if !due || p.closed || p.draining.Load() {
		return
	}
	if p.downSince.Load() == 0 {
		p.logStateLocked(nil, leftOut)
	} else {
		p.logStateLocked(p.lines.err, leftOut)
	}
}

func (p *Pool) logStateLocked(err error, leftOut int) {
	line := []slog.Attr{slog.String("upstream", p.opt.Server.String())}
	if err == nil {
		p.opt.Log.LogAttrs(context.Background(), loglimit.Level(leftOut), "upstream is up", loglimit.With(line, leftOut)...)
	} else {
		p.opt.Log.LogAttrs(context.Background(), slog.LevelWarn, "upstream is down", loglimit.With(append(line, slog.Any("error", err)), leftOut)...)
	}
}

// logReconnected logs that a shared connection that was lost has been made again.
func (p *Pool) logReconnected(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if leftOut, due := p.lines.reconnects.Due(loglimit.Changes, time.Now()); due {
		line := []slog.Attr{slog.String("upstream", p.opt.Server.String()), slog.Any("reason", why)}
		p.opt.Log.LogAttrs(context.Background(), slog.LevelInfo, "connected to the upstream again", loglimit.With(line, leftOut)...)
	}
}
