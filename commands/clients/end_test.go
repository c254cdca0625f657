package clients

import "testing"

// TestEnd: the first reason counts, and alone ends nothing.
func TestEnd(t *testing.T) {
	var e End
	if e.Ended() || e.Why().String() != "" {
		t.Fatalf("unused, it has ended %v because of %q", e.Ended(), e.Why())
	}
	if e.Because(WhyQuit); e.Ended() || e.Why() != WhyQuit {
		t.Fatalf("with a reason it has ended %v because of %q", e.Ended(), e.Why())
	}
	if e.Now(WhyKilled); !e.Ended() || e.Why().String() != "quit" {
		t.Errorf("ended, it has ended %v because of %q", e.Ended(), e.Why())
	}
}
