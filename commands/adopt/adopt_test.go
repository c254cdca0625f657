package adopt

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// A client is a Connection without an upstream: it notes what is asked there.
type client struct {
	t     *testing.T
	a     *Adoption
	proto int
	asked []string
	// questions are the commands of MayAsk.
	questions []string
	has       string // what the upstream answers to PTTL; empty: that it has no such key
	says      string // what it answers to all else; empty: 1
	no        error  // the answer to MayLock
	gone      error  // why the upstream does not answer; nil: it does
	burst     Burst  // in which it sends its next command
	pipelines bool   // its commands had all come before the first ran
	ahead     bool   // the upstream can be asked without waiting for a connection
}

func (c *client) Database() int                         { return 0 }
func (c *client) Protocol() int                         { return c.proto }
func (c *client) Address() string                       { return "its address" }
func (c *client) About() []slog.Attr                    { return nil }
func (c *client) Burst() Burst                          { return c.burst }
func (c *client) MayLock(context.Context, string) error { return c.no }
func (c *client) MayAsk(_ context.Context, command []string) error {
	c.questions = append(c.questions, strings.Join(command, " "))
	return nil
}

func (c *client) Begin(args []string) Answer {
	if !c.ahead {
		return nil
	}
	q := &asking{done: make(chan struct{})}
	close(q.done)
	q.reply, q.err = c.Ask(context.Background(), args)
	return q
}

func (c *client) Ask(_ context.Context, args []string) ([]byte, error) {
	if args[0] == "PTTL" {
		return []byte(cmp.Or(c.has, ":-2\r\n")), nil
	}
	if c.gone != nil {
		return nil, c.gone
	}
	c.asked = append(c.asked, strings.Join(args, " "))
	return []byte(cmp.Or(c.says, ":1\r\n")), nil
}

// do runs a command whose one key, if it has one, is its first argument, and returns the reply in one line.
func (c *client) do(args ...string) string {
	c.t.Helper()
	var words [][]byte
	for _, a := range args {
		words = append(words, []byte(a))
	}
	call, err := c.a.Call(c, words, Keys{[]int{1}, true})
	if err == nil && call == nil {
		return "no lock"
	}
	var r Result
	if err == nil {
		r, err = c.a.Decide(c.t.Context(), c, call)
	}
	if c.pipelines {
		c.burst = r.Burst
	}
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(r.Reply), "\r\n"), "\r\n", " ")
}

