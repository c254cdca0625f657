package resp

import (
	"testing"
)

func TestAppend(t *testing.T) {
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"simple", AppendSimple([]byte("x"), "OK"), "x+OK\r\n"},
		{"simple, more than a line", AppendSimple(nil, "a\r\nb"), "+a  b\r\n"},
		{"error", AppendError(nil, "ERR no"), "-ERR no\r\n"},
		{"error, more than a line", AppendError([]byte("\r\n"), "ERR a\r\n+OK\n"), "\r\n-ERR a  +OK \r\n"},
		{"int", AppendInt(nil, -9223372036854775808), ":-9223372036854775808\r\n"},
		{"bulk", AppendBulk(nil, []byte("a\r\n\x00b")), "$5\r\na\r\n\x00b\r\n"},
		{"bulk of nothing", AppendBulk(nil, nil), "$0\r\n\r\n"},
		{"bulk string", AppendBulkString(nil, "0123456789"), "$10\r\n0123456789\r\n"},
		{"array", AppendArray(nil, 0), "*0\r\n"},
		{"map in 2", AppendMap(nil, 3, 2), "*6\r\n"},
		{"map in 3", AppendMap(nil, 3, 3), "%3\r\n"},
		{"null in 2", AppendNull(nil, 2), "*-1\r\n"},
		{"null in 3", AppendNull(nil, 3), "_\r\n"},
		{"null text in 2", AppendNullBulk(nil, 2), "$-1\r\n"},
		{"null text in 3", AppendNullBulk(nil, 3), "_\r\n"},
		{"text like a bulk string", AppendTextLike(nil, []byte("$1\r\na\r\n"), []byte("bc")), "$2\r\nbc\r\n"},
		{"text like a verbatim one", AppendTextLike(nil, []byte("=5\r\ntxt:a\r\n"), []byte("bc")), "=6\r\ntxt:bc\r\n"},
		{"command", AppendCommand(nil, "GET", ""), "*2\r\n$3\r\nGET\r\n$0\r\n\r\n"},
		{"command of bytes", AppendCommand(nil, []byte("PING")), "*1\r\n$4\r\nPING\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if string(tt.got) != tt.want {
				t.Errorf("got %q, want %q", tt.got, tt.want)
			}
		})
	}
}
