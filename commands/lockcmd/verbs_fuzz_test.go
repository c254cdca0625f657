package lockcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
		"LOCKALL 2 job b 30s OWNER me WAIT 2m REQ r1 FRESH", "LOCKALL 0 job 30s", "LOCKALL 2 job job 30s", "LOCKALL 65 job 30s", "RENEWALL 1 job 30s me", "UNLOCKALL 2 job b me REQ r1 ALL", "UNLOCKALL 1 job FENCE 1",
		"LOCKCTL INFO job", "LOCKCTL LIST MATCH a* COUNT 5 CURSOR 1.0.5", "LOCKCTL LIST COUNT -1", "LOCKCTL WHY job", "LOCKCTL NODES", "LOCKCTL HELP", "LOCKCTL WAITERS a", "LOCKCTL",
	} {
		f.Add([]byte(strings.ReplaceAll(line, " ", "\x00")))
	}
	l := Limits{}.WithDefaults()
	f.Fuzz(func(t *testing.T, line []byte) {
		args := bytes.Split(line, []byte{0})
		var err error
		switch {
		case resp.Is(args[0], "LOCK"):
			var a Lock
			if a, err = l.ParseLock(args); err == nil {
				checkLock(t, a)
			}
		case resp.Is(args[0], "LOCKALL"):
			var a Lock
			if a, err = l.ParseLockAll(args); err == nil {
				checkLock(t, a)
			}
		case resp.Is(args[0], "RENEW"):
			err = checkRelease(t, l.ParseRenew, args, true)
		case resp.Is(args[0], "UNLOCK"):
			err = checkRelease(t, ParseUnlock, args, false)
		case resp.Is(args[0], "RENEWALL"):
			err = checkRelease(t, one(l.ParseRenewAll), args, true)
		case resp.Is(args[0], "UNLOCKALL"):
			err = checkRelease(t, one(ParseUnlockAll), args, false)
		case resp.Is(args[0], "LOCKCTL") && (len(args) < 2 || !resp.Is(args[1], "FORCE")):
			c := New(Options{Inspector: oneLock{}, Nodes: oneLock{}.nodes}, nil).NewClient(&fakeConn{proto: 2 + len(line)%2, admin: true})
			var reply Reply
			if reply, err = c.Ctl(t.Context(), args); err == nil {
				checkReply(t, reply.Now())
			}
		}
		if err != nil {
			checkError(t, err)
		}
	})
}

func checkLock(t *testing.T, a Lock) {
	t.Helper()
	switch r := a.LockRequest; {
	case len(r.Name) < 1 || len(r.Name) > locks.MaxName, len(r.Owner) > locks.MaxOwner, len(r.Info) > locks.MaxInfo, len(r.Req) > locks.MaxReq,
		r.TTL < 100*time.Millisecond || r.TTL > time.Minute, r.Wait < 0, r.MaxHold != 0 && r.MaxHold < 100*time.Millisecond || r.MaxHold > time.Hour,
		len(r.Others) >= locks.MaxNames, len(r.Others) > 0 && (!a.Several || r.Others[0].Name == r.Name), a.Several && (a.Async || r.Permits > 0),
		(r.Req != "" || r.Fresh || r.NoReenter) && r.Owner == "", r.Fresh && r.NoReenter, (r.MaxHold > 0 || r.OnLoss != 0) && !a.BindsToSession, r.DB != 0 || r.Session != (*locks.Session)(nil):
		t.Errorf("taken: %+v", a)
	}
}

// one makes a parser of several names one of the last of them.
func one(parse func([][]byte) ([]string, Release, error)) func([][]byte) (Release, error) {
	return func(args [][]byte) (Release, error) {
		names, r, err := parse(args)
		if err == nil && (r.Fence != 0 || len(names) > locks.MaxNames) {
			err = fmt.Errorf("taken: %+v, %d names", r, len(names))
		} else if err == nil {
			r.Name = names[len(names)-1]
		}
		return r, err
	}
}

func checkRelease(t *testing.T, parse func([][]byte) (Release, error), args [][]byte, renew bool) error {
	t.Helper()
	r, err := parse(args)
	if err != nil {
		return err
	}
	if len(r.Name) < 1 || len(r.Name) > locks.MaxName || len(r.Owner) > locks.MaxOwner || len(r.Req) > locks.MaxReq || r.Fence < 0 ||
		renew && (r.All || r.Req != "" || r.TTL < 100*time.Millisecond || r.TTL > time.Minute) || !renew && r.TTL != 0 || r.Req != "" && r.Owner == "" {
		t.Errorf("taken: %+v", r)
	}
	return nil
}

func checkError(t *testing.T, err error) {
	t.Helper()
	reply := resp.AppendError(nil, err.Error())
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

// oneLock is an Inspector of one lock.
type oneLock struct{}

var theHolding = locks.Holding{
	Key: locks.Key{Name: "job"}, Owner: "me", Fence: 7, Holds: 2, Remaining: 1500500 * time.Microsecond, Held: 2 * time.Second,
	Info: "why", Votes: 2, Waiters: 1,
}

func (oneLock) Inspect(_ context.Context, k locks.Key) (locks.Inspection, error) {
	return locks.Inspection{Need: 2, Held: k.Name == "job", Holding: theHolding, Nodes: []locks.NodeView{
		{Address: "n1", State: locks.NodeVoting, Owner: "me", Fence: 7, Remaining: time.Second},
		{Address: "n2", Err: errors.New("timeout")},
	}}, nil
}

func (oneLock) List(context.Context, locks.ListRequest) (locks.Listing, error) {
	return locks.Listing{Held: []locks.Holding{theHolding}, Cursor: "1.0.5"}, nil
}

func (oneLock) Waiters(locks.Key) []locks.Waiter { return oneWaiter }

func (oneLock) Force(context.Context, locks.Key) (locks.Holding, bool, error) {
	return theHolding, true, nil
}

func (oneLock) nodes() []locks.NodeStatus {
	return []locks.NodeStatus{{Address: "n1", Up: true, State: locks.NodeVoting, RunID: "r1", Largest: 9}}
}
