package loglimit

import (
	"context"
	"io"
	"log/slog"
	"time"
)

const (
	handlerWindow = 10 * time.Second
	debugFactor   = 50 // the limit of level debug is so many times higher
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

// A limitedHandler writes at most so many lines of a kind, a level and a message, in a window. If no line of the kind tells how many
// were left out, a line of another kind adds one that does. See docs/decisions/0013.
type limitedHandler struct {
	slog.Handler
	limit int
	kinds *Kinds[lineKind]
}

// A lineKind is the common part of lines that are counted together.
type lineKind struct {
	level   slog.Level
	message string
}

// Handler is a handler that writes at most limit lines of a kind, a level and a message, in ten
// seconds, and fifty times as many of level debug; 0: all. It is safe for concurrent use if to is.
func Handler(to slog.Handler, limit int) slog.Handler {
	if limit == 0 {
		return to
	}
	return &limitedHandler{to, limit, &Kinds[lineKind]{}}
}

// Handle implements slog.Handler.
func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	now, limit := r.Time, h.limit
	if now.IsZero() {
		now = time.Now()
	}
	if r.Level < slog.LevelInfo {
		limit *= debugFactor
	}
	kind := lineKind{r.Level, r.Message}
	for k, n := range h.kinds.Ended(kind, now) {
		line := slog.NewRecord(now, k.level, k.message, 0)
		line.AddAttrs(slog.Int("suppressed", n))
		if err := h.Handler.Handle(ctx, line); err != nil {
			return err
		}
	}
	suppressed, due := h.kinds.Due(kind, lineKind{r.Level, "many kinds of lines"}, Rule{limit, limit, handlerWindow}, now)
	if !due {
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
	return &limitedHandler{h.Handler.WithAttrs(attrs), h.limit, h.kinds}
}

// WithGroup implements slog.Handler.
func (h *limitedHandler) WithGroup(name string) slog.Handler {
	return &limitedHandler{h.Handler.WithGroup(name), h.limit, h.kinds}
}
