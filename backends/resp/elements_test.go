package resp

import (
	"slices"
	"testing"
)

func TestElements(t *testing.T) {
	tests := []struct {
		name, reply string
		want        []string
		ok          bool
	}{
		{"array", "*2\r\n:1\r\n$1\r\na\r\n", []string{":1\r\n", "$1\r\na\r\n"}, true},
		{"nested", "~1\r\n*1\r\n:1\r\n", []string{"*1\r\n:1\r\n"}, true},
		{"map", "%1\r\n+k\r\n:1\r\n", []string{"+k\r\n", ":1\r\n"}, true},
		{"empty", "*0\r\n", nil, true},
		{"incomplete", "*1\r\n$3\r\nab", nil, false},
		{"no aggregate", "$1\r\na\r\n", nil, false},
		{"no line", "*1", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, ok := Elements([]byte(tt.reply))
			var got []string
			for _, e := range all {
				got = append(got, string(e))
			}
			if ok != tt.ok || !slices.Equal(got, tt.want) {
				t.Fatalf("Elements(%q) = %q, %v; want %q, %v", tt.reply, got, ok, tt.want, tt.ok)
			}
			if ok {
				if back := string(AppendElements(nil, tt.reply[0], all)); back != tt.reply {
					t.Errorf("AppendElements gives %q", back)
				}
			}
		})
	}
}

func TestIs(t *testing.T) {
	if !Is([]byte("gEt"), "GET") || Is([]byte("GETS"), "GET") || Is(nil, "GET") {
		t.Error("Is compares wrongly")
	}
	arg := []byte("get")
	if n := testing.AllocsPerRun(100, func() { Is(arg, "GET") }); n != 0 {
		t.Errorf("Is allocates %v times", n)
	}
}

func TestHasCode(t *testing.T) {
	tests := map[string]bool{"-MOVED 1 a:1\r\n": true, "-MOVED\r\n": false, "-MOVEDX 1\r\n": false, "+MOVED 1\r\n": false, "": false}
	for reply, want := range tests {
		if HasCode([]byte(reply), "MOVED") != want {
			t.Errorf("HasCode(%q) is not %v", reply, want)
		}
	}
}
