package lockcmd

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func words(line string) (args [][]byte) {
	for _, w := range strings.Fields(line) {
		args = append(args, []byte(w))
	}
	return args
}

func TestParseTime(t *testing.T) {
	tests := []struct {
		in   string
		want time.Duration
		bare bool
		ok   bool
	}{
		{"30000", 30 * time.Second, true, true},
		{"0", 0, true, true},
		{"500ms", 500 * time.Millisecond, false, true},
		{"30s", 30 * time.Second, false, true},
		{"2m", 2 * time.Minute, false, true},
		{"1h", time.Hour, false, true},
		{"9223372036854", 9223372036854 * time.Millisecond, true, true},
		{"9223372036855", 0, true, false}, // more nanoseconds than an int64 has
		{"18446744073709551616", 0, true, false},
		{"153722868m", 0, false, false},
		{"", 0, true, false},
		{"s", 0, false, false},
		{"-1", 0, true, false},
		{"+5s", 0, false, false},
		{"1.5s", 0, false, false},
		{"1e3", 0, true, false},
		{" 5s", 0, false, false},
		{"5S", 0, true, false},
		{"0x10", 0, true, false},
		{"1_000", 0, true, false},
	}
	for _, tt := range tests {
		got, bare, ok := parseTime(tt.in)
		if got != tt.want || bare != tt.bare || ok != tt.ok {
			t.Errorf("parseTime(%q) = %v, %v, %v; want %v, %v, %v", tt.in, got, bare, ok, tt.want, tt.bare, tt.ok)
		}
	}
}

