package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// usageFaults are commands that name no lock and no time as SPEC has them; the
// word is one the text must hold, so that the caller knows what to mend.
var usageFaults = []struct{ command, word string }{
	{"LOCK", "LOCK"},
	{"LOCK held", "LOCK"},
	{"RENEW", "RENEW"},
	{"RENEW held", "RENEW"},
	{"UNLOCK", "UNLOCK"},
	{"LOCK held 30s NOSUCH", "NOSUCH"},
	{"LOCK held 30s me", "me"},
	{"LOCK held 30s OWNER", "OWNER"},
	{"LOCK held 30s OWNER me OWNER me", "OWNER"},
	{"LOCK held 30s INFO", "INFO"},
	{"LOCK held 30s INFO a INFO b OWNER me", "INFO"},
	{"LOCK held 30s OWNER me RETRYAFTER RETRYAFTER", "RETRYAFTER"},
	{"LOCK held 30s OWNER me FENCE 1", "FENCE"},
	{"LOCK held 30s OWNER me ALL", "ALL"},
	{"RENEW held 30s me you", "you"},
	{"RENEW held 30s me ALL", "ALL"},
	{"RENEW held 30s me OWNER me", "OWNER"},
	{"RENEW held 30s me FENCE", "FENCE"},
	{"RENEW held 30s me FENCE x", "FENCE"},
	{"RENEW held 30s me FENCE -1", "FENCE"},
	{"RENEW held 30s me FENCE 99999999999999999999", "FENCE"},
	{"RENEW held 30s me FENCE 1 FENCE 1", "FENCE"},
	{"UNLOCK held me you", "you"},
	{"UNLOCK held me FENCE", "FENCE"},
	{"UNLOCK held me FENCE x", "FENCE"},
	{"UNLOCK held me FENCE 1.5", "FENCE"},
	{"UNLOCK held me FENCE 1 FENCE 1", "FENCE"},
	{"UNLOCK held me ALL ALL", "ALL"},
	{`LOCK "" 30s OWNER me`, "name"},
	{`RENEW "" 30s me`, "name"},
	{`UNLOCK "" me`, "name"},
	{`LOCK held 30s OWNER ""`, "owner"},
	{"LOCK held 30s OWNER me WAIT", "WAIT"},
	{"LOCK held 30s OWNER me WAIT soon", "WAIT"},
	{"LOCK held 30s OWNER me WAIT -1", "WAIT"},
	{"LOCK held 30s OWNER me WAIT 1s WAIT 1s", "WAIT"},
	{"LOCK held 30s OWNER me SESSION SESSION", "SESSION"},
	{"LOCK held 30s OWNER me SESSION MAXHOLD 61m", "--max-hold"},
	{"LOCK held 30s OWNER me SESSION MAXHOLD 0", "MAXHOLD"},
	{"LOCK held 30s OWNER me SESSION MAXHOLD 99ms", "MAXHOLD"},
	{"LOCK held 30s OWNER me SESSION MAXHOLD", "MAXHOLD"},
	{"LOCK held 30s OWNER me MAXHOLD 1h", "MAXHOLD"},
	{"LOCK held 30s OWNER me SESSION ONLOSS", "ONLOSS"},
	{"LOCK held 30s OWNER me SESSION ONLOSS KEEP", "KEEP"},
	{"LOCK held 30s OWNER me SESSION ONLOSS PUSH", "RESP3"},
	{"LOCK held 30s OWNER me ONLOSS CLOSE", "SESSION"},
	{"LOCK held 30s OWNER me FRESH NOREENTER", "exclude each other"},
	{"LOCK held 30s OWNER me FRESH FRESH", "twice"},
	{"LOCK held 30s OWNER me NOREENTER yes", "yes"},
	{"LOCK free 30s FRESH", "OWNER"},
	{"LOCK free 30s NOREENTER", "OWNER"},
	{"LOCK free 30s REQ 1", "OWNER"},
	{"LOCK held 30s OWNER me REQ", "REQ"},
	{`LOCK held 30s OWNER me REQ ""`, "REQ"},
	{"UNLOCK held REQ 1", "OWNER"},
	{"UNLOCK held me REQ", "REQ"},
	{"RENEW held 30s me REQ 1", "REQ"},
	{"LOCKALL", "LOCKALL"},
	{"LOCKALL 1 held", "LOCKALL"},
	{"LOCKALL held free 30s", "number of names"},
	{"LOCKALL 2 held 30s", "fewer"},
	{"LOCKALL 65 held 30s", "64"},
	{"LOCKALL 2 free free 30s", "twice"},
	{`LOCKALL 2 free "" 30s`, "name"},
	{"LOCKALL 2 free other 30s PERMITS 2", "PERMITS"},
	{"LOCKALL 2 free other 30s OWNER me REQ 1 WAIT 1s ASYNC", "ASYNC"},
	{"LOCKALL 2 free other 30s FRESH", "OWNER"},
	{"LOCKALL 2 free other 30s ONLOSS CLOSE", "SESSION"},
	{"RENEWALL 2 held 30s me", "ttl"},
	{"RENEWALL 1 held 30s me FENCE 1", "FENCE"},
	{"UNLOCKALL 1 held me FENCE 1", "FENCE"},
	{"UNLOCKALL 1 held REQ 1", "OWNER"},
	{"UNLOCKALL -1 held me", "number of names"},
}

