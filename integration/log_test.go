package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// Requests without lock nodes are logged rarely, with the client, the name, and each
// node's failure.
func TestLog_LimitsRepeatedEvents(t *testing.T) {
	t.Parallel()
	node := redistest.Reserve(t)
	p := redistest.StartProxy(t, redistest.Start(t), []*redistest.Server{node}, "--log-limit", "5")
	c := redistest.Open(t, p.Addr())
	c.Do(t, "CLIENT", "SETNAME", "worker-7")
	const storm = 300
	began := time.Now()
	for range storm {
		if v := c.Do(t, "LOCK", "job", "10s", "OWNER", "nobody's-business"); !strings.HasPrefix(v.Raw, "-NOQUORUM ") {
			t.Fatalf("LOCK: %v", v)
		}
	}
	windows := int(time.Since(began)/(10*time.Second)) + 2
	log := p.Log()
	lines := linesWith(log, `msg="too few lock nodes answered"`)
	if len(lines) == 0 || len(lines) > 5*windows {
		t.Fatalf("%d lines for %d LOCKs:\n%s", len(lines), storm, log)
	}
	for _, want := range []string{
		"level=WARN", `client_id=\d+`, `client=127\.0\.0\.1:\d+`, "user=default", "client_name=worker-7", "verb=LOCK", "db=0", "lock=job",
		"owner_hash=[0-9a-f]{8}", `took=\d\S*`, "answered=0", "needed=1", fmt.Sprintf(`nodes=".*%s .*"`, regexp.QuoteMeta(node.Addr())),
	} {
		if !regexp.MustCompile(`(^| )` + want + `( |$)`).MatchString(lines[0]) {
			t.Errorf("the line lacks %s: %s", want, lines[0])
		}
	}
	if strings.Contains(log, "business") {
		t.Errorf("the log has the owner:\n%s", log)
	}
}

// TestLog_LockEvents: what a lock did not protect is a warning; that somebody else has it is
// nothing but a line for debugging.
func TestLog_LockEvents(t *testing.T) {
	t.Parallel()
	p := redistest.StartProxy(t, redistest.Start(t), []*redistest.Server{redistest.Start(t)}, "--log-level", "debug", "--node-timeout", "2s")
	c := redistest.Open(t, p.Addr())
	c.Do(t, "LOCK", "held", "60s", "OWNER", "alice")
	c.Do(t, "LOCK", "held", "60s", "OWNER", "bob")
	c.Do(t, "RENEW", "held", "60s", "alice")
	c.Do(t, "UNLOCK", "held", "alice")
	c.Do(t, "UNLOCK", "never-taken-by-me", "alice")
	session := redistest.Open(t, p.Addr())
	session.Do(t, "HELLO", "3")
	long := strings.Repeat("n", 100)
	session.Do(t, "LOCK", long, "60s", "SESSION", "OWNER", "alice")
	c.Do(t, "LOCKCTL", "FORCE", long)
	c.Do(t, "LOCK", "read", "60s", "SHARED", "OWNER", "alice")
	c.Do(t, "LOCK", "read", "60s", "SHARED", "OWNER", "bob")
	c.Do(t, "LOCKCTL", "FORCE", "read")
	c.Do(t, "LOCKALL", "2", "all1", "all2", "60s", "OWNER", "alice")
	c.Do(t, "LOCKALL", "2", "all3", "all2", "60s", "OWNER", "bob")
	c.Do(t, "UNLOCK", "all1", "alice")
	c.Do(t, "LOCK", "all1", "60s", "OWNER", "bob")
	c.Do(t, "RENEWALL", "2", "all1", "all2", "60s", "alice")
	c.Do(t, "UNLOCKALL", "1", "all2", "alice")
	var log string
	over := func() bool {
		return len(linesWith(log, "is lost")) > 0 && len(linesWith(log, "lock forced")) > 1 && len(linesWith(log, "verb=UNLOCKALL")) > 0
	}
	for end := time.Now().Add(20 * time.Second); !over(); time.Sleep(10 * time.Millisecond) {
		if log = p.Log(); time.Now().After(end) {
			t.Fatalf("the loss, or the last command, is not in the log:\n%s", log)
		}
	}
	for _, tt := range []struct{ level, msg, more string }{
		{"DEBUG", "lock granted", "lock=held"},
		{"DEBUG", "lock is held by another", "lock=held"},
		{"DEBUG", "lock renewed", "lock=held"},
		{"DEBUG", "lock given back", "lock=held"},
		{"WARN", "lock lost: lease ended before RENEW or UNLOCK", "lock=never-taken-by-me"},
		{"WARN", "lock forced", "lock=" + long[:64] + "..."},
		{"WARN", "lock forced", "readers=2"},
		{"DEBUG", "lock granted", "verb=LOCKALL db=0 lock=all2"},
		{"DEBUG", "lock is held by another", "verb=LOCKALL db=0 lock=all2"},
		{"WARN", "lock lost: held by another owner at RENEW or UNLOCK", "verb=RENEWALL db=0 lock=all1"},
		{"DEBUG", "lock renewed", "verb=RENEWALL db=0 lock=all2"},
		{"DEBUG", "lock given back", "verb=UNLOCKALL db=0 lock=all2"},
		{"WARN", "lock with SESSION is lost", "lock=" + long[:64] + "..."},
	} {
		found := linesWith(log, fmt.Sprintf("level=%s msg=%q", tt.level, tt.msg))
		if len(found) == 0 || len(linesWith(strings.Join(found, "\n"), tt.more)) == 0 {
			t.Errorf("no line %q of level %s with %s in\n%s", tt.msg, tt.level, tt.more, log)
		}
	}
	if found := linesWith(log, "alice"); len(found) > 0 {
		t.Errorf("the log has an owner: %s", found[0])
	}
}

func linesWith(log, text string) (found []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
