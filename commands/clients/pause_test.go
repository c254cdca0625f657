package clients

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pause
		want := func(what string, active bool) {
			t.Helper()
			if p.Active() != active {
				t.Errorf("%s: active %v", what, !active)
			}
		}
		note := func(line string) { p.Note(bytes.Fields([]byte(line))) }
		want("before", false)
		note("CLIENT PAUSE 1000 WRITE")
		note("CLIENT PAUSE 10")
		time.Sleep(999 * time.Millisecond)
		want("after the shorter one", true)
		time.Sleep(time.Millisecond)
		want("at the end", false)
		note("CLIENT PAUSE 9223372036854775807")
		want("for ever", true)
		time.Sleep(longestPause)
		want("longer than is believed", false)
		note("CLIENT PAUSE 1000")
		note("client unpause")
		want("ended", false)
	})
}