// ttlFaults are leases that no verb accepts.
var ttlFaults = []string{
	"0", "-1", "-30s", "99", "99ms", "1", "60001", "61s", "2m", "1h", "9223372036854775807", "9223372036854775808", "99999999999999999999",
	"9223372036854775807s", "18446744073709551716", "9999999999999m", "abc", "1.5s", "1e3", "30x", "30ss", "s", "+30s", "0x1000", "30_000", "30s ", `""`, "nan", "inf",
}

// TestBadInput: every fault gets an error that names it and changes nothing on any
// lock node.
func TestBadInput(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	c := redistest.Open(t, r.addr())
	if v := c.Do(t, "LOCK", "held", "60s", "OWNER", "me"); len(v.Elems) != 4 {
		t.Fatalf("LOCK: %v", v)
	}
	before := ""
	eventually(t, time.Minute, "every node has the lock", func() bool {
		before = r.digests(t)
		return strings.Count(before, "lock:0:held ") == 3
	})
	refused := func(word string, args ...string) {
		t.Helper()
		v := c.Do(t, args...)
		if !strings.HasPrefix(v.Raw, "-ERR ") || !strings.Contains(strings.ToLower(v.Text), strings.ToLower(word)) {
			t.Errorf("%.100q: got %.300v, want an ERR that says %q", args, v, word)
		}
		checkWords(t, v)
		if after := r.digests(t); after != before {
			t.Errorf("%.100q changed a lock node", args)
			before = after
		}
	}
	for _, f := range usageFaults {
		refused(f.word, quoted(f.command)...)
	}
	for _, ttl := range ttlFaults {
		if ttl == `""` {
			ttl = ""
		}
		refused("ttl", "LOCK", "held", ttl, "OWNER", "me")
		refused("ttl", "LOCK", "free", ttl)
		refused("ttl", "RENEW", "held", ttl, "me")
		refused("ttl", "LOCKALL", "2", "free", "held", ttl)
		refused("ttl", "RENEWALL", "1", "held", ttl, "me")
	}
	long := strings.Repeat("x", 64<<10+1)
	refused("name", "LOCK", long, "30s")
	refused("name", "RENEW", long, "30s", "me")
	refused("name", "UNLOCK", long, "me")
	refused("owner", "LOCK", "held", "30s", "OWNER", long[:1025])
	refused("owner", "RENEW", "held", "30s", long[:1025])
	refused("owner", "UNLOCK", "held", long[:1025])
	refused("req", "LOCK", "held", "30s", "OWNER", "me", "REQ", long[:1025])
	refused("req", "UNLOCK", "held", "me", "REQ", long[:1025])
	refused("info", "LOCK", "held", "30s", "OWNER", "me", "INFO", long[:257])
	if v := c.Do(t, "UNLOCK", "held", "me"); v.Raw != ":1\r\n" {
		t.Errorf("afterwards UNLOCK: %v", v)
	}
}