// parsed are these patterns, none of which has a fault.
func parsed(t *testing.T, texts ...string) (all []*pattern.Pattern) {
	t.Helper()
	for _, text := range texts {
		p, err := pattern.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// lockService runs a lock service over a store in memory until the test ends.
func lockService(t *testing.T, o locks.Options) *locks.Service {
	t.Helper()
	began := time.Now()
	svc, err := locks.New(memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour }), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return svc
}

// proxies are Adoptions at several proxies, over the same store of locks.
func proxies(t *testing.T, n int, patterns ...string) (all []*client) {
	t.Helper()
	ps, svc := parsed(t, patterns...), lockService(t, locks.Options{RenewEndless: true})
	for range n {
		a, err := New(ps, Options{Engine: svc, Inspector: svc, MinTTL: 100 * time.Millisecond, MaxTTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &client{t: t, a: a, proto: 2})
	}
	return all
}

const (
	compareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`
	freeAndTell      = `if redis.call('del', KEYS[1]) == 1 then redis.call('publish', 'free', KEYS[1]) return 1 end return 0`
)

func TestDecide(t *testing.T) {
	p := proxies(t, 2, "lock:* no-expiry=lease:30s", "job:* as=strict no-expiry=refuse")
	for _, step := range []struct {
		at   int
		args string
		want string
	}{
		{0, "SET x me NX PX 5000", "no lock"},
		{0, "SET lock:a me NX PX 5000", "+OK"},
		{0, "SET lock:a me NX PX 5000", "$-1"},
		{1, "SET lock:a me NX PX 5000", "$-1"},
		{1, "GET lock:a", "$2 me"},
		{1, "EVAL cad 1 lock:a you", ":0"},
		{1, "EVAL cad 1 lock:a me", ":1"},
		{0, "EVAL cad 1 lock:a me", ":0"}, // its own proxy still takes it for held
		{0, "GET lock:a", "$-1"},
		{0, "SETNX lock:a 1", ":1"},
		{1, "SETNX lock:a 1", ":0"},
		{1, "TTL lock:a", ":30"},
		{1, "EXPIRE lock:a 7", ":1"},
		{0, "TTL lock:a", ":7"},
		{0, "DEL lock:a", ":1"},
		{1, "DEL lock:a", ":0"},
		{0, "SET lock:a me", `ADOPTREFUSED SET lock:a: OVERWRITE does not compare the value: set as=full; adopted by "lock:*"`},
		{0, "INCR lock:a", `ADOPTREFUSED INCR lock:a: INCR of a lock: a counter, or a semaphore, whose permits have neither owner nor end; adopted by "lock:*"`},
		{0, "SET lock:a me NX EX 90", `ADOPTREFUSED SET lock:a: its ttl of 1m30s is over max-ttl, 1m0s; adopted by "lock:*"`},
		{0, "SET job:a me NX", `ADOPTREFUSED SET job:a: it has no end: set no-expiry=keep or no-expiry=lease:DURATION; adopted by "job:*"`},
		{0, "SET job:a me NX PX 1", "+OK"}, // for min-ttl
		{0, "PTTL job:a", ":100"},
		{0, "DEL job:a", `ADOPTREFUSED DEL job:a: FORCE-RELEASE does not compare the value; adopted by "job:*"`},
		{0, "SET job:a you XX PXAT 1", `ADOPTREFUSED SET job:a: with these arguments it does not compare the value; adopted by "job:*"`},
		{0, "SET job:a me XX PX 2000", "+OK"},
		{0, "EVAL cad 1 job:a me", ":1"},
		{0, "EVAL select 1 lock:a 0", ":0"},
		{0, "EVAL select 1 lock:a 1", `ADOPTREFUSED EVAL lock:a: SELECT beside the lock; adopted by "lock:*"`},
		{0, "EVALSHA 0123 1 job:a me", "NOSCRIPT No matching script. Please use EVAL."},
		{0, "EVAL cad 1 x me", "no lock"},
		{0, "EVAL cad 9 job:a me", "no lock"},
	} {
		args := strings.Fields(step.args)
		for i := range args {
			switch args[i] {
			case "cad":
				args[i] = compareAndDelete
			case "select":
				args[i] = `redis.call('select', tonumber(ARGV[1])) return redis.call('del', KEYS[1])`
			}
		}
		got := p[step.at].do(args...)
		if strings.HasPrefix(step.args, "PTTL") && strings.HasPrefix(got, ":") {
			got = ":100" // or a little less
		}
		if got != step.want {
			t.Errorf("%s at %d: %s, want %s", step.args, step.at, got, step.want)
		}
	}
}

// TestDecide_EndsWithTheLease: nobody has the key then, also where a proxy remembers it.
func TestDecide_EndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 2, "lock:*")
		if got := p[0].do("SET", "lock:a", "me", "NX", "PX", "5000"); got != "+OK" {
			t.Fatal(got)
		}
		time.Sleep(5*time.Second + time.Millisecond)
		for _, c := range p {
			if got := c.do("EVAL", compareAndDelete, "1", "lock:a", "me"); got != ":0" {
				t.Errorf("release: %s", got)
			}
			if got := c.do("PTTL", "lock:a"); got != ":-2" {
				t.Errorf("PTTL: %s", got)
			}
		}
	})
}

// TestDecide_NamesTheClient: the lock service is told where the client is that takes or enters an adopted lock.
func TestDecide_NamesTheClient(t *testing.T) {
	svc := lockService(t, locks.Options{})
	var where []string // only this goroutine takes locks
	svc.Watch(func(e locks.Event) {
		if e.Kind == locks.EventGranted {
			where = append(where, e.Name+" at "+e.Client)
		}
	})
	a, err := New(parsed(t, "lock:*"), Options{Engine: svc, MinTTL: 100 * time.Millisecond, MaxTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, a: a, proto: 2}
	c.do("SET", "lock:a", "me", "NX", "PX", "5000")
	c.do("EVAL", enterHash, "1", "lock:b", "5000", "me")
	if want := []string{"lock:a at its address", "lock:b at its address"}; !slices.Equal(where, want) {
		t.Errorf("told %q, want %q", where, want)
	}
}

// TestDecide_Signals: they follow the release, and only one that was done.
func TestDecide_Signals(t *testing.T) {
	p := proxies(t, 2, "lock:*")
	p[0].do("SET", "lock:a", "me", "NX", "PX", "5000")
	if got := p[0].do("EVAL", freeAndTell, "1", "lock:a"); got != ":1" || len(p[0].asked) != 1 || p[0].asked[0] != "publish free lock:a" {
		t.Errorf("%s, %v", got, p[0].asked)
	}
	if got := p[0].do("EVAL", freeAndTell, "1", "lock:a"); got != ":0" || len(p[0].asked) != 1 {
		t.Errorf("again: %s, %v", got, p[0].asked)
	}
}

// TestDecide_Guard: what the upstream has is held, until it has it no more.
func TestDecide_Guard(t *testing.T) {
	p := proxies(t, 2, "lock:* guard=no", "job:*")
	for _, has := range []string{":5000\r\n", ":-1\r\n"} {
		p[0].has = has
		if got := p[0].do("SET", "job:a", "me", "NX", "PX", "5000"); got != "$-1" {
			t.Errorf("%q: %s", has, got)
		}
		if got := p[1].do("GET", "job:a"); got != "$-1" {
			t.Errorf("it has been taken: %s", got)
		}
	}
	if got := p[0].do("SET", "lock:a", "me", "NX", "PX", "5000"); got != "+OK" {
		t.Errorf("guard=no: %s", got)
	}
	p[0].has = "-ERR it is away\r\n"
	if got := p[0].do("SET", "job:a", "me", "NX", "PX", "5000"); got != "+OK" {
		t.Errorf("an upstream that does not say: %s", got)
	}
}

// TestDecide_NoRight: who may not lock changes nothing, and may read.
func TestDecide_NoRight(t *testing.T) {
	p := proxies(t, 2, "lock:*")
	p[0].do("SET", "lock:a", "me", "NX", "PX", "5000")
	p[1].no = errors.New("NOPERM")
	for _, args := range []string{"DEL lock:a", "EXPIRE lock:a 9", "SET lock:b me NX PX 500"} {
		if got := p[1].do(strings.Fields(args)...); got != "NOPERM" {
			t.Errorf("%s: %s", args, got)
		}
	}
	if got := p[1].do("GET", "lock:a"); got != "$2 me" {
		t.Errorf("GET: %s", got)
	}
}

// TestDecide_ConstantValues exclude each other, through two proxies: no update is lost.
func TestDecide_ConstantValues(t *testing.T) {
	const updates = 666
	p := proxies(t, 2, "lock:*")
	var wg sync.WaitGroup
	var inside, counter, lost atomic.Int64
	for i := range 16 {
		c := &client{t: t, a: p[i%2].a, proto: 2}
		wg.Go(func() {
			for counter.Load() < updates && !t.Failed() {
				if c.do("SET", "lock:n", "1", "NX", "PX", "20000") != "+OK" {
					time.Sleep(time.Millisecond)
					continue
				}
				if inside.Add(1) != 1 {
					lost.Add(1)
				}
				counter.Add(1)
				inside.Add(-1)
				if got := c.do("EVAL", compareAndDelete, "1", "lock:n", "1"); got != ":1" {
					t.Errorf("release: %s", got)
				}
			}
		})
	}
	wg.Wait()
	if lost.Load() != 0 {
		t.Errorf("%d of %d overlapped", lost.Load(), counter.Load())
	}
}

func TestParsePattern_NamesEveryFault(t *testing.T) {
	_, err := pattern.Parse("lock:[a db=x mode=maybe as=some no-expiry=never flush=some guard=maybe timestamps=min colour=red")
	for _, want := range []string{"[ without ]", "db=x", "mode=maybe", "as=some", "no-expiry=never", "flush=some", "guard=maybe", "timestamps=min", "colour=red"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in %v", want, err)
		}
	}
	if _, err := pattern.Parse("lock:* mode=both timestamps=s"); err == nil || !strings.Contains(err.Error(), "mode=both") {
		t.Errorf("at the upstream such a lock has no end: %v", err)
	}
}

func TestPattern(t *testing.T) {
	for _, tt := range []struct {
		pattern, key string
		want         bool
	}{
		{"lock:*", "lock:a", true}, {"lock:*", "lock:", true}, {"lock:*", "Lock:a", false}, {"lock:*", "a lock:a", false},
		{"{job}:lock:?", "{job}:lock:1", true}, {"{job}:lock:?", "{job}:lock:12", false}, {"lock.a", "lockXa", false},
		{"lock:[ab]*", "lock:b1", true}, {"lock:[ab]*", "lock:c1", false}, {"lock:[^a]", "lock:b", true}, {`lock:\*`, "lock:*", true}, {`lock:\*`, "lock:a", false},
		{`my\x20lock`, "my lock", true}, {"*", "anything\n\xff", true},
	} {
		p, err := pattern.Parse(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		if got := p.Matches(3, tt.key); got != tt.want {
			t.Errorf("%s, %s: %t", tt.pattern, tt.key, got)
		}
	}
}
