package adopt

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// say runs one command of a client that may be in a transaction: WATCH, a command behind "queue", EXEC, FORGET, or any
// other. Words of a script's name stand for its text.
func (c *client) say(t *Transaction, line string) string {
	c.t.Helper()
	words := strings.Fields(line)
	queue := words[0] == "queue"
	if queue {
		words = words[1:]
	}
	var args [][]byte
	for _, w := range words {
		switch w {
		case "cad":
			w = compareAndDelete
		case "enter":
			w = enterHash
		}
		args = append(args, []byte(w))
	}
	keys := Keys{Known: true}
	for i := 1; i < len(args) && words[0] == "WATCH" || i == 1 && i < len(args); i++ {
		keys.At = append(keys.At, i)
	}
	var r Result
	var err error
	queued := false
	switch {
	case queue:
		if queued, err = c.a.Queue(c, t, args, keys, UpstreamTx{}); queued {
			return "QUEUED"
		}
	case words[0] == "WATCH":
		if err = c.a.Watch(c.t.Context(), c, t, args, keys); err == nil {
			return "OK"
		}
	case words[0] == "EXEC":
		r, err = c.a.Exec(c.t.Context(), c, t)
		t.Forget()
	case words[0] == "FORGET":
		t.Forget()
	default:
		for i, a := range args {
			words[i] = string(a)
		}
		return c.do(words...)
	}
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(r.Reply), "\r\n"), "\r\n", " ")
}

// follow goes through steps: "N COMMAND > REPLY", which proxy N is sent, with its times filled in by deadlines, or "sleep D".
func follow(t *testing.T, p []*client, steps []string) {
	t.Helper()
	txs := make([]Transaction, len(p))
	for _, step := range steps {
		if nap, is := strings.CutPrefix(step, "sleep "); is {
			d, err := time.ParseDuration(nap)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
			continue
		}
		said, want, _ := strings.Cut(step, " > ")
		at := said[0] - '0'
		if got := p[at].say(&txs[at], deadlines(said[2:])); got != want {
			t.Fatalf("%s: %s", step, got)
		}
	}
}

