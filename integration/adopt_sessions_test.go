package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

const compareAndDelete = redistest.CompareAndDelete

// TestAdopt_InEveryState: an adopted command keeps its turn, and does in every state of a connection what a lock verb
// does there.
func TestAdopt_InEveryState(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	p := startAdopting(t, data)
	other := redistest.Open(t, p.Addr())
	wantReplies(t, other, [2]string{"SET lock:held other NX PX 60000", "+OK"})
	const refusedInTx = `-ADOPTREFUSED SET lock:a: it is inside MULTI with commands that are about no lock; adopted by "lock:*"`
	const subscriber = "-ERR Can't execute 'set': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
	const (
		followed = "EVAL redis.call('SET',KEYS[1],ARGV[1],'NX','PX','60000')redis.call('get',KEYS[1])return(1) 1"
		compared = "EVAL return(redis.call('GET',KEYS[1])==ARGV[1]and(redis.call('DEL',KEYS[1]))) 1"
	)
	const tracked = `-ADOPTREFUSED GET lock:held: CLIENT TRACKING is on, and would not be told of changes of a lock; adopted by "lock:*"`
	for _, tt := range []struct {
		name, sent string // commands, with a bar between them
		want       string
	}{
		{"pipeline", "INCR n|SET lock:p me NX PX 60000|INCR n|GET lock:p|DEL lock:p|INCR n|GET lock:p", `:1 +OK :2 $"me" :1 :3 $-1`},
		{"MULTI", "MULTI|INCR m|SET lock:a me NX PX 60000|EXEC|GET m", "+OK +QUEUED " + refusedInTx + " -EXECABORT Transaction discarded because of previous errors. $-1"},
		{"script in MULTI", "MULTI|EVAL x 0 lock:a|EXEC", `+OK -ADOPTREFUSED EVAL lock:a: not supported: its syntax; adopted by "lock:*" -EXECABORT Transaction discarded because of previous errors.`},
		{"WATCH", "WATCH lock:a|WATCH a lock:a|WATCH a", `+OK -ADOPTREFUSED WATCH lock:a: it has other keys as well; adopted by "lock:*" +OK`},
		{"CLIENT REPLY OFF", "CLIENT REPLY OFF|SET lock:r me NX PX 60000|CLIENT REPLY ON|GET lock:r|DEL lock:r", `+OK $"me" :1`},
		{"CLIENT REPLY SKIP", "CLIENT REPLY SKIP|SET lock:s me NX PX 60000|GET lock:s|DEL lock:s|PING", `$"me" :1 +PONG`},
		{"MULTI behind CLIENT REPLY", "CLIENT REPLY ON|MULTI|SET lock:a me NX PX 60000|EXEC|PING", "+OK +OK -ERR unknown command 'LOCKPROXY.ADOPTREFUSED', with args beginning with: 'SET' 'lock:a' 'me' 'NX' 'PX' '60000'  -EXECABORT Transaction discarded because of previous errors. +PONG"},
		{"subscriber", "SUBSCRIBE c|SET lock:a me NX PX 60000|UNSUBSCRIBE c|SET lock:a me NX PX 60000|DEL lock:a", `*[$"subscribe" $"c" :1] ` + subscriber + ` *[$"unsubscribe" $"c" :0] +OK :1`},
		{"tracking", "HELLO 3|CLIENT TRACKING ON|GET lock:held|SET lock:a me NX PX 60000|DEL lock:a|CLIENT TRACKING OFF|GET lock:held", `<...> +OK ` + tracked + ` +OK :1 +OK $"other"`},
		{"tracking of other prefixes", "HELLO 3|CLIENT TRACKING ON BCAST PREFIX cache: PREFIX more:|GET lock:held|EXISTS lock:held", `<...> +OK $"other" :1`},
		{"tracking of a prefix", "HELLO 3|CLIENT TRACKING ON BCAST PREFIX cache: PREFIX lock|GET lock:held", "<...> +OK " + tracked},
		{"tracking of everything", "HELLO 3|CLIENT TRACKING ON BCAST|GET lock:held", "<...> +OK " + tracked},
		{"tracking as asked", "HELLO 3|CLIENT TRACKING ON OPTIN|GET lock:held|CLIENT CACHING YES|GET lock:held", `<...> +OK $"other" +OK ` + tracked},
		{"tracking of a subscriber", "HELLO 3|SUBSCRIBE c|CLIENT TRACKING ON|GET lock:held", `<...> >[$"subscribe" $"c" :1] +OK ` + tracked},
		{"tracking refused", "CLIENT TRACKING NO|GET lock:held", `-ERR syntax error $"other"`},
		{"tracking by a script", "HELLO 3|CLIENT TRACKING ON OPTOUT|" + followed + " lock:a me|EXISTS x|" + compared + " lock:held me|CLIENT TRACKING OFF|" + followed + " lock:a me|DEL lock:a",
			`<...> +OK -ADOPTREFUSED EVAL lock:a: CLIENT TRACKING is on, and would not be told of changes of a lock; adopted by "lock:*" :0 _ +OK :1 :1`},
		{"tracking by a script in MULTI", "HELLO 3|CLIENT TRACKING ON|MULTI|" + followed + " lock:a me|EXEC",
			`<...> +OK +OK -ADOPTREFUSED EVAL lock:a: CLIENT TRACKING is on, and would not be told of changes of a lock; adopted by "lock:*" -EXECABORT Transaction discarded because of previous errors.`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := redistest.Open(t, p.Addr())
			c.Send(t, lines(append(strings.Split(tt.sent, "|"), "ECHO end")...))
			var got []string
			for {
				v := c.Read(t)
				if v.String() == `$"end"` {
					break
				}
				if v.Kind == '%' {
					got = append(got, "<...>")
				} else {
					got = append(got, v.String())
				}
			}
			if all := strings.Join(got, " "); all != tt.want {
				t.Errorf("got  %s\nwant %s", all, tt.want)
			}
		})
	}
	t.Run("inline", func(t *testing.T) {
		c := redistest.Open(t, p.Addr())
		c.Send(t, "set lock:inline 'a value' nx px 60000\r\nget lock:inline\r\ndel lock:inline\r\n")
		for _, want := range []string{"+OK", `$"a value"`, ":1"} {
			if v := c.Read(t); v.String() != want {
				t.Errorf("%v, want %s", v, want)
			}
		}
	})
	t.Run("behind a LOCK that waits", func(t *testing.T) {
		c := redistest.Open(t, p.Addr())
		wantGrant(t, other.Do(t, "LOCK", "native", "60s", "OWNER", "other"))
		c.Send(t, lines("LOCK native 60s WAIT 30s", "SET lock:behind me NX PX 60000", "PING"))
		eventually(t, 9*time.Second, "the LOCK waits", func() bool {
			return strings.Contains(other.Do(t, "LOCKCTL", "INFO", "native").String(), `"waiters" :1`)
		})
		wantReplies(t, other, [2]string{"GET lock:behind", "$-1"}, [2]string{"UNLOCK native other", ":1"})
		wantGrant(t, c.Read(t))
		for _, want := range []string{"+OK", "+PONG"} {
			if v := c.Read(t); v.String() != want {
				t.Errorf("%v, want %s", v, want)
			}
		}
	})
	t.Run("CLIENT LIST", func(t *testing.T) {
		c := redistest.Open(t, p.Addr())
		wantReplies(t, c, [2]string{"CLIENT SETNAME shown", "+OK"}, [2]string{"SET lock:held me NX PX 60000", "$-1"})
		rows := other.Do(t, "CLIENT", "LIST").Text
		_, row, _ := strings.Cut(rows, "name=shown ")
		if row, _, _ = strings.Cut(row, "\n"); !strings.Contains(row, " cmd=set ") {
			t.Errorf("%s", row)
		}
	})
	if n := data.Do(t, "DBSIZE"); n.Int() != 1 { // n
		t.Errorf("the upstream has %v", data.Do(t, "KEYS", "*"))
	}
}

