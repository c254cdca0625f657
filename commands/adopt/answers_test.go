package adopt

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// A scripted engine answers as a test says; what it does not say is nobody's lock.
type scripted struct {
	lock  func(locks.LockRequest) (locks.Decision, error)
	renew func(locks.RenewRequest) error
	read  locks.Reading
	takes time.Duration // a read

	owner                   string // of the last LOCK
	asked, undone, released atomic.Int64
}

func (e *scripted) Lock(_ context.Context, r locks.LockRequest) (locks.Decision, error) {
	e.asked.Add(1)
	e.owner = r.Owner
	return e.lock(r)
}

func (e *scripted) Renew(_ context.Context, r locks.RenewRequest) (time.Duration, error) {
	if e.renew == nil {
		return 0, locks.ErrLost
	}
	return r.TTL, e.renew(r)
}

func (e *scripted) Unlock(_ context.Context, r locks.UnlockRequest) (int, error) {
	if !e.read.Held || r.Owner != e.read.Owner {
		return 0, locks.ErrLost
	}
	e.released.Add(1)
	return 0, nil
}

func (e *scripted) Read(context.Context, locks.Key) (locks.Reading, error) {
	e.asked.Add(1)
	time.Sleep(e.takes)
	return e.read, nil
}

func (e *scripted) Undo(locks.Grant) { e.undone.Add(1) }

// you are the owner of another client's lock.
var you = locks.NewAdoptedString(&locks.RandSource{}, "you")

func granting(r locks.LockRequest) (locks.Decision, error) {
	g := locks.Grant{Key: r.Key, Owner: r.Owner, Fence: 1, Validity: r.TTL, Holds: 1}
	return locks.Decision{Granted: true, Grant: g}, nil
}

// at makes a client of a proxy with this engine.
func at(t *testing.T, e Engine, glob string) *client {
	t.Helper()
	p, err := pattern.Parse(glob)
	if err != nil {
		t.Fatal(err)
	}
	a, err := New([]*pattern.Pattern{p}, Options{Engine: e, MinTTL: time.Millisecond, MaxTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return &client{t: t, a: a, proto: 2}
}

// TestFlights_AnswerIsYoungerThanTheCall: a call that comes while another is being granted the lock asks as well.
// That grant may have been given back through another proxy before the call came.
func TestFlights_AnswerIsYoungerThanTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decided := make(chan struct{})
		e := &scripted{}
		e.lock = func(r locks.LockRequest) (locks.Decision, error) {
			if e.asked.Load() == 1 {
				<-decided
			}
			return granting(r)
		}
		c := at(t, e, "lock:* guard=no")
		replies := make(chan string, 2)
		for range 2 {
			go func() { replies <- c.do("SET", "lock:a", "me", "NX", "PX", "5000") }()
			synctest.Wait()
		}
		close(decided)
		for range 2 {
			if got := <-replies; got != "+OK" {
				t.Errorf("the nodes grant both: %s", got)
			}
		}
	})
}

// TestFlights_WaitingCallsShareOneAcquisition: calls that come together while another asks share one acquisition.
func TestFlights_WaitingCallsShareOneAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decided := make(chan struct{})
		e := &scripted{lock: func(locks.LockRequest) (locks.Decision, error) {
			<-decided
			return locks.Decision{Holder: you, Remaining: time.Second}, nil
		}}
		c := at(t, e, "lock:* guard=no")
		replies := make(chan string, 50)
		for range 50 {
			go func() { replies <- c.do("SET", "lock:a", "me", "NX", "GET", "PX", "5000") }()
		}
		synctest.Wait()
		close(decided)
		for range 50 {
			if got := <-replies; got != "$3 you" {
				t.Errorf("held: %s", got)
			}
		}
		if n := e.asked.Load(); n != 2 {
			t.Errorf("%d rounds for 50 calls that came together", n)
		}
	})
}

