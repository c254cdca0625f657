package proxy

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
)

// TestListen_AddressInUse: the error says what to do.
func TestListen_AddressInUse(t *testing.T) {
	first, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := Listen(first.Addr().String())
	if err == nil {
		second.Close()
		t.Fatal("two listen at one address")
	}
	if !strings.Contains(err.Error(), "or choose another address") {
		t.Error(err)
	}
}

// TestWarnOfFewFiles: it is logged at start, and not when the first client cannot be accepted.
func TestWarnOfFewFiles(t *testing.T) {
	for clients, want := range map[int]bool{1: false, math.MaxInt32: true} {
		var b bytes.Buffer
		warnOfFewFiles(clients, slog.New(slog.NewTextHandler(&b, nil)))
		if got := strings.Contains(b.String(), "raise LimitNOFILE"); got != want {
			t.Errorf("%d clients: %s", clients, b.String())
		}
	}
}
