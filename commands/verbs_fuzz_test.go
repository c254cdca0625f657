package commands

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// FuzzVerbs: whatever follows a verb, it is one request within the limits or one error
// that no client takes for a command that is not there. Arguments are separated by NUL.
func FuzzVerbs(f *testing.F) {
	for _, line := range []string{
		"LOCK job 30s", "LOCK job 100 OWNER me WAIT 2m SESSION MAXHOLD 1h REQ r1 INFO text RETRYAFTER", "lock job 0x1 owner", "LOCK job 30s OWNER me FRESH", "LOCK job 30s OWNER me NOREENTER FRESH", "LOCK job 30s NOREENTER", "LOCK job 30s SESSION ONLOSS push", "LOCK job 30s ONLOSS CLOSE", "LOCK job 9223372036854775807h", "LOCK job +5s WAIT -1", "LOCK job 30s INFO",
		"RENEW job 500ms me FENCE 7", "RENEW job 30s FENCE 9223372036854775808", "UNLOCK job me FENCE 1 REQ r1 ALL", "UNLOCK job ALL ALL", "UNLOCK job FENCE",
		"LOCKCTL INFO job", "LOCKCTL LIST MATCH a* COUNT 5 CURSOR 1.0.5", "LOCKCTL LIST COUNT -1", "LOCKCTL WHY job", "LOCKCTL NODES", "LOCKCTL HELP", "LOCKCTL WAITERS a", "LOCKCTL",
	} {
		f.Add([]byte(strings.ReplaceAll(line, " ", "\x00")))
	}
	b := &book{held: true}
	d := New(Options{Inspector: b, Nodes: b.nodes})
	f.Fuzz(func(t *testing.T, line []byte) {
		args := bytes.Split(line, []byte{0})
		var err error
		switch {
		case resp.Is(args[0], "LOCK"):
			var a lockArgs
			if a, err = d.parseLock(args); err == nil {
				checkAcquisition(t, a)
			}
		case resp.Is(args[0], "RENEW"):
			err = checkRelease(t, d, args, renewUsage)
		case resp.Is(args[0], "UNLOCK"):
			err = checkRelease(t, d, args, unlockUsage)
		case resp.Is(args[0], "LOCKCTL") && (len(args) < 2 || !resp.Is(args[1], "FORCE")):
			s := &Session{d: d, admin: true, adminCheckedAt: time.Now()}
			s.id.Proto = 2 + len(line)%2
			var reply []byte
			if reply, err = s.lockctl(t.Context(), args); err == nil {
				checkReply(t, reply)
			}
		}
		if err != nil {
			checkError(t, err)
		}
	})
}

func checkAcquisition(t *testing.T, a lockArgs) {
	t.Helper()
	switch r := a.LockRequest; {
	case len(r.Name) < 1 || len(r.Name) > locks.MaxName, len(r.Owner) > locks.MaxOwner, len(r.Info) > locks.MaxInfo, len(r.Req) > locks.MaxReq,
		r.TTL < 100*time.Millisecond || r.TTL > time.Minute, r.Wait < 0, r.MaxHold != 0 && r.MaxHold < 100*time.Millisecond || r.MaxHold > time.Hour,
		(r.Req != "" || r.Fresh || r.NoReenter) && r.Owner == "", r.Fresh && r.NoReenter, (r.MaxHold > 0 || r.OnLoss != 0) && !a.session, r.DB != 0 || r.Session != (*locks.Session)(nil):
		t.Errorf("taken: %+v", a)
	}
}

func checkRelease(t *testing.T, d *Dispatcher, args [][]byte, usage string) error {
	t.Helper()
	r, err := d.parseRelease(args, usage)
	if err != nil {
		return err
	}
	renew := usage == renewUsage
	if len(r.name) < 1 || len(r.name) > locks.MaxName || len(r.owner) > locks.MaxOwner || len(r.req) > locks.MaxReq || r.fence < 0 ||
		renew && (r.all || r.req != "" || r.ttl < 100*time.Millisecond || r.ttl > time.Minute) || !renew && r.ttl != 0 || r.req != "" && r.owner == "" {
		t.Errorf("taken: %+v", r)
	}
	return nil
}

func checkError(t *testing.T, err error) {
	t.Helper()
	reply := appendErr(nil, err)
	checkReply(t, reply)
	if text, ok := resp.Error(reply); !ok || !strings.HasPrefix(text, "ERR ") || strings.HasPrefix(text, "ERR unknown command") || strings.HasPrefix(text, "ERR syntax error") || len(text) > 1000 {
		t.Errorf("refused with %q", reply)
	}
}

// checkReply wants exactly one.
func checkReply(t *testing.T, reply []byte) {
	t.Helper()
	var fr resp.Scanner
	if n, done, err := fr.Scan(reply); n != len(reply) || !done || err != nil {
		t.Errorf("not one reply: %q", reply)
	}
}