// TestFlights_ManyPollersCostAsOne: fifty clients that poll cost the nodes about what one costs, and a release through this
// proxy is noticed at once.
func TestFlights_ManyPollersCostAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := func(pollers int) int64 {
			e := &scripted{lock: func(locks.LockRequest) (locks.Decision, error) {
				time.Sleep(500 * time.Microsecond)
				return locks.Decision{Holder: you, Remaining: time.Minute}, nil
			}}
			c, end := at(t, e, "lock:* guard=no"), time.Now().Add(10*time.Second)
			var all sync.WaitGroup
			for i := range pollers {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond / time.Duration(pollers))
					for time.Now().Before(end) {
						if got := c.do("SET", "lock:a", "me", "NX", "PX", "5000"); got != "$-1" {
							t.Errorf("held: %s", got)
						}
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
			all.Wait()
			return e.asked.Load()
		}
		if one, fifty := rounds(1), rounds(50); fifty*10 > one*12 {
			t.Errorf("%d rounds of fifty pollers, %d of one", fifty, one)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		held := true
		e := &scripted{lock: func(r locks.LockRequest) (locks.Decision, error) {
			time.Sleep(time.Millisecond)
			if held {
				return locks.Decision{Holder: you, Remaining: time.Minute}, nil
			}
			return granting(r)
		}}
		c := at(t, e, "lock:* guard=no")
		began, replies := time.Now(), make(chan string, 3)
		for range 3 {
			go func() { replies <- c.do("SET", "lock:a", "me", "NX", "PX", "5000") }()
		}
		<-replies
		held = false
		c.a.flights.hurry(locks.Key{Name: "lock:a"})
		<-replies
		<-replies
		if took := time.Since(began); took != 2*time.Millisecond {
			t.Errorf("after the release: %v", took)
		}
	})
}

// TestDecide_HeldWithNoTimeLeft: the holder that the nodes name has the lock, however little is left of the lease.
func TestDecide_HeldWithNoTimeLeft(t *testing.T) {
	owner := you
	e := &scripted{
		lock: func(locks.LockRequest) (locks.Decision, error) { return locks.Decision{Holder: owner}, nil },
		read: locks.Reading{Held: true, Owner: owner, Fence: 3, Holds: 1},
	}
	c := at(t, e, "lock:* guard=no")
	for args, want := range map[string]string{"SET lock:a me NX PX 5000": "$-1", "GET lock:a": "$3 you", "PTTL lock:a": ":1"} {
		if got := c.do(strings.Fields(args)...); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

// TestDecide_Native: no adopted command changes a lock of the verbs, not even to the end that it has.
func TestDecide_Native(t *testing.T) {
	renewed := false
	e := &scripted{
		renew: func(locks.RenewRequest) error { renewed = true; return nil },
		read:  locks.Reading{Held: true, Owner: "alice", Fence: 3, Holds: 1, Remaining: time.Hour},
	}
	synctest.Test(t, func(t *testing.T) {
		c := at(t, e, "lock:* guard=no")
		for _, args := range []string{"PEXPIRE lock:a 3600000", "PEXPIRE lock:a 1000", "DEL lock:a", "SET lock:a lockproxy:3 XX PX 3600000"} {
			want := "ADOPTREFUSED " + strings.Fields(args)[0] + ` lock:a: a change of a lock that was taken with LOCK; adopted by "lock:*"`
			if got := c.do(strings.Fields(args)...); got != want {
				t.Errorf("%s: %s", args, got)
			}
		}
		if renewed {
			t.Error("it was renewed")
		}
	})
}

// slowly is a client whose upstream does not answer.
type slowly struct{ *client }

func (slowly) Ask(ctx context.Context, _ []string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Begin is the same where a connection need not be waited for.
func (s slowly) Begin([]string) Answer {
	if !s.ahead {
		return nil
	}
	return never{}
}

// never is an Answer that does not come.
type never struct{}

func (never) Ready() bool { return false }

func (never) Await(ctx context.Context) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestDecide_SlowUpstream: a lease that is over when the upstream was asked for long enough is not granted, and
// signals are not waited for.
func TestDecide_SlowUpstream(t *testing.T) {
	t.Run("with a connection", func(t *testing.T) { testSlowUpstream(t, true) })
	t.Run("without", func(t *testing.T) { testSlowUpstream(t, false) })
}

func testSlowUpstream(t *testing.T, ahead bool) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{lock: granting}
		c := at(t, e, "lock:*")
		c.ahead = ahead
		do := func(args ...string) (string, time.Duration) {
			t.Helper()
			var words [][]byte
			for _, a := range args {
				words = append(words, []byte(a))
			}
			began := time.Now()
			call, err := c.a.Call(c, words, Keys{[]int{1}, true})
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.a.Decide(t.Context(), slowly{c}, call)
			if err != nil {
				return err.Error(), time.Since(began)
			}
			return string(r.Reply), time.Since(began)
		}
		if got, took := do("SET", "lock:a", "me", "NX", "PX", "200"); got != "+OK\r\n" || took != guardFor {
			t.Errorf("an upstream that does not say: %q after %v", got, took)
		}
		if got, _ := do("SET", "lock:b", "me", "NX", "PX", "90"); got != errLate.Error() || e.undone.Load() != 1 {
			t.Errorf("granted for less than it took: %q, %d undone", got, e.undone.Load())
		}
		const takeAndTell = `if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', 9000) then redis.call('publish', 'a', 'b') return 1 end return 0`
		if got, took := do("EVAL", takeAndTell, "1", "lock:c", "me"); got != ":1\r\n" || took != guardFor+signalsFor {
			t.Errorf("signals: %q after %v", got, took)
		}
	})
}