func TestParseLock(t *testing.T) {
	l := Limits{}.WithDefaults()
	tests := []struct {
		line string
		want locks.LockRequest
		err  string // a part of it
	}{
		{"LOCK job 30s", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second}, ""},
		{"lock job 30000 owner me info why", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, Owner: "me", Info: "why"}, ""},
		{"LOCK job 100", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 100 * time.Millisecond}, ""},
		{"LOCK job 60s", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Minute}, ""},
		{"LOCK job", locks.LockRequest{}, "ERR wrong number of arguments for 'lock' command; usage: LOCK name ttl"},
		{"LOCK job 30", locks.LockRequest{}, "ERR ttl 30ms is under the minimum of 100ms; write 30s for seconds"},
		{"LOCK job 0", locks.LockRequest{}, "ERR ttl 0ms is under the minimum of 100ms"},
		{"LOCK job 30ms", locks.LockRequest{}, "ERR ttl 30ms is under the minimum of 100ms"},
		{"LOCK job 61s", locks.LockRequest{}, "ERR ttl 61s is over the maximum of 60s"},
		{"LOCK job 99999999999999999999", locks.LockRequest{}, "is not a time"},
		{"LOCK job soon", locks.LockRequest{}, "is not a time"},
		{"LOCK job 30s OWNER", locks.LockRequest{}, "ERR option OWNER needs a value"},
		{"LOCK job 30s OWNER a OWNER b", locks.LockRequest{}, "ERR option OWNER was given twice"},
		{"LOCK job 30s OWNER fence", locks.LockRequest{}, "ERR the owner cannot be the word fence"},
		{"LOCK job 30s OWNER \x00lpasme", locks.LockRequest{}, `ERR the owner cannot begin with \x00lpa, as those of adopted locks do`},
		{"LOCK job 30s OWNER \x00lp", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, Owner: "\x00lp"}, ""},
		{"LOCK job 30s QUICKLY", locks.LockRequest{}, "ERR unknown option 'QUICKLY'; usage: LOCK"},
		{"LOCK job 30s WAIT 5s", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, Wait: 5 * time.Second}, ""},
		{"LOCK job 30s WAIT 0", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second}, ""},
		{"LOCK job 30s WAIT", locks.LockRequest{}, "ERR option WAIT needs a value"},
		{"LOCK job 30s WAIT long", locks.LockRequest{}, "ERR WAIT 'long' is not a time"},
		{"LOCK job 30s WAIT -1", locks.LockRequest{}, "ERR WAIT '-1' is not a time"},
		{"LOCK job 30s session maxhold 1h", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, MaxHold: time.Hour}, ""},
		{"LOCK job 30s MAXHOLD 1h", locks.LockRequest{}, "ERR MAXHOLD needs SESSION"},
		{"LOCK job 30s SESSION MAXHOLD 61m", locks.LockRequest{}, "ERR MAXHOLD 3660s is over the maximum of 3600s; raise --max-hold"},
		{"LOCK job 30s SESSION MAXHOLD 0", locks.LockRequest{}, "ERR MAXHOLD 0ms is under the minimum of 100ms"},
		{"LOCK job 30s SESSION MAXHOLD 99", locks.LockRequest{}, "ERR MAXHOLD 99ms is under the minimum of 100ms"},
		{"LOCK job 30s SESSION MAXHOLD 100", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, MaxHold: 100 * time.Millisecond}, ""},
		{"LOCK job 30s SESSION ONLOSS PUSH", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, OnLoss: locks.OnLossPush}, ""},
		{"LOCK job 30s onloss close session", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, OnLoss: locks.OnLossClose}, ""},
		{"LOCK job 30s ONLOSS PUSH", locks.LockRequest{}, "ERR ONLOSS needs SESSION"},
		{"LOCK job 30s SESSION ONLOSS", locks.LockRequest{}, "ERR option ONLOSS needs a value"},
		{"LOCK job 30s SESSION ONLOSS KEEP", locks.LockRequest{}, "ERR ONLOSS 'KEEP' is neither CLOSE nor PUSH"},
		{"LOCK job 30s SESSION ONLOSS PUSH ONLOSS CLOSE", locks.LockRequest{}, "ERR option ONLOSS was given twice"},
		{"LOCK job 30s OWNER me REQ 7", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, Owner: "me", Req: "7"}, ""},
		{"LOCK job 30s REQ 7", locks.LockRequest{}, "ERR REQ needs OWNER"},
		{"LOCK job 30s OWNER me REQ " + strings.Repeat("r", locks.MaxReq+1), locks.LockRequest{}, "ERR the value of REQ"},
		{"LOCK job 30s OWNER me FRESH", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, Owner: "me", Fresh: true}, ""},
		{"LOCK job 30s noreenter OWNER me WAIT 1s", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, Owner: "me", Wait: time.Second, NoReenter: true}, ""},
		{"LOCK job 30s OWNER me FRESH NOREENTER", locks.LockRequest{}, "ERR FRESH and NOREENTER exclude each other"},
		{"LOCK job 30s OWNER me NOREENTER FRESH", locks.LockRequest{}, "ERR FRESH and NOREENTER exclude each other"},
		{"LOCK job 30s OWNER me FRESH FRESH", locks.LockRequest{}, "ERR option FRESH was given twice"},
		{"LOCK job 30s FRESH", locks.LockRequest{}, "ERR FRESH needs OWNER"},
		{"LOCK job 30s NOREENTER", locks.LockRequest{}, "ERR NOREENTER needs OWNER"},
		{"LOCK job 30s SHARED", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, Shared: true}, ""},
		{"LOCK job 30s shared OWNER me FRESH WAIT 1s", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second, Owner: "me", Wait: time.Second, Fresh: true, Shared: true}, ""},
		{"LOCK job 30s OWNER shared", locks.LockRequest{}, "ERR the owner cannot be the word shared"},
		{"LOCK job 30s SHARED SHARED", locks.LockRequest{}, "ERR option SHARED was given twice"},
		{"LOCK job 30s OWNER me PERMITS 1001", locks.LockRequest{}, "ERR PERMITS 1001 is over the maximum"},
		{"LOCK " + strings.Repeat("n", locks.MaxName) + " 30s", locks.LockRequest{Key: locks.Key{Name: strings.Repeat("n", locks.MaxName)}, TTL: 30 * time.Second}, ""},
		{"LOCK " + strings.Repeat("n", locks.MaxName+1) + " 30s", locks.LockRequest{}, "ERR the name of a lock"},
		{"LOCK job 30s OWNER " + strings.Repeat("o", locks.MaxOwner+1), locks.LockRequest{}, "ERR the value of OWNER"},
		{"LOCK job 30s INFO " + strings.Repeat("i", locks.MaxInfo+1), locks.LockRequest{}, "ERR the value of INFO"},
	}
	for _, tt := range tests {
		got, err := l.ParseLock(words(tt.line))
		checkParse(t, tt.line, err, tt.err)
		if tt.err == "" && !reflect.DeepEqual(got.LockRequest, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.line, got, tt.want)
		}
	}
	if _, err := l.ParseLock([][]byte{[]byte("LOCK"), {}, []byte("30s")}); err == nil {
		t.Error("an empty name was taken")
	}
	if a, err := l.ParseLock(words("LOCK job 30s RETRYAFTER")); err != nil || !a.RetryAfter || a.BindsToSession {
		t.Errorf("RETRYAFTER: %+v, %v", a, err)
	}
	if a, err := l.ParseLock(words("LOCK job 30s SESSION")); err != nil || a.RetryAfter || !a.BindsToSession {
		t.Errorf("SESSION: %+v, %v", a, err)
	}
}

