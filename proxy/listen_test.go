package proxy

import (
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