// TestDecide_EndMovedElsewhere: a script that asks how long the lock is held is decided on the lease as the nodes
// have it, though this proxy remembers another end.
func TestDecide_EndMovedElsewhere(t *testing.T) {
	const unlessShort = `local left = redis.call('pttl', KEYS[1]) if left == -1 or left > 4000 then return redis.call('del', KEYS[1]) end return 0`
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{lock: granting}
		c := at(t, e, "lock:* guard=no")
		if got := c.do("SET", "lock:a", "me", "NX", "PX", "5000"); got != "+OK" {
			t.Fatal(got)
		}
		e.read = locks.Reading{Held: true, Owner: e.owner, Fence: 1, Holds: 1, Remaining: 3 * time.Second}
		if got := c.do("EVAL", unlessShort, "1", "lock:a"); got != ":0" || e.released.Load() != 0 {
			t.Errorf("the nodes have 3 s left: %s, %d released", got, e.released.Load())
		}
		e.read.Remaining = 5 * time.Second
		if got := c.do("EVAL", unlessShort, "1", "lock:a"); got != ":1" || e.released.Load() != 1 {
			t.Errorf("the nodes have 5 s left: %s, %d released", got, e.released.Load())
		}
	})
}

// TestFlights_LaterQuestionAnswersEarlierCommand: a command that came before a question began, and waited behind others on
// its connection, is answered by it, if the lock was held and still is.
func TestFlights_LaterQuestionAnswersEarlierCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		e := &scripted{}
		e.lock = func(locks.LockRequest) (locks.Decision, error) {
			time.Sleep(time.Millisecond)
			return locks.Decision{Holder: locks.NewAdoptedString(new(locks.RandSource), "you"), Remaining: time.Second}, nil
		}
		c := at(t, e, "lock:* guard=no")
		asks := func(since time.Time, want int64, args ...string) {
			t.Helper()
			c.burst = Burst{began: since}
			before := e.asked.Load()
			if got := c.do(args...); got != "$-1" && got != "$3 you" {
				t.Errorf("%s: %s", args, got)
			}
			if n := e.asked.Load() - before; n != want {
				t.Errorf("%s: the nodes were asked %d times, want %d", args, n, want)
			}
		}
		set := []string{"SET", "lock:a", "me", "NX", "PX", "5000"}
		before := began.Add(-1)
		asks(before, 1, set...)
		for range 20 {
			asks(before, 0, set...)
		}
		asks(before, 1, "SET", "lock:b", "me", "NX", "PX", "5000")
		asks(time.Now(), 1, set...) // it came later
		asks(began, 0, set...)
		time.Sleep(time.Second)
		asks(began, 1, set...) // the lease is over

		e.read = locks.Reading{Held: true, Owner: locks.NewAdoptedString(new(locks.RandSource), "you"), Fence: 1, Holds: 1, Remaining: time.Second}
		asks(began, 1, "GET", "lock:c")
		asks(began, 0, "GET", "lock:c")
		asks(time.Now(), 1, "GET", "lock:c")
	})
}

