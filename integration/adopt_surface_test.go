package integration

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_Surface: what people see of an adopted lock, and the fence that its client can ask for.
func TestAdopt_Surface(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p := redistest.StartProxy(t, redistest.Start(t), nodes, "--adopt", "lock:*")
	two, three := redistest.Open(t, p.Addr()), redistest.Open3(t, p.Addr())
	wantReplies(t, two, [2]string{"SET lock:a token NX PX 60000", "+OK"}, [2]string{"LOCKCTL FENCE lock:a other", "$-1"}, [2]string{"LOCKCTL FENCE lock:b token", "$-1"})
	wantReplies(t, three, [2]string{"LOCKCTL FENCE lock:a other", "_"})
	fence := two.Do(t, "LOCKCTL", "FENCE", "lock:a", "token")
	if fence.Kind != ':' || fence.Int() <= 0 {
		t.Fatalf("the fence: %v", fence)
	}
	grant := two.Do(t, "LOCK", "lock:native", "30s", "OWNER", "me")
	if got := two.Do(t, "LOCKCTL", "FENCE", "lock:native", "me"); len(grant.Elems) != 4 || got.Int() != grant.Elems[0].Int() {
		t.Errorf("the fence of a LOCK: %v, granted %v", got, grant)
	}
	for _, tt := range []struct{ command, want string }{
		{"LOCKCTL INFO lock:a", `$"owner" $"token" `}, {"LOCKCTL INFO lock:a", `$"info" $"adopted on"`}, {"LOCKCTL INFO lock:a", `$"adopted" $"string"`},
		{"LOCKCTL LIST MATCH lock:a", `$"owner" $"token" `}, {"LOCKCTL LIST MATCH lock:a", `$"adopted" $"string"`}, {"LOCKCTL WHY lock:a", "lock:a is held by the value token (adopted), fence "},
		{"LOCKCTL WHY lock:a", `$"taken with commands of Redis on an adopted key, mode=on"`},
		{"LOCK lock:a 30s RETRYAFTER", `*[:0 $"token" `}, {"LOCKCTL HELP", "FENCE <name> <value>"}, {"COMMAND DOCS lockctl|fence", "Get the fence of a lock"}, {"INFO lockproxy", `lockproxy_adopt_patterns:1\r\nlockproxy_adopt_calls:`},
		{"UNLOCK lock:a \x00lpasxxxxxxxxxxxxxxxxtoken", `-ERR the owner cannot begin with \x00lpa`}, {"LOCK lock:c 30s OWNER \x00lpa", `-ERR the owner cannot begin with \x00lpa`},
		{"RENEW lock:a 30s \x00lpahx", `-ERR the owner cannot begin with \x00lpa`},
		{"LOCKCTL FORCE lock:a", `$"owner" $"token" `}, {"GET lock:a", "$-1"}, {"SET lock:a token NX PX 60000", "+OK"},
	} {
		if got := two.Do(t, quoted(tt.command)...).String(); !strings.Contains(got, tt.want) || strings.Contains(got, `$"\x00lpa`) {
			t.Errorf("%q: %s, without %s", tt.command, got, tt.want)
		}
	}
	if again := two.Do(t, "LOCKCTL", "FENCE", "lock:a", "token"); again.Int() <= fence.Int() {
		t.Errorf("the fence of the next grant: %v, after %v", again, fence)
	}
	for _, n := range nodes[:2] {
		n.Close()
	}
	if got := two.Do(t, "LOCKCTL", "FENCE", "lock:a", "token").String(); !strings.HasPrefix(got, "-NOQUORUM ") {
		t.Errorf("with one node of three: %s", got)
	}
}
