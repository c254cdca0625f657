package integration

import (
	"regexp"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestVerbsAndClientReply: the verbs are left unanswered as any command is, and answered
// in their turn again.
func TestVerbsAndClientReply(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	other := redistest.Open(t, r.addr())
	wantGrant(t, other.Do(t, "LOCK", "held", "30s", "OWNER", "other"))
	const grant, lost, end = `\*4\r\n:\d+\r\n\$\d+\r\n\w+\r\n:\d+\r\n:1\r\n`, `-LOCKLOST [^\r]*\r\n`, `\$3\r\nend\r\n`
	for _, tt := range []struct {
		sent []string
		want string
	}{
		{[]string{"CLIENT REPLY OFF", "LOCK a 30s", "PING x", "UNLOCK a", "CLIENT REPLY ON", "UNLOCK a nobody"}, `\+OK\r\n` + lost},
		{[]string{"CLIENT REPLY OFF", "LOCK held 30s WAIT 20ms", "UNLOCK a nobody", "GET x", "CLIENT REPLY ON", "LOCK b 30s"}, `\+OK\r\n` + grant},
		{[]string{"CLIENT REPLY SKIP", "LOCK c 30s", "UNLOCK c", "PING"}, `:1\r\n\+PONG\r\n`},
		{[]string{"CLIENT REPLY SKIP", "LOCK held 30s WAIT 20ms", "UNLOCK c nobody", "PING"}, lost + `\+PONG\r\n`},
		{[]string{"CLIENT REPLY SKIP", "PING", "LOCK d 30s", "CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "UNLOCK d", "UNLOCK d nobody"}, grant + lost},
		{[]string{"CLIENT REPLY ON", "PING", "LOCKCTL INFO none", "GET none", "LOCKCTL INFO none"}, `\+OK\r\n\+PONG\r\n\*-1\r\n\$-1\r\n\*-1\r\n`},
		{[]string{"CLIENT REPLY SKIP", "LOCK e", "MULTI", "PING", "EXEC", "CLIENT REPLY OFF", "UNLOCK c", "RESET", "UNLOCK c nobody"}, `\+OK\r\n\+QUEUED\r\n\*1\r\n\+PONG\r\n\+RESET\r\n` + lost},
	} {
		c := redistest.Open(t, r.addr())
		c.Send(t, lines(append(tt.sent, "ECHO end")...))
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		got, err := readTo(c.Conn, "end\r\n")
		if err != nil || !regexp.MustCompile(`^`+tt.want+end+`$`).MatchString(got) {
			t.Errorf("%q: got %q, %v", tt.sent, got, err)
		}
	}
}
