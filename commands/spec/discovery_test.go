package spec

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type source struct{ ended bool }

func (s *source) Alive() bool { return !s.ended }

// A Discovery asks when a command is not known, or no longer, and once for all who ask.
func TestDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, on, asked := NewDiscovery(), &source{}, 0
		ask := func() ([]byte, Source) {
			asked++
			time.Sleep(time.Millisecond)
			return []byte("*1\r\n*6\r\n$7\r\nmod.get\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n"), on
		}
		need := func(name string) {
			t.Helper()
			args := [][]byte{[]byte(name)}
			if _, known := d.Lookup(args); known {
				return
			}
			if err := d.Learn(t.Context(), args, ask); err != nil {
				t.Error(err)
			}
		}
		for _, tt := range []struct {
			what   string
			happen func()
			name   string
			want   int
		}{
			{"the first", func() {}, "mod.get", 1},
			{"an unknown one", func() {}, "mod.set", 1},
			{"an unknown one later", func() { time.Sleep(rediscoverEvery + 1) }, "mod.set", 2},
			{"a known one much later", func() { time.Sleep(time.Hour) }, "mod.get", 2},
			{"a changed table", d.Forget, "mod.get", 3},
			{"a lost connection", func() { on.ended, on = true, &source{} }, "mod.get", 4},
		} {
			tt.happen()
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { need(tt.name) })
			}
			wg.Wait()
			if asked != tt.want {
				t.Errorf("%s: asked %d times, want %d", tt.what, asked, tt.want)
			}
		}
	})
}

// What comes while the table is forgotten is of before.
func TestDiscovery_ForgottenMeanwhile(t *testing.T) {
	d := NewDiscovery()
	args := [][]byte{[]byte("mod.get")}
	d.Learn(t.Context(), args, func() ([]byte, Source) {
		d.Forget()
		return []byte("*0\r\n"), &source{}
	})
	if _, known := d.Lookup(args); known {
		t.Error("it is known")
	}
}
