package resp

import (
	"slices"
	"strconv"
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
		{"one byte is incomplete", "*2\r\n:1\r\n:", nil, false},
		{"no line of an aggregate", "*1", nil, false},
		{"incomplete", "*1\r\n$3\r\nab", nil, false},
		{"no aggregate", "$1\r\na\r\n", nil, false},
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
	if !Is([]byte("gEt"), "GET") || Is([]byte("GETS"), "GET") || Is([]byte("\u212aeys"), "KEYS") || Is(nil, "GET") {
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

func TestError(t *testing.T) {
	tests := []struct {
		reply, text string
		isErr       bool
	}{
		{"-WRONGPASS invalid\r\n", "WRONGPASS invalid", true},
		{"-\r\n", "", true},
		{"!21\r\nSYNTAX invalid syntax\r\n", "SYNTAX invalid syntax", true},
		{"!5\r\na\nb-c\r\n", "a\nb-c", true},
		{"+OK\r\n", "", false},
		{"$1\r\n-\r\n", "", false},
		{"", "", false},
	}
	for _, tt := range tests {
		if text, isErr := Error([]byte(tt.reply)); text != tt.text || isErr != tt.isErr {
			t.Errorf("Error(%q) = %q, %v; want %q, %v", tt.reply, text, isErr, tt.text, tt.isErr)
		}
	}
}

func TestIntAfter(t *testing.T) {
	for _, tt := range []struct {
		reply string
		want  int64
		ok    bool
	}{
		{"*4\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:17\r\n", 17, true},
		{"%1\r\n$2\r\nid\r\n:-1\r\n", -1, true},
		{"*2\r\n$3\r\nxid\r\n:17\r\n", 0, false},
		{"*2\r\n$2\r\nid\r\n$2\r\n17\r\n", 0, false},
		{"*2\r\n$2\r\nid\r\n:17", 0, false},
		{"-ERR no\r\n", 0, false},
	} {
		n, from, to, ok := IntAfter([]byte(tt.reply), "id")
		if n != tt.want && ok || ok != tt.ok {
			t.Errorf("%q: %d, %v", tt.reply, n, ok)
		}
		if got := tt.reply[from:to]; ok && got != strconv.FormatInt(tt.want, 10) {
			t.Errorf("%q: the digits are %q", tt.reply, got)
		}
	}
}