func TestParseRelease(t *testing.T) {
	l := Limits{}.WithDefaults()
	tests := []struct {
		line string
		want Release
		err  string
	}{
		{"RENEW job 30s", Release{Name: "job", TTL: 30 * time.Second}, ""},
		{"RENEW job 30s me FENCE 7", Release{Name: "job", TTL: 30 * time.Second, Owner: "me", Fence: 7}, ""},
		{"RENEW job 30s fence 7", Release{Name: "job", TTL: 30 * time.Second, Fence: 7}, ""},
		{"RENEW job 30s " + strings.Repeat("o", locks.MaxOwner), Release{Name: "job", TTL: 30 * time.Second, Owner: strings.Repeat("o", locks.MaxOwner)}, ""},
		{"RENEW job 30s " + strings.Repeat("o", locks.MaxOwner+1), Release{}, "ERR the owner must have 1 to"},
		{"UNLOCK job", Release{Name: "job"}, ""},
		{"UNLOCK job me ALL", Release{Name: "job", Owner: "me", All: true}, ""},
		{"UNLOCK job FENCE 12 ALL", Release{Name: "job", Fence: 12, All: true}, ""},
		{"RENEW job", Release{}, "wrong number of arguments for 'renew' command; usage: RENEW"},
		{"UNLOCK", Release{}, "wrong number of arguments for 'unlock' command; usage: UNLOCK"},
		{"RENEW job 30s me ALL", Release{}, "ERR unknown option 'ALL'; usage: RENEW"},
		{"RENEW job 30s OWNER me", Release{}, "ERR unknown option 'me'; the owner is said without the word OWNER; usage: RENEW name ttl [owner]"},
		{"UNLOCK job me FENCE", Release{}, "ERR option FENCE needs a value"},
		{"UNLOCK job me FENCE x", Release{}, "ERR FENCE must be a positive integer"},
		{"UNLOCK job me FENCE 0", Release{}, "ERR FENCE must be a positive integer"},
		{"UNLOCK job me FENCE 9223372036854775808", Release{}, "ERR FENCE must be a positive integer"},
		{"UNLOCK job me FENCE 1 FENCE 1", Release{}, "ERR option FENCE was given twice"},
		{"UNLOCK job me REQ 1", Release{Name: "job", Owner: "me", Req: "1"}, ""},
		{"UNLOCK job REQ 1", Release{}, "ERR REQ needs OWNER"},
		{"RENEW job 30s me REQ 1", Release{}, "ERR unknown option 'REQ'"},
		{"RENEW job 30s me SHARED FENCE 7", Release{Name: "job", TTL: 30 * time.Second, Owner: "me", Fence: 7, Shared: true}, ""},
		{"RENEW job 30s shared", Release{Name: "job", TTL: 30 * time.Second, Shared: true}, ""},
		{"RENEW job 30s me SHARED SHARED", Release{}, "ERR option SHARED was given twice"},
		{"UNLOCK job me REQ 1 ALL SHARED", Release{Name: "job", Owner: "me", Req: "1", All: true, Shared: true}, ""},
		{"UNLOCK job Shared", Release{Name: "job", Shared: true}, ""},
		{"UNLOCK job shared me", Release{}, "ERR unknown option 'me'; usage: UNLOCK"},
		{"UNLOCK job SHARED REQ 1", Release{}, "ERR REQ needs OWNER"},
		{"UNLOCK job me you", Release{}, "ERR unknown option 'you'; usage: UNLOCK"},
		{"UNLOCK job OWNER me", Release{}, "ERR unknown option 'me'; the owner is said without the word OWNER; usage: UNLOCK name [owner]"},
		{"UNLOCK job owner", Release{Name: "job", Owner: "owner"}, ""},
		{"UNLOCK job owner ALL", Release{Name: "job", Owner: "owner", All: true}, ""},
	}
	for _, tt := range tests {
		parse := ParseUnlock
		if strings.HasPrefix(tt.line, "RENEW") {
			parse = l.ParseRenew
		}
		got, err := parse(words(tt.line))
		checkParse(t, tt.line, err, tt.err)
		if tt.err == "" && got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.line, got, tt.want)
		}
	}
}

// checkParse wants an error that contains part, or none; and never one that makes
// clients believe that the command itself is unknown.
func checkParse(t *testing.T, line string, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err != nil:
		t.Errorf("%s: %v", line, err)
	case part != "" && err == nil:
		t.Errorf("%.60s: taken, want an error with %q", line, part)
	case part != "" && !strings.Contains(err.Error(), part):
		t.Errorf("%.60s: %v; want %q", line, err, part)
	}
	if err != nil && (strings.HasPrefix(err.Error(), "ERR unknown command") || strings.HasPrefix(err.Error(), "ERR syntax error")) {
		t.Errorf("%.60s: %v begins as clients do not expect", line, err)
	}
}
