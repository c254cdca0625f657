// Package loglimit writes a log, as text or JSON, and keeps a storm of lines of the same kind from filling it.
package loglimit

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	limitWindow = 10 * time.Second // in which lines of a kind are counted together
	debugFactor = 50               // the limit of level debug is so many times higher
	maxKinds    = 100              // that are counted apart
)

// New is a log of lines from a level on, as key=value or JSON, with the limit of Handler.
func New(w io.Writer, json bool, level slog.Level, limit int) *slog.Logger {
	opt := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(w, opt)
	if json {
		opt.ReplaceAttr = durationAsText // as the text format has it, in place of a number of nanoseconds
		handler = slog.NewJSONHandler(w, opt)
	}
	return slog.New(Handler(handler, limit))
}

// durationAsText makes a duration "1.3s".
func durationAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// A limitedHandler writes at most so many lines of a kind, a level and a message, in a
// window. The kind's next line has the number of suppressed ones; if none comes, a line of
// another kind adds one that has it. See docs/decisions/0013.
type limitedHandler struct {
	slog.Handler
	limiter *limiter
}

// Handler is a handler that writes at most limit lines of a kind, a level and a message, in ten
// seconds, and fifty times as many of level debug; 0: all. It is safe for concurrent use if to is.
func Handler(to slog.Handler, limit int) slog.Handler {
	if limit == 0 {
		return to
	}
	return &limitedHandler{to, &limiter{limit: limit, kinds: map[lineKind]*kindWindow{}}}
}

// Handle implements slog.Handler.
func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	now := r.Time
	if now.IsZero() {
		now = time.Now()
	}
	suppressed, write, ended := h.limiter.count(lineKind{r.Level, r.Message}, now)
	for k, n := range ended {
		line := slog.NewRecord(now, k.level, k.message, 0)
		line.AddAttrs(slog.Int("suppressed", n))
		if err := h.Handler.Handle(ctx, line); err != nil {
			return err
		}
	}
	if !write {
		return nil
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitedHandler{h.Handler.WithAttrs(attrs), h.limiter}
}

// WithGroup implements slog.Handler.
func (h *limitedHandler) WithGroup(name string) slog.Handler {
	return &limitedHandler{h.Handler.WithGroup(name), h.limiter}
}

// A lineKind is the common part of lines that are counted together.
type lineKind struct {
	level   slog.Level
	message string
}

type kindWindow struct {
	began               time.Time
	written, suppressed int
}

// A limiter counts lines by kind. It is safe for concurrent use.
type limiter struct {
	limit int

	mu    sync.Mutex
	kinds map[lineKind]*kindWindow
}

// count counts a line. It returns whether to write it and how many of its kind were
// suppressed before. ended are the suppressed lines of other kinds whose window is over.
func (s *limiter) count(k lineKind, now time.Time) (suppressed int, write bool, ended map[lineKind]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds[k] == nil && len(s.kinds) >= maxKinds {
		k.message = "many kinds of lines"
	}
	for other, w := range s.kinds {
		if other == k || now.Sub(w.began) < limitWindow {
			continue
		}
		if w.suppressed > 0 {
			if ended == nil {
				ended = map[lineKind]int{}
			}
			ended[other] = w.suppressed
		}
		delete(s.kinds, other)
	}
	w := s.kinds[k]
	if w == nil {
		w = &kindWindow{began: now}
		s.kinds[k] = w
	}
	if now.Sub(w.began) >= limitWindow {
		w.began, w.written = now, 0
	}
	if w.written >= s.limitOf(k.level) {
		w.suppressed++
		return 0, false, ended
	}
	w.written++
	suppressed, w.suppressed = w.suppressed, 0
	return suppressed, true, ended
}

func (s *limiter) limitOf(l slog.Level) int {
	if l < slog.LevelInfo {
		return s.limit * debugFactor
	}
	return s.limit
}
