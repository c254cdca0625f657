package adopt

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const (
	// reenterOther takes a lock, or writes anew what its holder, known by the first two bytes, has written.
	reenterOther = `local now = redis.call('get', KEYS[1])
		if now and string.sub(now, 1, 2) ~= string.sub(ARGV[1], 1, 2) then return 0 end
		redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1`
	// compareAndSet writes another value where the lock has this one.
	compareAndSet = `if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1 end return 0`
	// setAs does what its arguments say.
	setAs    = `return redis.call('set', KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])`
	overSet  = `return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])`
	overRead = `local was = redis.call('getset', KEYS[1], ARGV[1]) redis.call('pexpire', KEYS[1], ARGV[2]) return was`
)

// TestReplace: what writes another value than the one that is held takes the lock from its holder, with as=full; a script
// that compares the value before, always.
func TestReplace(t *testing.T) {
	scripts := map[string]string{"reenter": reenterOther, "compare": compareAndSet, "as": setAs, "over": overSet, "read": overRead, "free": compareAndDelete, "enter": enterHash}
	refused := func(command, why string) string {
		return "ADOPTREFUSED " + command + " lock:a: " + why + `; adopted by "lock:*"`
	}
	const other = "it would write another value than the one that is held, and does not compare that: set as=full"
	for _, tt := range []struct {
		name, words string
		steps       []string
	}{
		{"SET", "as=full", []string{"0 SET me PX 5000 > +OK", "1 GET > $2 me", "1 SET you PX 9000 > +OK", "0 free me > :0", "0 GET > $3 you", "0 PTTL > :9000", "0 free you > :1", "1 GET > $-1"}},
		{"SET of the same value", "as=full", []string{"0 SET me PX 5000 > +OK", "1 SET me PX 9000 > +OK", "0 PTTL > :9000", "0 free me > :1"}},
		{"SETEX, PSETEX", "as=full", []string{"0 SETEX 5 me > +OK", "1 PSETEX 9000 you > +OK", "0 GET > $3 you", "1 SETEX 7 me > +OK", "0 PTTL > :7000", "1 SETEX 0 me > -ERR invalid expire time in 'setex' command"}},
		{"SET GET", "as=full", []string{"0 SET me PX 5000 GET > $-1", "1 SET you PX 5000 GET > $2 me", "0 SET me PX 5000 GET > $3 you"}},
		{"SET XX", "as=full", []string{"0 SET me XX PX 5000 > $-1", "0 SET me NX PX 5000 > +OK", "1 SET you XX PX 9000 > +OK", "0 GET > $3 you", "0 PTTL > :9000"}},
		{"GETSET without end", "as=full no-expiry=refuse", []string{"0 GETSET me > " + refused("GETSET", "it has no end: set no-expiry=keep or no-expiry=lease:DURATION"), "0 SET me PX 5000 > +OK", "1 GETSET you > " + refused("GETSET", "it has no end: set no-expiry=keep or no-expiry=lease:DURATION"), "1 GET > $2 me"}},
		{"GETSET", "as=full no-expiry=lease:30s", []string{"0 GETSET me > $-1", "1 GETSET you > $2 me", "0 GETSET me > $3 you", "1 PTTL > :30000", "1 SET other > +OK", "0 PTTL > :30000"}},
		{"KEEPTTL", "as=full no-expiry=refuse", []string{"0 SET me KEEPTTL > " + refused("SET", "it has no end: set no-expiry=keep or no-expiry=lease:DURATION"), "0 SET me XX KEEPTTL > $-1", "0 SET me PX 5000 > +OK", "1 SET me PX 9000 > +OK", "0 SET me XX KEEPTTL > +OK",
			"0 PTTL > :9000", "1 PEXPIRE 7000 > :1", "0 SET you KEEPTTL > +OK", "1 PTTL > :7000", "1 GET > $3 you"}},
		{"KEEPTTL with the same value", "as=usual", []string{"0 SET me NX PX 5000 > +OK", "1 PEXPIRE 9000 > :1", "0 SET me XX KEEPTTL > +OK", "0 PTTL > :9000", "0 SET you XX KEEPTTL > " + refused("SET", other)}},
		{"scripts", "as=full", []string{"0 over me 5000 > +OK", "1 over you 9000 > +OK", "0 GET > $3 you", "0 read me 7000 > $3 you", "1 GET > $2 me", "1 PTTL > :7000", "1 free me > :1", "0 read me 5000 > $-1"}},
		{"a hash", "as=full no-expiry=lease:30s", []string{"0 enter 5000 me > $-1", "0 enter 5000 me > $-1", "1 GETSET you > -WRONGTYPE Operation against a key holding the wrong kind of value", "1 SET you KEEPTTL > " + refused("SET", "SET with KEEPTTL of a hash"),
			"1 SET you PX 5000 GET > -WRONGTYPE Operation against a key holding the wrong kind of value", "1 SET you PX 9000 > +OK", "0 GET > $3 you", "0 HLEN > -WRONGTYPE Operation against a key holding the wrong kind of value", "0 PTTL > :9000"}},
		{"taken again with other words", "as=strict", []string{"0 reenter me1 5000 > :1", "1 reenter me2 9000 > :1", "0 GET > $3 me2", "0 PTTL > :9000", "0 reenter you 5000 > :0", "0 free me1 > :0", "0 free me2 > :1"}},
		{"compare and set", "as=strict", []string{"0 SET me NX PX 5000 > +OK", "1 compare you x 9000 > :0", "1 compare me x 9000 > :1", "0 GET > $1 x", "0 compare me y 5000 > :0"}},
		{"as=usual", "as=usual", []string{"0 SET me NX PX 5000 > +OK", "1 SET me XX PX 9000 > +OK", "0 SET you XX PX 5000 > " + refused("SET", other), "0 SET you PX 5000 > " + refused("SET", "OVERWRITE does not compare the value: set as=full"),
			"1 GETSET you > " + refused("GETSET", "OVERWRITE does not compare the value: set as=full"), "0 over you 5000 > " + refused("EVAL", "OVERWRITE does not compare the value: set as=full"), "0 GET > $2 me", "0 PTTL > :9000"}},
		{"arguments that make an acquisition overwrite", "as=usual", []string{"0 as me NX PX 5000 > +OK", "1 as you NX PX 5000 > $-1", "1 as you PX 5000 GET > " + refused("EVAL", other), "0 GET > $2 me"}},
		{"a long value", "as=full", []string{"0 SET " + strings.Repeat("x", 1004) + " PX 5000 > " + refused("SET", "a value of 1004 bytes, more than 1003"), "0 SET me PX 5000 > +OK", "0 SET " + strings.Repeat("x", 1003) + " PX 5000 > +OK"}},
		{"over max-ttl", "as=full", []string{"0 SET me PX 5000 > +OK", "0 SET you PX 61000 > " + refused("SET", "its ttl of 1m1s is over max-ttl, 1m0s"), "0 SET you PX 1 > +OK", "0 PTTL > :100"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := proxies(t, 2, "lock:* guard=no "+tt.words)
				for _, step := range tt.steps {
					said, want, _ := strings.Cut(step, " > ")
					words := strings.Fields(said)
					args := append([]string{words[1], "lock:a"}, words[2:]...)
					if text := scripts[words[1]]; text != "" {
						args = append([]string{"EVAL", text, "1", "lock:a"}, words[2:]...)
					}
					if got := p[words[0][0]-'0'].do(args...); got != want {
						t.Fatalf("%s: %s", step, got)
					}
				}
			})
		})
	}
}

