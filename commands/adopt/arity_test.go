package adopt

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestCall_AnyArity: commands on locks are answered, however many words they have.
func TestCall_AnyArity(t *testing.T) {
	names := strings.Fields(`SET SETNX SETEX PSETEX GETSET GET GETEX GETDEL GETRANGE STRLEN DEL UNLINK EXISTS TOUCH TYPE TTL PTTL EXPIRE PEXPIRE EXPIREAT PERSIST
		WATCH MGET INCR HSET HSETNX HINCRBY HDEL HGET HMGET HGETALL EVAL EVALSHA EVAL_RO EVALSHA_RO FCALL SCRIPT OBJECT UNHEARDOF`)
	words := append(strings.Fields("lock:a lock:b job 1 0 -1 9 9999999999999999999 NX XX PX EX EXAT GET KEEPTTL IFEQ LOAD FLUSH me"), "", compareAndDelete, freeAndTell, "return")
	p := proxies(t, 1, "lock:* no-expiry=lease:1s")[0]
	r := rand.New(rand.NewPCG(1, 2))
	decided, executed := 0, 0
	var tx Transaction
	for range 40_000 {
		args := [][]byte{[]byte(names[r.IntN(len(names))])}
		var keys Keys
		for i := range r.IntN(6) {
			args = append(args, []byte(words[r.IntN(len(words))]))
			if r.IntN(3) > 0 {
				keys.At = append(keys.At, i+1)
			}
		}
		keys.Known = r.IntN(4) > 0
		p.proto, p.burst = 2+r.IntN(2), Burst{}
		p.a.NoteScript(args)
		if !p.a.Concerns(args) || !p.a.Adopts(0, args, keys) {
			continue
		}
		if string(args[0]) == "WATCH" {
			_ = p.a.Watch(t.Context(), p, &tx, args, keys)
		}
		if _, err := p.a.Queue(p, &tx, args, keys, UpstreamTx{}); err != nil && tx.Active() {
			executed++
			_, _ = p.a.Exec(t.Context(), p, &tx)
			tx.Forget()
		}
		call, err := p.a.Call(p, args, keys)
		if call == nil || err != nil {
			continue
		}
		decided++
		if reply, err := p.a.Decide(t.Context(), p, call); err == nil && len(reply.Reply) == 0 {
			t.Errorf("%s: no reply", args)
		}
	}
	if decided < 300 || executed < 100 {
		t.Errorf("only %d calls were decided, %d transactions executed", decided, executed)
	}
}

// TestCall_IntoAnotherDatabase: a key cannot be put in the place of a lock from a database where its name is no lock's. It would
// be in the way of the lock for good, since nobody in its database can delete it.
func TestCall_IntoAnotherDatabase(t *testing.T) {
	c := proxies(t, 1, "lock:* db=3")[0]
	for command, keys := range map[string][]int{"MOVE lock:a 3": {1}, "COPY x lock:a DB 3": {1, 2}, "COPY x lock:a REPLACE DB 3": {1, 2}, "COPY x lock:a": {1, 2}, "COPY x lock:a REPLACE": {1, 2}, "GET lock:a": {1}} {
		var args [][]byte
		for _, w := range strings.Fields(command) {
			args = append(args, []byte(w))
		}
		known := Keys{keys, true}
		adopts := c.a.Concerns(args) && c.a.Adopts(0, args, known)
		call, err := c.a.Call(c, args, known)
		if refused := strings.HasSuffix(command, " 3"); adopts != refused || call != nil || (err != nil) != refused {
			t.Errorf("%s: %t, %v", command, adopts, err)
		}
	}
}