// TestFlights_GrantAnswersOnlyItsCaller: a grant answers only the call that asked for it.
func TestFlights_GrantAnswersOnlyItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{lock: granting}
		c := at(t, e, "lock:* guard=no")
		c.burst = Burst{began: time.Now().Add(-time.Hour)}
		for range 2 {
			if got := c.do("SET", "lock:a", "me", "NX", "PX", "5000"); got != "+OK" {
				t.Error(got)
			}
		}
	})
}

// TestFlights_NoAnswerByReleasedGrant: an answer that calls share is not used any more when the grant it names was
// released.
func TestFlights_NoAnswerByReleasedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{}
		c := at(t, e, "lock:* guard=no")
		c.burst = Burst{began: time.Now().Add(-time.Hour)}
		yours := locks.Reading{Held: true, Owner: locks.NewAdoptedString(new(locks.RandSource), "you"), Fence: 1, Holds: 1, Remaining: time.Second}
		e.read = yours
		if got := c.do("GET", "lock:a"); got != "$3 you" {
			t.Error(got)
		}
		e.read = locks.Reading{} // given back through another proxy
		if got := c.do("DEL", "lock:a"); got != ":0" {
			t.Errorf("DEL of a lock that has gone: %s", got)
		}
	})
}

// ending is a scripted engine with a lock of "you" that ends then, and cannot be renewed any more.
type ending struct {
	*scripted
	end time.Time
}

func (e ending) Read(context.Context, locks.Key) (locks.Reading, error) {
	if left := time.Until(e.end); left > 0 {
		return locks.Reading{Held: true, Owner: you, Fence: 1, Remaining: left, Holds: 1}, nil
	}
	return locks.Reading{}, nil
}

// TestDecide_AwaitsLeaseThatCannotBeRenewed: a call waits for the end of a lease that can no longer be renewed, and is
// not over yet.
func TestDecide_AwaitsLeaseThatCannotBeRenewed(t *testing.T) {
	for text, want := range map[string]string{
		`return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2]) or 0`: ":0",
		`if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then return 2 end
			if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`: ":2",
	} {
		synctest.Test(t, func(t *testing.T) {
			renewals := 0
			e := ending{end: time.Now().Add(100 * time.Millisecond), scripted: &scripted{renew: func(locks.RenewRequest) error {
				renewals++
				return locks.ErrLost
			}}}
			e.lock = func(r locks.LockRequest) (locks.Decision, error) {
				if left := time.Until(e.end); left > 0 {
					return locks.Decision{Holder: you, Remaining: left}, nil
				}
				return granting(r)
			}
			c := at(t, e, "lock:* guard=no")
			if got := c.do("EVAL", text, "1", "lock:a", "you", "5000"); got != want || renewals > 3 {
				t.Errorf("%s after %d renewals", got, renewals)
			}
		})
	}
}