// TestTransaction: what EXEC does, and answers. Steps are a proxy, what is said through it, and the reply.
func TestTransaction(t *testing.T) {
	const refused = "ADOPTREFUSED "
	for name, steps := range map[string][]string{
		"compare in the client, and release": {"0 SET lock:a me NX PX 5000 > +OK", "0 WATCH lock:a > OK", "0 GET lock:a > $2 me", "0 queue DEL lock:a > QUEUED", "0 EXEC > *1 :1", "0 GET lock:a > $-1"},
		"through another proxy":              {"0 SET lock:a me NX PX 5000 > +OK", "1 WATCH lock:a > OK", "1 GET lock:a > $2 me", "1 queue DEL lock:a > QUEUED", "1 EXEC > *1 :1", "0 GET lock:a > $-1"},
		"another's by then":                  {"0 SET lock:a me NX PX 5000 > +OK", "0 WATCH lock:a > OK", "1 DEL lock:a > :1", "1 SET lock:a you NX PX 5000 > +OK", "0 queue DEL lock:a > QUEUED", "0 EXEC > *-1", "0 GET lock:a > $3 you"},
		"another's of the same value":        {"0 SET lock:a 1 NX PX 5000 > +OK", "0 WATCH lock:a > OK", "1 DEL lock:a > :1", "1 SET lock:a 1 NX PX 5000 > +OK", "0 queue DEL lock:a > QUEUED", "0 EXEC > *-1", "0 GET lock:a > $1 1"},
		"a hash, entered anew by the same":   {"0 EVAL enter 1 lock:a 5000 me > $-1", "0 WATCH lock:a > OK", "1 DEL lock:a > :1", "1 EVAL enter 1 lock:a 5000 me > $-1", "0 queue DEL lock:a > QUEUED", "0 EXEC > *-1", "0 HGET lock:a me > $1 1"},
		"free by then":                       {"0 SET lock:a me NX PX 5000 > +OK", "0 WATCH lock:a > OK", "1 DEL lock:a > :1", "0 queue DEL lock:a > QUEUED", "0 EXEC > *-1"},
		"its end has come":                   {"0 SET lock:a me NX PX 5000 > +OK", "0 WATCH lock:a > OK", "sleep 6s", "0 queue DEL lock:a > QUEUED", "0 EXEC > *-1"},
		"another's behind its end":           {"0 SET lock:a me NX PX 5000 > +OK", "0 WATCH lock:a > OK", "sleep 6s", "1 SET lock:a you NX PX 9000 > +OK", "0 queue PEXPIRE lock:a 9000 > QUEUED", "0 EXEC > *-1", "0 GET lock:a > $3 you"},
		"extended":                           {"0 SET lock:a me NX PX 5000 > +OK", "1 WATCH lock:a > OK", "1 queue PEXPIRE lock:a 9000 > QUEUED", "1 EXEC > *1 :1", "sleep 6s", "0 GET lock:a > $2 me"},
		"renewed since":                      {"0 SET lock:a me NX PX 5000 > +OK", "1 WATCH lock:a > OK", "0 PEXPIRE lock:a 20000 > :1", "sleep 6s", "1 queue DEL lock:a > QUEUED", "1 EXEC > *1 :1"},
		"taken, as it was free":              {"0 WATCH lock:a > OK", "0 GET lock:a > $-1", "0 queue SET lock:a me PX 5000 > QUEUED", "0 EXEC > *1 +OK", "1 GET lock:a > $2 me"},
		"taken in two commands":              {"0 WATCH lock:a > OK", "0 queue SETNX lock:a me > QUEUED", "0 queue EXPIRE lock:a 7 > QUEUED", "0 EXEC > *2 :1 :1", "1 PTTL lock:a > :7000"},
		"no more free":                       {"0 WATCH lock:a > OK", "1 SET lock:a you NX PX 5000 > +OK", "0 queue SET lock:a me PX 5000 > QUEUED", "0 EXEC > *-1", "0 GET lock:a > $3 you"},
		"only read":                          {"0 SET lock:a me NX PX 5000 > +OK", "1 WATCH lock:a > OK", "1 queue GET lock:a > QUEUED", "1 queue PTTL lock:a > QUEUED", "1 queue EXISTS lock:a > QUEUED", "1 EXEC > *3 $2 me :5000 :1"},
		"by a script served as a read":       {"0 SET lock:a me NX PX 5000 > +OK", "0 queue EVAL return(redis.call('strlen',KEYS[1])==2)and(redis.call('del',KEYS[1]))or(0) 1 lock:a > QUEUED", "0 EXEC > " + refused + `EXEC lock:a: a change of a lock that it has not compared with a value; adopted by "lock:*"`, "1 GET lock:a > $2 me"},
		"only read, and another's":           {"0 SET lock:a me NX PX 5000 > +OK", "1 WATCH lock:a > OK", "0 DEL lock:a > :1", "0 SET lock:a me NX PX 5000 > +OK", "1 queue GET lock:a > QUEUED", "1 EXEC > *-1"},
		"nothing but WATCH":                  {"0 WATCH lock:a > OK", "0 EXEC > *0", "0 WATCH lock:a > OK", "1 SET lock:a you NX PX 5000 > +OK", "0 EXEC > *-1"},
		"read and released":                  {"0 SET lock:a me NX PX 5000 > +OK", "1 queue GET lock:a > QUEUED", "1 queue DEL lock:a > QUEUED", "1 queue GET lock:a > QUEUED", "1 EXEC > *3 $2 me :1 $-1", "1 EXISTS lock:a > :0"},
		"taken without WATCH":                {"0 queue SETNX lock:a me > QUEUED", "0 queue EXPIRE lock:a 9 > QUEUED", "0 EXEC > *2 :1 :1", "1 queue SETNX lock:a you > QUEUED", "1 queue EXPIRE lock:a 7 > QUEUED", "1 EXEC > *2 :0 :1", "0 PTTL lock:a > :7000"},
		"an old guess":                       {"0 SET lock:a me NX PX 5000 > +OK", "1 DEL lock:a > :1", "1 SET lock:a you NX PX 5000 > +OK", "0 queue EVAL cad 1 lock:a me > QUEUED", "0 EXEC > *1 :0", "0 queue EVAL cad 1 lock:a you > QUEUED", "0 EXEC > *1 :1"},
		"forgotten":                          {"0 SET lock:a me NX PX 5000 > +OK", "0 WATCH lock:a > OK", "0 FORGET > ", "1 DEL lock:a > :1", "1 SET lock:a you NX PX 5000 > +OK", "0 queue DEL lock:a > QUEUED", "0 EXEC > *1 :1"},
		"watched twice":                      {"0 WATCH lock:a > OK", "1 SET lock:a you NX PX 5000 > +OK", "0 WATCH lock:a > OK", "0 queue DEL lock:a > QUEUED", "0 EXEC > *-1"},
		"DEL compares what is watched":       {"0 SET job:a me NX PX 5000 > +OK", "0 queue DEL job:a > " + refused + `DEL job:a: FORCE-RELEASE does not compare the value; adopted by "job:*"`, "0 WATCH job:a > OK", "0 queue DEL job:a > QUEUED", "0 EXEC > *1 :1"},
		"two locks":                          {"0 queue GET lock:a > QUEUED", "0 queue GET lock:b > " + refused + `GET lock:b: another lock is in the transaction: lock:a; adopted by "lock:*"`},
		"another lock watched":               {"0 WATCH lock:a > OK", "0 WATCH lock:b > " + refused + `WATCH lock:b: another lock is watched: lock:a; adopted by "lock:*"`, "0 queue GET lock:b > " + refused + `GET lock:b: another lock is in the transaction: lock:a; adopted by "lock:*"`},
		"watched with another key":           {"0 WATCH lock:a x > " + refused + `WATCH lock:a: it has other keys as well; adopted by "lock:*"`},
		"wrong":                              {"0 queue GET lock:a x > ERR wrong number of arguments for 'get' command", "0 queue INCR lock:a > " + refused + `INCR lock:a: INCR of a lock: a counter, or a semaphore, whose permits have neither owner nor end; adopted by "lock:*"`},
		"too long":                           {"0 queue SET lock:a me NX PX 999999 > QUEUED", "0 EXEC > " + refused + `EXEC lock:a: its ttl of 16m39.999s is over max-ttl, 1m0s; adopted by "lock:*"`, "0 EXISTS lock:a > :0"},
		"in place of the lock":               {"0 SET lock:a me NX PX 5000 > +OK", "0 WATCH lock:a > OK", "0 queue SET lock:a you PX 9000 > QUEUED", "0 EXEC > *1 +OK", "1 GET lock:a > $3 you"},
		"wrong in EXEC":                      {"0 queue SET lock:a me NX PX x > QUEUED", "0 queue SET lock:a me NX PX 5000 > QUEUED", "0 EXEC > *2 -ERR value is not an integer or out of range +OK"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := proxies(t, 2, "lock:* guard=no no-expiry=lease:30s", "job:* as=strict guard=no")
				follow(t, p, steps)
			})
		})
	}
}

