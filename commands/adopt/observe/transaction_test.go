package observe

import (
	"testing"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// TestWouldBe: what adoption would make of idioms that need more than one command, or a word of the pattern.
func TestWouldBe(t *testing.T) {
	const mixed = "it is inside MULTI with commands that are about no lock"
	for _, tt := range []struct{ name, steps, idiom, would, why string }{
		{"WATCH and DEL", "a: SET lock:1 v NX PX 5000 > +OK\na: WATCH lock:1 > +OK\na: GET lock:1 > $1\na: MULTI DEL lock:1\na: MULTI EXEC", "set-nx-px + get + watch + del", "adopted", ""},
		{"taken in two commands", "a: MULTI SETNX lock:1 v\na: MULTI EXPIRE lock:1 30\na: MULTI EXEC", "setnx + expire", "adopted", ""},
		{"taken without an end", "a: MULTI SETNX lock:1 v\na: MULTI GET lock:1\na: MULTI EXEC", "setnx", "adopted", ""},
		{"with another key", "a: MULTI SET lock:1 v NX PX 5000\na: MULTI INCR n\na: MULTI EXEC\na: MULTI INCR n\na: MULTI EXEC", "set-nx-px", "partly refused", mixed},
		{"behind another key", "a: MULTI INCR n\na: MULTI SET lock:1 v NX PX 5000\na: MULTI EXEC", "set-nx-px", "refused", mixed},
		{"behind another transaction", "a: MULTI INCR n\na: MULTI EXEC\na: MULTI SET lock:1 v NX PX 5000\na: MULTI EXEC\na: INCR n", "set-nx-px", "adopted", ""},
		{"two locks", "a: MULTI SET lock:1 v NX PX 5000\na: MULTI SET lock:2 v NX PX 5000", "set-nx-px", "partly refused", "another lock is in the transaction"},
		{"watched with another key", "a: SET lock:1 v NX PX 5000 > +OK\na: WATCH lock:1 x > +OK", "set-nx-px + watch", "partly refused", "it has other keys as well"},
		{"deadlines in seconds", "a: SETNX lock:1 1000000010 > :1\nb: SETNX lock:1 1000000010 > :0\nb: GET lock:1 > $10\nb: GETSET lock:1 1000000010 > $10\na: DEL lock:1 > :1", "get + del + setnx, getset of a deadline", "adopted with timestamps=s", ""},
		{"deadlines in milliseconds", "a: SETNX lock:1 1000000010000 > :1", "setnx, getset of a deadline", "adopted with timestamps=ms", ""},
		{"deadlines with a fraction", "a: SETNX lock:1 1000000010.25 > :1", "setnx, getset of a deadline", "adopted with timestamps=float", ""},
		{"a deadline too far away", "a: SETNX lock:1 1000000900 > :1", "setnx, getset of a deadline", "refused", "its value is a time 15m0s from now, not within min-ttl and max-ttl, 100ms and 1m0s"},
		{"a number", "a: SETNX lock:1 77 > :1", "setnx", "adopted", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{All: true})
			w.do(tt.steps)
			if r, _ := w.row(); r.Idiom != tt.idiom || r.Would != tt.would || r.Why != tt.why {
				t.Errorf("%q, %q, %q", r.Idiom, r.Would, r.Why)
			}
		})
	}
}

// TestWouldBe_Strict: who watches the lock compares, and only while it does.
func TestWouldBe_Strict(t *testing.T) {
	for steps, want := range map[string]string{
		"a: SET lock:1 v NX PX 5000 > +OK\na: WATCH lock:1 > +OK\na: MULTI DEL lock:1\na: MULTI EXEC":                      "adopted",
		"a: SET lock:1 v NX PX 5000 > +OK\na: WATCH lock:1 > +OK\na: UNWATCH\na: MULTI DEL lock:1\na: MULTI EXEC":          "partly refused",
		"a: SET lock:1 v NX PX 5000 > +OK\na: WATCH lock:1 > +OK\na: MULTI EXEC\na: MULTI DEL lock:1\na: MULTI EXEC":       "partly refused",
		"a: SET lock:1 v NX PX 5000 > +OK\na: WATCH lock:1 > +OK\na: MULTI EXPIRE lock:1 600\na: MULTI EXEC":               "partly refused",
		"a: SET lock:1 v NX PX 5000 > +OK\nb: WATCH lock:1 > +OK\na: MULTI DEL lock:1\na: MULTI EXEC\nb: UNWATCH\nb: QUIT": "partly refused",
	} {
		w := newWorld(t, Options{Patterns: []Pattern{{Glob: "lock:*", Literal: "lock:", Match: func(int, string) bool { return true }, Mode: Observed, As: idiom.Strict}}})
		w.do(steps)
		if r, _ := w.row(); r.Would != want {
			t.Errorf("%s: %q, %q", steps, r.Would, r.Why)
		}
	}
}
