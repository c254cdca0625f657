package adopt

import (
	"context"
	"testing"
)

// An upstreamThat answers every command but PTTL with these bytes.
type upstreamThat struct {
	*client
	answers string
}

func (u upstreamThat) Ask(ctx context.Context, args []string) ([]byte, error) {
	if args[0] == "PTTL" {
		return u.client.Ask(ctx, args)
	}
	return []byte(u.answers), nil
}

// TestDecide_SeveralKeys: replies of locks and of the upstream are put together, and what cannot be is an error.
func TestDecide_SeveralKeys(t *testing.T) {
	const notTogether = "ERR the upstream answered in a way that cannot be put together with the locks"
	u := upstreamThat{client: proxies(t, 1, "lock:*")[0]}
	if got := u.do("SET", "lock:a", "me", "NX", "PX", "5000"); got != "+OK" {
		t.Fatal(got)
	}
	for _, tt := range []struct {
		command []string
		answers string
		want    string
	}{
		{[]string{"EXISTS", "x", "lock:a", "lock:a", "lock:b"}, ":1\r\n", ":3\r\n"},
		{[]string{"EXISTS", "x", "lock:a"}, "+OK\r\n", notTogether},
		{[]string{"MGET", "x", "lock:a", "y", "lock:b"}, "*2\r\n$1\r\n1\r\n$-1\r\n", "*4\r\n$1\r\n1\r\n$2\r\nme\r\n$-1\r\n$-1\r\n"},
		{[]string{"MGET", "lock:b", "lock:a"}, "", "*2\r\n$-1\r\n$2\r\nme\r\n"},
		{[]string{"MGET", "x", "lock:a", "y"}, "*1\r\n$1\r\n1\r\n", notTogether},
		{[]string{"MGET", "x", "lock:a"}, ":1\r\n", notTogether},
		{[]string{"MGET", "x", "lock:a"}, "-LOADING x\r\n", "-LOADING x"},
	} {
		var words [][]byte
		keys := Keys{Known: true}
		for i, w := range tt.command {
			words = append(words, []byte(w))
			if i > 0 {
				keys.At = append(keys.At, i)
			}
		}
		u.answers = tt.answers
		call, err := u.a.Call(u, words, keys)
		if err != nil {
			t.Fatal(err)
		}
		r, err := u.a.Decide(t.Context(), u, call)
		got := string(r.Reply)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%v, the upstream answers %q: %q, want %q", tt.command, tt.answers, got, tt.want)
		}
	}
}
