package loglimit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// A storm costs few lines, and every line that was not written is counted in one that was.
func TestHandler_Storm(t *testing.T) {
	var out bytes.Buffer
	h := Handler(slog.NewTextHandler(&out, nil), 5).WithAttrs([]slog.Attr{slog.String("pid", "1")})
	at := time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC)
	say := func(after time.Duration, level slog.Level, message string) {
		t.Helper()
		if err := h.Handle(context.Background(), slog.NewRecord(at.Add(after), level, message, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		say(0, slog.LevelWarn, "storm")
		say(time.Second, slog.LevelInfo, "storm") // another level is another kind
	}
	if got := strings.Count(out.String(), "\n"); got != 10 {
		t.Errorf("%d lines for two storms in one window, want 5 each:\n%s", got, out.String())
	}
	out.Reset()
	say(10*time.Second, slog.LevelWarn, "storm")
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "suppressed=995") || !strings.Contains(got, "pid=1") {
		t.Errorf("the first of the next window: %s", got)
	}
	out.Reset()
	say(11*time.Second, slog.LevelInfo, "calm")
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "level=INFO msg=storm pid=1 suppressed=995") {
		t.Errorf("what was suppressed of a storm that is over: %s", got)
	}
	out.Reset()
	say(30*time.Second, slog.LevelInfo, "calm")
	if got := out.String(); strings.Contains(got, "suppressed") {
		t.Errorf("nothing was suppressed: %s", got)
	}
}

// Messages that are all different are bounded together.
func TestHandler_KindsAreBounded(t *testing.T) {
	var out bytes.Buffer
	h := Handler(slog.NewTextHandler(&out, nil), 5)
	log := slog.New(h)
	for i := range 10_000 {
		log.Warn(fmt.Sprint("message ", i))
	}
	if got := strings.Count(out.String(), "\n"); got > maxKinds+2*5 {
		t.Errorf("%d lines", got)
	}
	if got := len(h.(*limitedHandler).kinds.limits); got > maxKinds+1 {
		t.Errorf("%d kinds are remembered", got)
	}
}

func TestHandler_Limits(t *testing.T) {
	tests := []struct {
		limit int
		level slog.Level
		want  int
	}{
		{0, slog.LevelWarn, 2000},
		{3, slog.LevelWarn, 3},
		{3, slog.LevelError, 3},
		{3, slog.LevelDebug, 3 * debugFactor},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		h := Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}), tt.limit)
		at := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 500 {
					_ = h.Handle(t.Context(), slog.NewRecord(at, tt.level, "storm", 0))
				}
			})
		}
		wg.Wait()
		if got := strings.Count(out.String(), "\n"); got != tt.want {
			t.Errorf("limit %d, %v: %d lines, want %d", tt.limit, tt.level, got, tt.want)
		}
	}
}