// TestReplace_Native: a lock of LOCK is not replaced.
func TestReplace_Native(t *testing.T) {
	c := proxies(t, 1, "lock:* as=full guard=no")[0]
	key := locks.Key{Name: "lock:a"}
	if d, err := c.a.opt.Engine.Lock(t.Context(), locks.LockRequest{Key: key, Owner: "somebody", TTL: time.Minute}); err != nil || !d.Granted {
		t.Fatal(d, err)
	}
	for _, command := range []string{"SET lock:a me PX 5000", "SETEX lock:a 5 me", "SET lock:a me XX PX 5000", "SET lock:a lockproxy:1 PX 5000", "SET lock:a lockproxy:1 XX KEEPTTL", "SET lock:a me PX 5000 GET"} {
		if got := c.do(strings.Fields(command)...); !strings.HasSuffix(got, `a change of a lock that was taken with LOCK; adopted by "lock:*"`) {
			t.Errorf("%s: %s", command, got)
		}
	}
	if r, err := c.a.opt.Engine.Read(t.Context(), key); err != nil || r.Owner != "somebody" {
		t.Error(r, err)
	}
}

// TestReplace_Guard: where nobody has the lock, one that overwrites is an acquisition, which respects what the upstream
// has.
func TestReplace_Guard(t *testing.T) {
	c := proxies(t, 1, "lock:* as=full")[0]
	c.has = ":5000\r\n"
	if got := c.do("SET", "lock:a", "me", "PX", "5000"); got != `ADOPTREFUSED SET lock:a: the upstream has the key, which a program has taken that goes past the proxies; adopted by "lock:*"` {
		t.Error(got)
	}
	if got := c.do("GET", "lock:a"); got != "$-1" {
		t.Errorf("it was taken: %s", got)
	}
	c.has = ""
	for _, value := range []string{"me", "you"} {
		if got := c.do("SET", "lock:a", value, "PX", "5000"); got != "+OK" {
			t.Error(got)
		}
	}
}

