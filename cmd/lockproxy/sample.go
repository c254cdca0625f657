package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	sampleEvery = 10 * time.Second // for how long lines of a kind are counted together
	debugFactor = 50               // so many times as many lines that only debugging shows
	mostKinds   = 100              // that are told apart
)

// A sampled is a log in which no kind of line, a level and a message, comes more often
// than its limit in ten seconds. The next one that comes says how many were suppressed; if
// none does, another kind's line brings one that does. See docs/decisions/0013.
type sampled struct {
	slog.Handler
	sampler *sampler
}

// newSampled lets at most limit lines of a kind through; 0: all.
func newSampled(to slog.Handler, limit int) slog.Handler {
	if limit == 0 {
		return to
	}
	return &sampled{to, &sampler{limit: limit, kinds: map[lineKind]*window{}}}
}

// Handle implements slog.Handler.
func (h *sampled) Handle(ctx context.Context, r slog.Record) error {
	now := r.Time
	if now.IsZero() {
		now = time.Now()
	}
	suppressed, through, ended := h.sampler.see(lineKind{r.Level, r.Message}, now)
	for k, n := range ended {
		line := slog.NewRecord(now, k.level, k.message, 0)
		line.AddAttrs(slog.Int("suppressed", n))
		if err := h.Handler.Handle(ctx, line); err != nil {
			return err
		}
	}
	if !through {
		return nil
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *sampled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &sampled{h.Handler.WithAttrs(attrs), h.sampler}
}

// WithGroup implements slog.Handler.
func (h *sampled) WithGroup(name string) slog.Handler {
	return &sampled{h.Handler.WithGroup(name), h.sampler}
}

// A lineKind is what lines have in common that are counted together.
type lineKind struct {
	level   slog.Level
	message string
}

// A window is ten seconds of one kind.
type window struct {
	began               time.Time
	through, suppressed int
}

// A sampler counts lines. It is safe for concurrent use.
type sampler struct {
	limit int

	mu    sync.Mutex
	kinds map[lineKind]*window
}

// see counts a line, and says whether it is to be written and how many like it were not
// before. ended are other kinds of which some were not, and none has come since.
func (s *sampler) see(k lineKind, now time.Time) (suppressed int, through bool, ended map[lineKind]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds[k] == nil && len(s.kinds) >= mostKinds {
		k.message = "many kinds of lines"
	}
	for other, w := range s.kinds {
		if other == k || now.Sub(w.began) < sampleEvery {
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
		w = &window{began: now}
		s.kinds[k] = w
	}
	if now.Sub(w.began) >= sampleEvery {
		w.began, w.through = now, 0
	}
	if w.through >= s.limitOf(k.level) {
		w.suppressed++
		return 0, false, ended
	}
	w.through++
	suppressed, w.suppressed = w.suppressed, 0
	return suppressed, true, ended
}

func (s *sampler) limitOf(l slog.Level) int {
	if l < slog.LevelInfo {
		return s.limit * debugFactor
	}
	return s.limit
}
