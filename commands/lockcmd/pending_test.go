package lockcmd

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestRemaining(t *testing.T) {
	if got := remaining(time.Second, time.Time{}); got != time.Second {
		t.Errorf("just now: %v", got)
	}
	if got := remaining(time.Minute, time.Now().Add(-24*time.Second)); got > 36*time.Second || got < 10*time.Second {
		t.Errorf("after 24 s: %v", got)
	}
	if got := remaining(time.Second, time.Now().Add(-time.Minute)); got != 0 {
		t.Errorf("when it is over: %v", got)
	}
}

func TestAppendLoss(t *testing.T) {
	got := string(appendLoss(nil, locks.Loss{Key: locks.Key{DB: 3, Name: "job"}, Owner: "me", Fence: 7, Reason: "expired"}))
	if want := ">4\r\n$9\r\nlock-lost\r\n$3\r\njob\r\n:7\r\n$7\r\nexpired\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