// TestReplace_ExactlyTheGrant: the grant that a call was run on is named by owner and fence; where it has gone the call
// is run again on what is there.
func TestReplace_ExactlyTheGrant(t *testing.T) {
	hash := locks.NewAdoptedHash("me")
	third := locks.NewAdoptedString(&locks.RandSource{}, "third")
	e := &scripted{read: locks.Reading{Held: true, Owner: hash, Fence: 7, Holds: 1, Remaining: time.Minute}}
	var asked []locks.GrantRef
	e.lock = func(r locks.LockRequest) (locks.Decision, error) {
		switch {
		case r.Replaces == nil && e.read.Held:
			return locks.Decision{Holder: e.read.Owner, Remaining: e.read.Remaining}, nil
		case r.Replaces != nil:
			asked = append(asked, *r.Replaces)
			if len(asked) == 1 { // meanwhile it was given back, and another has it
				e.read.Owner, e.read.Fence = third, 9
			}
			if r.Replaces.Owner != e.read.Owner || r.Replaces.Fence != e.read.Fence {
				return locks.Decision{Holder: e.read.Owner, Remaining: e.read.Remaining}, nil
			}
		}
		return granting(r)
	}
	c := at(t, e, "lock:* as=full guard=no")
	if got := c.do("SET", "lock:a", "you", "PX", "5000"); got != "+OK" {
		t.Fatal(got)
	}
	if want := []locks.GrantRef{{Owner: hash, Fence: 7}, {Owner: third, Fence: 9}}; fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("it was to replace %+v", asked)
	}
}

// A moving engine is another one after each read.
type moving struct {
	*scripted
	move func()
}

func (e moving) Read(ctx context.Context, k locks.Key) (locks.Reading, error) {
	r, err := e.scripted.Read(ctx, k)
	e.move()
	return r, err
}