// TestDecide_RefusedAtEveryTry: an acquisition that is refused at every try, and finds the lock free whenever it reads it,
// is refused for the last holder. Nothing else is answered by a guess.
func TestDecide_RefusedAtEveryTry(t *testing.T) {
	heldBy := func(owner string) func(locks.LockRequest) (locks.Decision, error) {
		return func(locks.LockRequest) (locks.Decision, error) {
			return locks.Decision{Holder: owner, Remaining: 3 * time.Second}, nil
		}
	}
	const remaining = `if redis.call('set', KEYS[1], ARGV[2], 'nx', 'px', ARGV[1]) then return -1 end return redis.call('pttl', KEYS[1])`
	const count = `if redis.call('exists', KEYS[1]) == 0 then redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
		if redis.call('type', KEYS[1]).ok ~= 'hash' then return -1 end
		if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
		return tonumber(redis.call('hvals', KEYS[1])[1])`
	const value = `if redis.call('set', KEYS[1], ARGV[2], 'nx', 'px', ARGV[1]) then return 'mine' end return redis.call('get', KEYS[1])`
	changing := errChanging.Error()
	for name, c := range map[string]struct{ script, holder, want string }{
		"a hash":               {enterHash, locks.NewAdoptedHash("you"), ":3000"},
		"a string":             {remaining, you, ":3000"},
		"its own hash":         {enterHash, locks.NewAdoptedHash("me"), changing},
		"a LOCK":               {remaining, "alice", ":3000"},
		"the fence of a LOCK":  {value, "alice", changing},
		"the value":            {value, you, "$3 you"},
		"another's holds":      {count, locks.NewAdoptedHash("you"), changing},
		"nobody known":         {enterHash, "", changing},
		"nobody known, string": {remaining, "", changing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &scripted{lock: heldBy(c.holder)}
				if got := at(t, e, "lock:* guard=no").do("EVAL", c.script, "1", "lock:a", "5000", "me"); got != c.want {
					t.Errorf("%s; want %s", got, c.want)
				}
			})
		})
	}
	t.Run("a release", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := &scripted{read: locks.Reading{Held: true, Owner: locks.NewAdoptedHash("me"), Fence: 1, Holds: 1, Remaining: time.Second}}
			if got := at(t, &forgetful{e}, "lock:* guard=no").do("EVAL", leaveHash, "1", "lock:a", "5000", "me"); got != changing {
				t.Errorf("%s; want %s", got, changing)
			}
		})
	})
}

// forgetful has lost whatever is given back.
type forgetful struct{ *scripted }

func (forgetful) Unlock(context.Context, locks.UnlockRequest) (int, error) { return 0, locks.ErrLost }

// TestDecide_DeadlineCountsFromTheAnswer: a lock that is to end at a given time has what is left until then when the
// nodes are asked, though the command came earlier.
func TestDecide_DeadlineCountsFromTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked time.Duration
		e := &scripted{lock: func(r locks.LockRequest) (locks.Decision, error) {
			asked = r.TTL
			return granting(r)
		}}
		c := at(t, e, "lock:* guard=no")
		for waits, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 700 * time.Microsecond: 5 * time.Second, time.Millisecond: 4999 * time.Millisecond} {
			whole := time.Now().Truncate(time.Millisecond).Add(time.Hour)
			time.Sleep(time.Until(whole))
			end := whole.Add(5 * time.Second)
			args := []string{"SET", fmt.Sprint("lock:", waits), "me", "NX", "PXAT", strconv.FormatInt(end.UnixMilli(), 10)}
			var words [][]byte
			for _, a := range args {
				words = append(words, []byte(a))
			}
			call, err := c.a.Call(c, words, Keys{[]int{1}, true})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(waits)
			if _, err := c.a.Decide(t.Context(), c, call); err != nil || asked != want {
				t.Errorf("after %v: %v, for %v", waits, err, asked)
			}
		}
	})
}