// TestAdopt_LeavesBeforeReply: who left before the reply to an acquisition does not hold the lock.
func TestAdopt_LeavesBeforeReply(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--adopt", "lock:*", "--node-timeout", "20s")
	stays := redistest.Open(t, r.addr())
	for range 3 {
		c := redistest.Open(t, r.addr())
		c.Do(t, "PING")
		slow := redistest.Open(t, r.nodes[0].Addr())
		slow.Send(t, lines("DEBUG SLEEP 0.2"))
		time.Sleep(20 * time.Millisecond)
		c.Send(t, lines("SET lock:left me NX PX 60000"))
		c.Close()
		slow.Read(t)
		eventually(t, 9*time.Second, "it is free", func() bool {
			return stays.Do(t, "SET", "lock:left", "you", "NX", "PX", "60000").String() == "+OK"
		})
		wantReplies(t, stays, [2]string{"DEL lock:left", ":1"})
	}
}

// TestAdopt_LeavesAfterReply: who has the reply to an acquisition holds the lock, also without its connection.
func TestAdopt_LeavesAfterReply(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--adopt", "lock:*")
	const clients, each = 8, 100
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for j := range each {
				c, err := redistest.Dial(r.addr())
				if err != nil {
					t.Error(err)
					return
				}
				v, err := c.Try("SET", fmt.Sprint("lock:", i, ":", j), "me", "NX", "PX", "60000")
				_ = c.Close()
				if err != nil || v.String() != "+OK" {
					t.Errorf("%v, %v", v, err)
				}
			}
		})
	}
	wg.Wait()
	c := redistest.Open(t, r.addr())
	for i := range clients {
		for j := range each {
			if name := fmt.Sprint("lock:", i, ":", j); c.Do(t, "EXISTS", name).Int() != 1 {
				t.Errorf("%s is free", name)
			}
		}
	}
}