// TestReplace_ReadsTheNewHolder: a lock that changes hands after a call has read it is replaced only by a try that has
// read its new holder.
func TestReplace_ReadsTheNewHolder(t *testing.T) {
	later := locks.NewAdoptedString(&locks.RandSource{}, "later")
	e := &scripted{read: locks.Reading{Held: true, Owner: you, Fence: 7, Holds: 1, Remaining: time.Minute}}
	e.lock = func(r locks.LockRequest) (locks.Decision, error) {
		if r.Replaces == nil || r.Replaces.Owner != e.read.Owner || r.Replaces.Fence != e.read.Fence {
			return locks.Decision{Holder: e.read.Owner, Remaining: e.read.Remaining}, nil
		}
		return granting(r)
	}
	c := at(t, moving{e, func() { e.read.Owner, e.read.Fence = later, 9 }}, "lock:* as=full guard=no no-expiry=lease:30s")
	if got := c.do("GETSET", "lock:a", "me"); got != "$5 later" {
		t.Errorf("it took the lock from %q, and answers %s", "later", got)
	}
}

// TestReplace_Copy: the copy at the upstream of a lock that was taken in the mode both goes with it.
func TestReplace_Copy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		modes(t, "as=full").run(t, []string{
			"b SET lock:a me NX PX 5000 > +OK", "d GET lock:a > $2 me", "o SET lock:a you PX 5000 > +OK", "d EXISTS lock:a > :0", "o GET lock:a > $3 you", "b SET lock:a me NX PX 5000 > $-1", "d EXISTS lock:a > :0",
		})
	})
}

// TestReplace_LockReleasedMeanwhile: a call that reads what it overwrites does not answer with a lock that was released since.
func TestReplace_LockReleasedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 2, "lock:* as=full no-expiry=lease:30s guard=no")
		p[0].do("SET", "lock:a", "me", "PX", "5000")
		p[1].do("DEL", "lock:a") // p[0] remembers it
		if got := p[0].do("GETSET", "lock:a", "you"); got != "$-1" {
			t.Errorf("it answers what had gone before: %s", got)
		}
	})
}

// TestReplace_NoQuorum: the reply says that the lock may be lost, and it is not remembered.
func TestReplace_NoQuorum(t *testing.T) {
	e := &scripted{read: locks.Reading{Held: true, Owner: you, Fence: 7, Holds: 1, Remaining: time.Minute}}
	e.lock = func(r locks.LockRequest) (locks.Decision, error) {
		if r.Replaces != nil {
			return locks.Decision{}, &locks.QuorumError{Op: "LOCK", Name: "lock:a", Nodes: 5, Need: 3, Got: 2}
		}
		return locks.Decision{Holder: you, Remaining: time.Minute}, nil
	}
	c := at(t, e, "lock:* as=full guard=no")
	call, err := c.a.Call(c, [][]byte{[]byte("SET"), []byte("lock:a"), []byte("me"), []byte("PX"), []byte("5000")}, Keys{[]int{1}, true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.a.Decide(context.Background(), c, call)
	partial, isPartial := err.(*PartialError)
	if !isPartial || string(partial.Amend([]byte("-NOQUORUM why\r\n"))) != "-NOQUORUM why (the lock that it was to replace may be lost)\r\n" {
		t.Errorf("%v", err)
	}
	if g, remembered := c.a.guesses.Get(locks.Key{Name: "lock:a"}); remembered {
		t.Errorf("it remembers %+v", g)
	}
}

// TestReplace_Concurrent: each of many calls that overwrite one lock at once gets it, and each reads what another has
// written.
func TestReplace_Concurrent(t *testing.T) {
	p := proxies(t, 2, "lock:* as=full no-expiry=lease:30s guard=no")
	const writers, times = 8, 25
	var wg sync.WaitGroup
	var mu sync.Mutex
	read := map[string]int{}
	for i := range writers {
		c := &client{t: t, a: p[i%2].a, proto: 2}
		wg.Go(func() {
			for n := range times {
				got := c.do("GETSET", "lock:a", fmt.Sprintf("%02d-%02d", i, n))
				mu.Lock()
				read[got]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	last := p[0].do("GET", "lock:a")
	read[last]++
	if len(read) != writers*times+1 || read["$-1"] != 1 {
		t.Errorf("%d values were read, of %d that were written: %v", len(read), writers*times, read)
	}
}