// TestTransaction_NullsOfRESP3: the null array is another one in RESP3.
func TestTransaction_NullsOfRESP3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 1, "lock:*")[0]
		p.proto = 3
		var tx Transaction
		p.say(&tx, "WATCH lock:a")
		p.say(&tx, "SET lock:a you NX PX 5000")
		p.say(&tx, "queue GET lock:a")
		if got := p.say(&tx, "EXEC"); got != "_" {
			t.Error(got)
		}
		p.say(&tx, "queue GET lock:b")
		if got := p.say(&tx, "EXEC"); got != "*1 _" {
			t.Error(got)
		}
	})
}

// TestTransaction_Guard: a lock that is free may be one that the upstream has.
func TestTransaction_Guard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 1, "lock:*")[0]
		p.has = ":5000\r\n"
		var tx Transaction
		p.say(&tx, "WATCH lock:a")
		p.say(&tx, "queue SET lock:a me PX 5000")
		if got := p.say(&tx, "EXEC"); got != "*-1" {
			t.Error(got)
		}
		if p.has = ""; p.say(&tx, "EXISTS lock:a") != ":0" {
			t.Error("it has been taken")
		}
	})
}

// TestTransaction_Signals follow what is done, and only that.
func TestTransaction_Signals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 1, "lock:*")[0]
		var tx Transaction
		queue := func() {
			t.Helper()
			if _, err := p.a.Queue(p, &tx, [][]byte{[]byte("EVAL"), []byte(freeAndTell), []byte("1"), []byte("lock:a")}, Keys{}, UpstreamTx{}); err != nil {
				t.Fatal(err)
			}
		}
		p.say(&tx, "SET lock:a me NX PX 5000")
		p.say(&tx, "WATCH lock:a")
		p.say(&tx, "DEL lock:a")
		if queue(); p.say(&tx, "EXEC") != "*-1" || len(p.asked) > 0 {
			t.Errorf("%q", p.asked)
		}
		p.say(&tx, "SET lock:a me NX PX 5000")
		p.say(&tx, "WATCH lock:a")
		if queue(); p.say(&tx, "EXEC") != "*1 :1" || len(p.asked) != 1 {
			t.Errorf("%q", p.asked)
		}
	})
}