// TestAdopt_LargeCommands: what is too large for a lock is refused, also where commands travel in parts.
func TestAdopt_LargeCommands(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	for _, conns := range []string{"0", "4"} {
		c := redistest.Open(t, startAdopting(t, data, "--upstream-conns", conns).Addr())
		wantReplies(t, c, [2]string{"PING", "+PONG"})
		for _, size := range []int{1004, 3 << 20} {
			v := c.Do(t, "SET", "lock:large", strings.Repeat("x", size), "NX", "PX", "60000")
			if !strings.HasPrefix(v.String(), "-ADOPTREFUSED SET lock:large: a value of ") {
				t.Errorf("%d bytes: %v", size, v)
			}
		}
		wantReplies(t, c, [2]string{"SET other " + strings.Repeat("x", 3<<20), "+OK"}, [2]string{"STRLEN other", ":3145728"})
		v := c.Do(t, "SET", "lock:large", strings.Repeat("x", 1003), "NX", "PX", "60000")
		if v.String() != "+OK" {
			t.Error(v)
		}
		wantReplies(t, c, [2]string{"STRLEN lock:large", ":1003"}, [2]string{"DEL lock:large", ":1"})
	}
	if v := data.Do(t, "KEYS", "*"); v.String() != `*[$"other"]` {
		t.Errorf("the upstream has %v", v)
	}
}

