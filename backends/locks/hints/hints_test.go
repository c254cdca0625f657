package hints

import (
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestParseCut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		message string
		want    locks.Holder
		ok      bool
	}{
		{"5 alicelp:lock:3:job", locks.Holder{Key: locks.Key{DB: 3, Name: "job"}, Owner: "alice"}, true},
		{"3 a 1lp:lock:0::x:", locks.Holder{Key: locks.Key{DB: 0, Name: ":x:"}, Owner: "a 1"}, true},
		{"4 alicelp:lock:3:job", locks.Holder{}, false},
		{"5 alicelp:lock:3", locks.Holder{}, false},
		{"5 alicelp:lock:x:job", locks.Holder{}, false},
		{"5 aliceother:lock:3:job", locks.Holder{}, false},
		{"50 alicelp:lock:3:job", locks.Holder{}, false},
		{"-1 alicelp:lock:3:job", locks.Holder{}, false},
		{"alice", locks.Holder{}, false},
		{"", locks.Holder{}, false},
	}
	for _, tt := range tests {
		h, ok := parseCut(tt.message, "lp:")
		if ok != tt.ok || ok && h != tt.want {
			t.Errorf("%q: %+v, %v", tt.message, h, ok)
		}
	}
}
