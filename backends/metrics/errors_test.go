package metrics

import "testing"

func TestErrors_CountsFirstWords(t *testing.T) {
	tests := []struct{ reply, want string }{
		{"-NOQUORUM 1 of 5 answered\r\n", "NOQUORUM"},
		{"-ERR syntax error\r\n", "ERR"},
		{"-OOM\r\n", "OOM"},
		{"-ERROR\r\n", "other"},
		{"-", "other"},
		{"", "other"},
		{"+ERR not one\r\n", "other"},
		{"-SECRETWORD of somebody's script\r\n", "other"},
	}
	for _, tt := range tests {
		var e Errors
		e.Count([]byte(tt.reply))
		for i, name := range words {
			if n := e.counts[i].Load(); (n == 1) != (name == tt.want) {
				t.Errorf("%q: %d times %s, want it to be %s", tt.reply, n, name, tt.want)
			}
		}
	}
}