// TestAdopt_Several: DEL, UNLINK, EXISTS, TOUCH and MGET deal with the keys that are locks, and the upstream with the
// others.
func TestAdopt_Several(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	node := redistest.StartNodes(t, 1)
	p := redistest.StartProxy(t, data, node, "--adopt", "lock:*", "--adopt", "job:* as=strict")
	c := redistest.Open(t, p.Addr())
	for _, s := range []string{"SET lock:a me NX PX 60000", "SET lock:b me NX PX 60000", "SET job:a me NX PX 60000", "MSET x 1 y 2 z 3"} {
		wantReplies(t, c, [2]string{s, "+OK"})
	}
	wantReplies(t, c,
		[2]string{"EXISTS x lock:a lock:a none lock:none y", ":4"},
		[2]string{"TOUCH lock:a x", ":2"},
		[2]string{"MGET lock:none z lock:a none x lock:a", `*[$-1 $"3" $"me" $-1 $"1" $"me"]`}, [2]string{"MGET lock:a lock:b", `*[$"me" $"me"]`}, [2]string{"MGET lock:a", `*[$"me"]`},
		[2]string{"DEL x job:a", `-ADOPTREFUSED DEL job:a: FORCE-RELEASE does not compare the value; adopted by "job:*"`},
		[2]string{"EXISTS x job:a", ":2"},
		[2]string{"DEL x lock:a lock:a none", ":2"},
		[2]string{"UNLINK lock:b y", ":2"},
		[2]string{"EXISTS lock:a lock:b x y", ":0"},
		[2]string{"MSET z 1 lock:a 2", `-ADOPTREFUSED MSET lock:a: it has other keys as well; adopted by "lock:*"`},
		[2]string{"RENAME z lock:a", `-ADOPTREFUSED RENAME lock:a: it has other keys as well; adopted by "lock:*"`},
		[2]string{"SET lock:a me NX PX 60000", "+OK"},
	)
	data.Do(t, "ACL", "SETUSER", "half", "on", ">pw", "~lock:*", "+@all")
	wantReplies(t, c, [2]string{"AUTH half pw", "+OK"})
	v := c.Do(t, "DEL", "z", "lock:a")
	if !strings.HasPrefix(v.String(), "-NOPERM") || !strings.HasSuffix(v.String(), "(of z; it was done for the keys that are served elsewhere)") {
		t.Errorf("without rights to z: %v", v)
	}
	if v := c.Do(t, "MGET", "lock:b", "z"); !strings.HasPrefix(v.String(), "-NOPERM") {
		t.Errorf("MGET without rights to z: %v", v)
	}
	wantReplies(t, c, [2]string{"EXISTS lock:a", ":0"})
	data.Do(t, "ACL", "SETUSER", "none", "on", ">pw", "~z", "+@all")
	wantReplies(t, c, [2]string{"AUTH none pw", "+OK"})
	if v := c.Do(t, "DEL", "z", "lock:a"); !strings.HasPrefix(v.String(), "-NOPERM") {
		t.Errorf("without rights to the lock: %v", v)
	}
	wantReplies(t, c, [2]string{"EXISTS z", ":1"})
}

// TestAdopt_OfOneDatabase: what is a lock in one database alone is one also where the SELECT is inside MULTI, and is
// none in the others.
func TestAdopt_OfOneDatabase(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	p := redistest.StartProxy(t, data, redistest.StartNodes(t, 1), "--adopt", "job:* db=2")
	for _, tt := range []struct{ sent, want string }{
		{"SELECT 2|SET job:a me NX PX 60000|DEL job:a", "+OK +OK :1"},
		{"MULTI|SELECT 2|SET job:a me NX PX 60000|EXEC", `+OK +QUEUED -ADOPTREFUSED SET job:a: it is inside MULTI with commands that are about no lock; adopted by "job:*" -EXECABORT Transaction discarded because of previous errors.`},
		{"MULTI|SELECT 2|EXEC|SET job:a me NX PX 60000|DEL job:a", "+OK +QUEUED *[+OK] +OK :1"},
		{"SELECT 2|MULTI|SELECT 0|EXEC|SET job:a me|DEL job:a", "+OK +OK +QUEUED *[+OK] +OK :1"},
		{"MULTI|SET job:a me|EXEC|DEL job:a", "+OK +QUEUED *[+OK] :1"},
		{"MULTI|SELECT 2|DISCARD|SET job:a me|DEL job:a", "+OK +QUEUED +OK +OK :1"},
	} {
		c := redistest.Open(t, p.Addr())
		commands := strings.Split(tt.sent, "|")
		c.Send(t, lines(commands...))
		var got []string
		for range commands {
			got = append(got, c.Read(t).String())
		}
		if all := strings.Join(got, " "); all != tt.want {
			t.Errorf("%s\ngot  %s\nwant %s", tt.sent, all, tt.want)
		}
	}
	if n := data.Calls(t, "set"); n != 3 {
		t.Errorf("the upstream ran SET %d times", n)
	}
}