// TestTransaction_Rights are asked for each command, before anything is done.
func TestTransaction_Rights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 1, "lock:*")[0]
		var tx Transaction
		p.say(&tx, "SET lock:a me NX PX 5000")
		p.no = errors.New("NOPERM")
		p.say(&tx, "queue GET lock:a")
		p.say(&tx, "queue DEL lock:a")
		if got := p.say(&tx, "EXEC"); got != "NOPERM" {
			t.Error(got)
		}
		if p.no = nil; p.say(&tx, "EXISTS lock:a") != ":1" {
			t.Error("it has been released")
		}
	})
}

// TestTransaction_RefusesOtherKeys: a transaction with a lock refuses other keys and the other way round, and so do
// locks and CLIENT TRACKING.
func TestTransaction_RefusesOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 1, "lock:*")[0]
		for b, why := range map[UpstreamTx]string{
			{Queued: true}:  "it is inside MULTI with commands that are about no lock",
			{Watched: true}: "it is inside MULTI, and a key that is no lock is watched",
			{Tracked: true}: "CLIENT TRACKING is on, and would not be told of changes of a lock",
		} {
			var tx Transaction
			queued, err := p.a.Queue(p, &tx, [][]byte{[]byte("GET"), []byte("lock:a")}, Keys{[]int{1}, true}, b)
			if want := "ADOPTREFUSED GET lock:a: " + why + `; adopted by "lock:*"`; queued || tx.Active() || err == nil || err.Error() != want {
				t.Errorf("%+v: %v", b, err)
			}
		}
		tx := Transaction{}
		for i := range maxQueued + 1 {
			if got := p.say(&tx, "queue GET lock:a"); (got == "QUEUED") != (i < maxQueued) {
				t.Fatalf("%d: %s", i, got)
			}
		}
		if got := p.a.RefuseMixedTx(p, &tx, [][]byte{[]byte("incr"), []byte("n")}).Error(); got != `ADOPTREFUSED INCR lock:a: it is in one transaction with that lock; adopted by "lock:*"` {
			t.Error(got)
		}
	})
}