// TestFlights_NoOlderAnswerLater: once a client was told something it gets no older answer: neither another client's,
// nor one to a question that was sent before it was told.
func TestFlights_NoOlderAnswerLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{lock: func(locks.LockRequest) (locks.Decision, error) {
			return locks.Decision{Holder: you, Remaining: time.Minute}, nil
		}}
		c := at(t, e, "lock:* guard=no")
		mine := &client{t: t, a: c.a, proto: 2, burst: newBurst(), pipelines: true}
		set := []string{"SET", "lock:a", "me", "NX", "PX", "5000"}
		time.Sleep(time.Millisecond)
		if got := c.do(set...); got != "$-1" {
			t.Fatal(got)
		}
		e.lock = granting // given back through another proxy
		time.Sleep(time.Millisecond)
		if got := mine.do("PTTL", "lock:a"); got != ":-2" { // not to be told from a refusal
			t.Errorf("PTTL: %s", got)
		}
		if got := mine.do(set...); got != "+OK" {
			t.Errorf("the client was told that nobody has it, and then: %s", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{read: locks.Reading{Held: true, Owner: you, Fence: 1, Holds: 1, Remaining: time.Minute}}
		c := at(t, e, "lock:* guard=no")
		mine := &client{t: t, a: c.a, proto: 2, burst: newBurst(), pipelines: true}
		for _, key := range []string{"lock:a", "lock:b", "lock:c"} {
			time.Sleep(time.Millisecond)
			c.do("GET", key)
		}
		for _, one := range []struct {
			key  string
			asks int64
		}{{"lock:a", 0}, {"lock:a", 0}, {"lock:b", 1}, {"lock:b", 0}, {"lock:a", 1}} {
			before := e.asked.Load()
			mine.do("GET", one.key)
			if n := e.asked.Load() - before; n != one.asks {
				t.Errorf("%s: the nodes were asked %d times, want %d", one.key, n, one.asks)
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// TestFlights_OneQuestionAnswersReadsAndAcquisitions: what asks for a lock and what asks about it are answered by one
// question, if all had come before it was sent.
func TestFlights_OneQuestionAnswersReadsAndAcquisitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{
			lock: func(locks.LockRequest) (locks.Decision, error) {
				return locks.Decision{Holder: you, Remaining: time.Minute}, nil
			},
			read: locks.Reading{Held: true, Owner: you, Fence: 1, Holds: 1, Remaining: time.Minute},
		}
		set, release := []string{"SET", "lock:a", "me", "NX", "PX", "5000"}, []string{"EVAL", compareAndDelete, "1", "lock:a", "me"}
		for _, burst := range [][][]string{{set, release, set, {"GET", "lock:a"}, release}, {{"PTTL", "lock:a"}, set, release, {"EXISTS", "lock:a"}, set}} {
			c := at(t, e, "lock:* guard=no")
			c.pipelines, c.burst = true, newBurst()
			time.Sleep(time.Millisecond)
			before := e.asked.Load()
			for i, command := range burst {
				want := map[string]string{"SET": "$-1", "EVAL": ":0", "GET": "$3 you", "PTTL": ":60000", "EXISTS": ":1"}[command[0]]
				if got := c.do(command...); got != want {
					t.Errorf("%s: %s, want %s", command[0], got, want)
				}
				if n := e.asked.Load() - before; n != 1 {
					t.Errorf("the nodes were asked %d times at command %d, %s", n, i+1, command[0])
				}
			}
			later := &client{t: t, a: c.a, proto: 2, burst: newBurst()}
			later.do(burst[1]...)
			if n := e.asked.Load() - before; n != 2 {
				t.Errorf("a command that came after the answer: the nodes were asked %d times", n)
			}
		}
	})
}

// TestFlights_RefusalAnswersOnlyWhatItSays: a refusal does not answer a question about what it does not say.
func TestFlights_RefusalAnswersOnlyWhatItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hash := locks.NewAdoptedHash("you")
		e := &scripted{
			lock: func(locks.LockRequest) (locks.Decision, error) {
				return locks.Decision{Holder: hash, Remaining: time.Minute}, nil
			},
			read: locks.Reading{Held: true, Owner: hash, Fence: 1, Holds: 3, Remaining: time.Minute},
		}
		c := at(t, e, "lock:*")
		mine := &client{t: t, a: c.a, proto: 2, burst: newBurst()}
		time.Sleep(time.Millisecond)
		c.do("SET", "lock:a", "me", "NX", "PX", "5000")
		if got := mine.do("HGET", "lock:a", "you"); got != "$1 3" {
			t.Errorf("holds of a hash: %s", got)
		}
		c.pipelines, c.burst, c.has, e.lock, e.read = true, newBurst(), ":5000\r\n", granting, locks.Reading{}
		time.Sleep(time.Millisecond)
		if got := c.do("SET", "lock:b", "me", "NX", "PX", "5000"); got != "$-1" {
			t.Errorf("what the upstream has: %s", got)
		}
		if got := c.do("GET", "lock:b"); got != "$-1" {
			t.Errorf("the nodes have nothing: %s", got)
		}
	})
}