// quoted splits a command into words; "" is an empty one.
func quoted(command string) []string {
	args := strings.Fields(command)
	for i := range args {
		if args[i] == `""` {
			args[i] = ""
		}
	}
	return args
}

// TestErrorTexts holds the words SPEC gives in full, or clients switch on.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	c := redistest.Open(t, r.addr())
	if v := c.Do(t, "LOCK", "job", "30"); v.Raw != "-ERR ttl 30ms is under the minimum of 100ms; write 30s for seconds\r\n" {
		t.Errorf("seconds meant: %v", v)
	}
	if v := c.Do(t, "LOCK", "job", "2m"); !strings.Contains(v.Text, "SESSION") || !strings.Contains(v.Text, "max-ttl") {
		t.Errorf("over the maximum: %v names neither way out", v)
	}
	for verb, usage := range map[string]string{"LOCK": "LOCK name ttl", "RENEW": "RENEW name ttl", "UNLOCK": "UNLOCK name", "LOCKALL": "LOCKALL n name", "RENEWALL": "RENEWALL n name", "UNLOCKALL": "UNLOCKALL n name"} {
		if v := c.Do(t, verb); !strings.Contains(v.Text, usage) {
			t.Errorf("%s without arguments does not say %q: %v", verb, usage, v)
		}
	}
	c.Do(t, "LOCK", "job", "30s", "OWNER", "secret-owner")
	if v := c.Do(t, "UNLOCK", "job", "you"); strings.Contains(v.Text, "secret-owner") || !strings.ContainsAny(v.Text, "0123456789") {
		t.Errorf("NOTOWNER says for how long and never by whom: %v", v)
	}
}

// TestBadInput_RandomBytes: names and owners at their largest, and of any bytes.
func TestBadInput_RandomBytes(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	c := redistest.Open(t, r.addr())
	for _, tt := range []struct{ what, name, owner, info string }{
		{"line ends and zeros", "a\r\n\x00$-1\r\nb", "\r\n\x00\xff", "\x00\r\n"},
		{"digits and record fields", "0", "o", "f"},
		{"the longest", noise(64 << 10), noise(1 << 10), noise(256)},
		{"braces and stars", "{x}*[a]?", "{y}", "%s%d"},
		{"empty info", "n", "m", ""},
	} {
		v := c.Do(t, "LOCK", tt.name, "30s", "OWNER", tt.owner, "INFO", tt.info)
		if len(v.Elems) != 4 || v.Elems[1].Text != tt.owner {
			t.Errorf("%s: LOCK: %.200v", tt.what, v)
			continue
		}
		if v := c.Do(t, "LOCK", tt.name, "30s", "OWNER", tt.owner+"x"); tt.what != "the longest" && v.Raw != "*-1\r\n" {
			t.Errorf("%s: LOCK by another: %.200v", tt.what, v)
		}
		if v := c.Do(t, "RENEW", tt.name, "30s", tt.owner); v.Kind != ':' {
			t.Errorf("%s: RENEW: %.200v", tt.what, v)
		}
		if v := c.Do(t, "UNLOCK", tt.name, tt.owner); v.Raw != ":1\r\n" {
			t.Errorf("%s: UNLOCK: %.200v", tt.what, v)
		}
	}
	// UNLOCK is answered by a quorum, the last node may come after.
	eventually(t, 9*time.Second, "no lock record is left", func() bool { return r.lockKeys(t) == 0 })
}
