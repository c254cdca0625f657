package integration

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestClientReply_LockVerbs: the verbs are left unanswered as any command is, and answered
// in their turn again.
func TestClientReply_LockVerbs(t *testing.T) {
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

// A command that the upstream refuses changes nothing for the lock verbs behind it.
func TestPassthrough_LockVerbsAfterRefusedCommands(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	r.data.Do(t, "ACL", "SETUSER", "deaf", "on", ">pw", "~*", "+@all", "resetchannels")
	const grant = `\*4\r\n:\d+\r\n\$\d+\r\n\w+\r\n:\d+\r\n:1\r\n`
	other := redistest.Open(t, r.addr())
	wantGrant(t, other.Do(t, "LOCK", "held", "30s"))
	for _, tt := range []struct {
		before []string
		want   string // of the LOCK of a name that is held in database 0
	}{
		{[]string{"SUBSCRIBE c", "SELECT 2", "UNSUBSCRIBE c"}, `\*-1\r\n`},
		{[]string{"SUBSCRIBE c", "MULTI", "UNSUBSCRIBE c"}, `\*-1\r\n`},
		{[]string{"SUBSCRIBE c", "HELLO 3", "UNSUBSCRIBE c"}, `\*-1\r\n`},
		{[]string{"SUBSCRIBE c", "UNSUBSCRIBE c", "SELECT 99"}, `\*-1\r\n`},
		{[]string{"SUBSCRIBE c", "CLIENT REPLY OFF", "UNSUBSCRIBE c"}, `\*-1\r\n`},
		{[]string{"AUTH deaf pw", "SUBSCRIBE c", "SELECT 2", "UNSUBSCRIBE c"}, grant},
	} {
		c := redistest.Open(t, r.addr())
		for _, line := range tt.before {
			c.Do(t, strings.Fields(line)...)
		}
		if v := c.Do(t, "LOCK", "held", "30s"); !regexp.MustCompile(`^` + tt.want + `$`).MatchString(v.Raw) {
			t.Errorf("LOCK after %q: %q", tt.before, v.Raw)
		}
	}
}
