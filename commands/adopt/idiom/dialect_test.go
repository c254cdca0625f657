package idiom

import (
	"testing"
	"time"
)

func TestDialectOf(t *testing.T) {
	for info, want := range map[string]Dialect{
		"$99\r\n# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n": {70015, false},
		"redis_version:8.4.0\r\n": {80400, false}, "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n": {90102, true},
		"redis_version:6.2\n": {60200, false}, "redis_version:255.255.255\r\n": {999999, false}, "redis_version:x.-1.2\r\n": {2, false},
		"-NOPERM no\r\n": {}, "": {},
	} {
		if got := DialectOf(info); got != want {
			t.Errorf("%q: %v, want %v", info, got, want)
		}
	}
}

func TestParseDialect(t *testing.T) {
	for text, want := range map[string]Dialect{"redis 8.4": {80400, false}, "valkey 9.0.1": {90001, true}, "8.4": {}, "redis": {}, "redis x": {}, "keydb 6": {}, "": {}} {
		if got, ok := ParseDialect(text); got != want || ok != (want.Version != 0) {
			t.Errorf("%q: %v, %t, want %v", text, got, ok, want)
		}
	}
}

// TestHeard_OldestServerCounts: the oldest server counts, and the last answer while there is none.
func TestHeard_OldestServerCounts(t *testing.T) {
	var h Heard
	const old, current, valkey = "redis_version:7.0.1\r\n", "redis_version:8.4.0\r\n", "redis_version:7.2.4\r\nvalkey_version:8.1.0\r\n"
	for _, tt := range []struct {
		infos []string
		want  Dialect
	}{
		{nil, Dialect{}}, {[]string{current}, Dialect{80400, false}}, {[]string{current, old, current}, Dialect{70001, false}}, {nil, Dialect{70001, false}},
		{[]string{"-NOPERM no\r\n"}, Dialect{70001, false}}, {[]string{valkey}, Dialect{80100, true}}, {[]string{valkey, current}, Dialect{}}, {[]string{current, ""}, Dialect{80400, false}},
	} {
		if h.Note(tt.infos); h.Dialect() != tt.want {
			t.Errorf("%q: %v, want %v", tt.infos, h.Dialect(), tt.want)
		}
	}
}

// TestTransaction_AnswersInDialect: each command of a transaction is answered in the dialect that it was told.
func TestTransaction_AnswersInDialect(t *testing.T) {
	call, err := Plain([]string{"SET", "lock:a", "me", "PX", "0"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	call.Speak(Dialect{Version: 60200})
	out, err := Transaction("lock:a", []*Call{call}, 2).Run(State{}, time.Now())
	if want := "*1\r\n-ERR invalid expire time in set\r\n"; err != nil || string(out.Reply) != want {
		t.Errorf("%q, %v, want %q", out.Reply, err, want)
	}
}
