package upstream

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends"
)

// TestPool_FlappingUpstream: an upstream that goes and comes every second for ten minutes has a line for each of its first changes,
// and then one a minute; when it stays down, or up, the last line says so.
func TestPool_FlappingUpstream(t *testing.T) {
	var down atomic.Bool
	server := newFakeServer(t, func(word string) string {
		if down.Load() {
			return "?\r\n" // no reply that a Redis gives
		}
		return echo(word)
	})
	for _, stays := range []string{"down", "up"} {
		t.Run(stays, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { flap(t, server.addr, &down, stays) })
		})
	}
}

func flap(t *testing.T, addr string, down *atomic.Bool, stays string) {
	s, err := backends.Parse(addr)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	p := NewPool(PoolOptions{Server: s, Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer p.Close()
	said := func() string { // the lines since the last call; the Pool writes them with p.mu locked
		p.mu.Lock()
		defer p.mu.Unlock()
		defer log.Reset()
		return log.String()
	}
	connect := func(isDown bool) {
		down.Store(isDown)
		c, err := p.open(t.Context(), anonymous, false)
		if (err != nil) != isDown {
			t.Fatalf("down: %t, %v", isDown, err)
		}
		if c != nil {
			c.Close()
		}
		time.Sleep(time.Second)
	}
	for range 300 {
		connect(true)
		connect(false)
	}
	text := said()
	if n := strings.Count(text, "upstream is"); n < 15 || n > 20 {
		t.Errorf("%d lines in ten minutes:\n%s", n, text)
	}
	for range 3 {
		connect(true)
		connect(false)
	}
	if stays == "down" {
		connect(true)
	}
	said()
	time.Sleep(time.Minute)
	if text = said(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN msg=\"upstream is "+stays) || !strings.Contains(text, "left_out=") {
		t.Errorf("of an upstream that stays %s:\n%s", stays, text)
	}
}