// TestFlights_AnswerWaitingAcquisitions: acquisitions that wait for the next question are answered by another that was sent when all of
// them had come, and by none that was sent before one of them came. A release through this proxy takes such an answer back.
func TestFlights_AnswerWaitingAcquisitions(t *testing.T) {
	for _, tt := range []struct {
		name          string
		reads, comes  time.Duration // when another client reads, and the last acquisition comes
		released      bool          // after that
		asked         int64         // for acquisitions
		granted, held int
	}{
		{"read when all had come", 6 * time.Millisecond, 4 * time.Millisecond, false, 1, 0, 4},
		{"read before one came", 4 * time.Millisecond, 6 * time.Millisecond, false, 2, 1, 3},
		{"read, and released", 6 * time.Millisecond, 4 * time.Millisecond, true, 2, 1, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &scripted{read: locks.Reading{Held: true, Owner: you, Fence: 1, Holds: 1, Remaining: time.Minute}}
				asked := int64(0)
				e.lock = func(r locks.LockRequest) (locks.Decision, error) {
					time.Sleep(time.Millisecond)
					if asked++; asked > 1 {
						return granting(r)
					}
					return locks.Decision{Holder: you, Remaining: time.Minute}, nil
				}
				c, replies := at(t, e, "lock:* guard=no"), make(chan string, 4)
				for _, comes := range []time.Duration{0, time.Millisecond / 4, time.Millisecond / 2, tt.comes} {
					go func() {
						time.Sleep(comes)
						replies <- c.do("SET", "lock:a", "me", "NX", "PX", "5000")
					}()
				}
				time.Sleep(tt.reads)
				if got := c.do("GET", "lock:a"); got != "$3 you" {
					t.Errorf("GET: %s", got)
				}
				if tt.released {
					if got := c.do("DEL", "lock:a"); got != ":1" {
						t.Errorf("DEL: %s", got)
					}
				}
				got := map[string]int{}
				for range 4 {
					got[<-replies]++
				}
				if asked != tt.asked || got["+OK"] != tt.granted || got["$-1"] != tt.held {
					t.Errorf("%v, and the nodes were asked %d times", got, asked)
				}
			})
		})
	}
}

// TestBurst_RenewalOfWhatIsGone: who extends a lock that an earlier answer of the burst has shown, and that was released since
// through another proxy, is answered at once, by a newer answer.
func TestBurst_RenewalOfWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 2, "lock:*")
		p[0].do("SET", "lock:a", "me", "NX", "PX", "50000")
		p[1].pipelines, p[1].burst = true, newBurst()
		if got := p[1].do("GET", "lock:a"); got != "$2 me" {
			t.Fatal(got)
		}
		p[0].do("DEL", "lock:a")
		began := time.Now()
		got := p[1].do("EVAL", simScripts["takeOrExtend"], "1", "lock:a", "me", "9000")
		if took := time.Since(began); got != ":1" || took > 100*time.Millisecond {
			t.Errorf("%s after %v", got, took)
		}
	})
}
