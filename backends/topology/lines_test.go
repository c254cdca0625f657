package topology

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatcher_Flapping: of probes that fail and work in turns, and of a master that goes and comes, there are a few lines at once, one
// a minute, and a last one.
func TestWatcher_Flapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		seed := parse(t, "redis://h:1?addr=h:2")
		w, err := New(seed, Options{Mode: ModeReplicated, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		with, without := &Topology{Shards: []Shard{{Master: seed}}}, &Topology{Shards: []Shard{{}}}
		for i := range 600 {
			switch i % 4 {
			case 0:
				w.logChange(without, nil)
			case 1:
				w.logChange(with, nil)
			case 2:
				w.logChange(nil, errors.New("no answer"))
			default:
				w.logChange(nil, nil)
			}
			time.Sleep(time.Second)
		}
		for _, texts := range [][2]string{{"topology probe failed", "topology probe works again"}, {"has no master", "masters found"}} {
			if n := strings.Count(log.String(), texts[0]) + strings.Count(log.String(), texts[1]); n < 15 || n > 20 {
				t.Errorf("%d lines about %q in ten minutes:\n%s", n, texts, &log)
			}
		}
		w.logChange(nil, errors.New("no answer"))
		log.Reset()
		for range 60 {
			time.Sleep(time.Second)
			w.logChange(nil, errors.New("no answer"))
		}
		if said := log.String(); strings.Count(said, "probe failed") != 1 || strings.Contains(said, "works again") {
			t.Errorf("of probes that go on failing:\n%s", said)
		}
	})
}
