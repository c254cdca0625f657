package integration

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A way is how some programs reach the lock: through a proxy that is replaced by others, or past all of them.
type way struct {
	mu     sync.RWMutex // held for one command
	client *redis.Client
	proxy  *redistest.Proxy
	away   atomic.Bool  // its programs take no lock
	turns  sync.RWMutex // held by a program while it takes its turn
}

func (w *way) with(f func(*redis.Client) error) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return f(w.client)
}

// A migration is programs that count under one lock, while proxies change how they take it.
type migration struct {
	t       *testing.T
	data    *redistest.Server
	nodes   []*redistest.Server
	counter *redis.Client
	direct  *way
	ways    []*way // two proxies
	done    atomic.Int64
	end     chan struct{}
	all     sync.WaitGroup
	holds   int // of the hash that is held all the while
}

func startMigration(t *testing.T) *migration {
	t.Helper()
	m := &migration{t: t, data: redistest.Start(t), nodes: redistest.StartNodes(t, 3), end: make(chan struct{})}
	m.counter = goRedis(t, m.data.Addr())
	m.direct = &way{client: goRedis(t, m.data.Addr())}
	for i := range 3 {
		m.all.Go(func() { m.program(i, m.direct) })
	}
	m.ways = []*way{{}, {}}
	m.turnTo("off")
	for i := range 6 {
		m.all.Go(func() { m.program(3+i, m.ways[i%2]) })
	}
	m.work()
	return m
}

// turnTo replaces the proxies, one after the other, by some of that mode.
func (m *migration) turnTo(mode string) {
	m.t.Helper()
	for _, w := range m.ways {
		p := redistest.StartProxy(m.t, m.data, m.nodes, "--adopt", "lock:* mode="+mode)
		w.mu.Lock()
		old := w.proxy
		w.client, w.proxy = goRedis(m.t, p.Addr()), p
		w.mu.Unlock()
		if old != nil {
			if ended, status := old.Terminate(20 * time.Second); !ended || status != nil {
				m.t.Errorf("the proxy before: %v, %v", ended, status)
			}
		}
		m.work()
	}
}

// work lets the programs count some more.
func (m *migration) work() {
	enough := m.done.Load() + 20
	for began := time.Now(); m.done.Load() < enough && time.Since(began) < 20*time.Second; {
		time.Sleep(10 * time.Millisecond)
	}
}

// stop lets the programs that go past the proxies give back what they have, and take nothing.
func (m *migration) stop() {
	m.direct.turns.Lock() // all turns that began before are over
	defer m.direct.turns.Unlock()
	m.direct.away.Store(true)
}

// finish returns how many updates there were, and how many of them are in the counter.
func (m *migration) finish() (updates, counted int) {
	m.t.Helper()
	close(m.end)
	m.all.Wait()
	counted, err := m.counter.Get(m.t.Context(), "counter").Int()
	if err != nil {
		m.t.Fatal(err)
	}
	return int(m.done.Load()), counted
}

// keep takes locks that are held all the while: one at the upstream itself, and one in a hash, with two holds.
func (m *migration) keep() {
	m.t.Helper()
	ctx := m.t.Context()
	if taken, err := m.direct.client.SetNX(ctx, "lock:kept", "me", time.Minute).Result(); err != nil || !taken {
		m.t.Fatal(taken, err)
	}
	m.enter()
	m.enter()
}

// enter enters the hash once more.
func (m *migration) enter() {
	m.t.Helper()
	const script = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2]) return nil end return 0"
	if err := m.ways[0].client.Eval(m.t.Context(), script, []string{"lock:hash"}, "me", 60000).Err(); err != redis.Nil {
		m.t.Error(err)
	}
	m.holds++
}

// keeps enters the hash again, and extends the locks that are held all the while.
func (m *migration) keeps(mode string) {
	m.t.Helper()
	m.enter()
	for key, script := range map[string]string{
		"lock:kept": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
		"lock:hash": "if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end return 0",
	} {
		if extended, err := m.ways[0].client.Eval(m.t.Context(), script, []string{key}, "me", 60000).Int(); err != nil || extended != 1 {
			m.t.Errorf("%s in %s: extended %d, %v", key, mode, extended, err)
		}
	}
	if held, err := m.ways[1].client.HGet(m.t.Context(), "lock:hash", "me").Int(); err != nil || held != m.holds {
		m.t.Errorf("in %s the hash has %d holds, %v", mode, held, err)
	}
}

func (m *migration) program(n int, w *way) {
	ctx := context.Background()
	for turn := 0; ; turn++ {
		select {
		case <-m.end:
			return
		case <-time.After(time.Duration(5+n) * time.Millisecond):
		}
		w.turns.RLock()
		if !w.away.Load() {
			m.update(ctx, w, strconv.Itoa(n)+"."+strconv.Itoa(turn))
		}
		w.turns.RUnlock()
	}
}

// update takes the lock if it can, and then counts.
func (m *migration) update(ctx context.Context, w *way, value string) {
	taken := false
	err := w.with(func(c *redis.Client) (err error) {
		taken, err = c.SetNX(ctx, "lock:counter", value, updateLease).Result()
		return err
	})
	if err != nil || !taken {
		return
	}
	was, err := m.counter.Get(ctx, "counter").Int()
	if err != nil && err != redis.Nil {
		m.t.Error(err)
	}
	time.Sleep(2 * time.Millisecond)
	if err := m.counter.Set(ctx, "counter", was+1, 0).Err(); err != nil {
		m.t.Error(err)
	}
	m.done.Add(1)
	for range 100 {
		if w.with(func(c *redis.Client) error {
			return redis.NewScript(compareAndDelete).Run(ctx, c, []string{"lock:counter"}, value).Err()
		}) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	m.t.Errorf("%s cannot be released", value)
}

// TestAdopt_Migration: programs move from locks at the upstream to locks at the nodes and back, while they and others that
// still go to the upstream use them. No update is lost, and no lock that is held all the while and extended.
func TestAdopt_Migration(t *testing.T) {
	t.Parallel()
	m := startMigration(t)
	m.keep()
	m.turnTo("both") // beside off, and beside programs that go past the proxies
	m.keeps("both")
	m.stop()
	m.turnTo("on")
	m.keeps("on")
	m.turnTo("both")
	m.keeps("both again")
	m.direct.away.Store(false)
	m.turnTo("off")
	m.keeps("off")
	updates, counted := m.finish()
	if updates != counted || updates < 100 {
		t.Errorf("%d of %d updates have counted", counted, updates)
	}
}

// TestAdopt_MigrationWithAStepLeftOut: programs that still go past the proxies when these are on lose updates. So the
// test above would notice.
func TestAdopt_MigrationWithAStepLeftOut(t *testing.T) {
	t.Parallel()
	m := startMigration(t)
	m.turnTo("both")
	m.turnTo("on")
	for range 10 {
		m.work()
	}
	if updates, counted := m.finish(); updates == counted {
		t.Errorf("%d of %d updates have counted", counted, updates)
	}
}

// TestAdopt_TakesOver: a lock that the upstream alone has is taken over when it is extended in both, but not from when on another
// proxy is on.
func TestAdopt_TakesOver(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:* mode=both")
	c := redistest.Open(t, r.addr())
	extend := func(key string) string {
		return c.Do(t, "EVAL", "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], 60000) end return 0", "1", key, "me").String()
	}
	for _, key := range []string{"lock:a", "lock:b"} {
		r.data.Do(t, "SET", key, "me", "NX", "PX", "50000")
	}
	if got := extend("lock:a"); got != ":1" {
		t.Errorf("without a proxy that is on: %s", got)
	}
	on := redistest.Open(t, redistest.StartProxy(t, r.data, r.nodes, "--adopt", "lock:* mode=on guard=no").Addr())
	if got := extend("lock:b"); got != ":0" {
		t.Errorf("beside one that is on: %s", got)
	}
	wantReplies(t, on, [2]string{"SET lock:a you NX PX 5000", "$-1"}, [2]string{"SET lock:b you NX PX 5000", "+OK"}, [2]string{"GET lock:a", `$"me"`})
}

// TestAdopt_BothReplaces: what overwrites a lock in both does so at the upstream and at the lock nodes, and is answered as by one Redis.
func TestAdopt_BothReplaces(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:* mode=both as=full")
	c, on := redistest.Open(t, r.addr()), redistest.Open(t, redistest.StartProxy(t, r.data, r.nodes, "--adopt", "lock:* as=full").Addr())
	r.data.Do(t, "SET", "lock:a", "old", "NX", "PX", "50000")
	for _, command := range []string{"SET lock:a v1 PX 40000 > +OK", `GETSET lock:a v2 > $"v1"`, `SET lock:a v3 PX 40000 GET > $"v2"`, "PSETEX lock:a 40000 v4 > +OK", "SET lock:a v5 XX PX 40000 > +OK"} {
		command, reply, _ := strings.Cut(command, " > ")
		wantReplies(t, c, [2]string{command, reply})
		has := r.data.Do(t, "GET", "lock:a").String()
		wantReplies(t, on, [2]string{"GET lock:a", has}, [2]string{"SET lock:a other NX PX 5000", "$-1"})
	}
	const compareAndSet = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1 end return 0"
	for _, step := range []struct {
		at   *redistest.Conn
		args []string
		want string
	}{{c, []string{"v4", "v6", "40000"}, ":0"}, {c, []string{"v5", "v6", "40000"}, ":1"}, {on, []string{"v6", "v7", "40000"}, ":1"}, {c, []string{"v6", "v8", "40000"}, ":0"}, {c, []string{"v7", "v8", "40000"}, ":1"}} {
		if got := step.at.Do(t, append([]string{"EVAL", compareAndSet, "1", "lock:a"}, step.args...)...).String(); got != step.want {
			t.Errorf("%v: %s, want %s", step.args, got, step.want)
		}
	}
	wantReplies(t, on, [2]string{"GET lock:a", `$"v8"`})
	wantReplies(t, c, [2]string{"SET lock:a v9 PX 40000", "+OK"}) // by a grant of on
	if has := r.data.Do(t, "GET", "lock:a").String(); has != `$"v9"` {
		t.Errorf("the upstream has %s", has)
	}
	wantReplies(t, on, [2]string{"GET lock:a", `$"v9"`}, [2]string{"DEL lock:a", ":1"})
	wantReplies(t, c, [2]string{"EXISTS lock:a", ":0"})
}

// TestAdopt_BothPersists: PERSIST takes the end away in both places, also of a lock that the upstream alone had, and is refused
// where the lock nodes would not keep the lock.
func TestAdopt_BothPersists(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:* mode=both")
	c, nodes := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	r.data.Do(t, "SET", "lock:off", "me", "NX", "PX", "50000")
	wantReplies(t, c, [2]string{"SET lock:a me NX PX 50000", "+OK"}, [2]string{"PERSIST lock:a", ":1"}, [2]string{"PERSIST lock:a", ":0"}, [2]string{"PERSIST lock:off", ":1"}, [2]string{"PERSIST lock:none", ":0"})
	for _, key := range []string{"lock:a", "lock:off"} {
		if got := r.data.Do(t, "TTL", key).Int(); got != -1 {
			t.Errorf("the upstream has %s for %d s", key, got)
		}
		if got := nodes.Do(t, "LOCKCTL", "INFO", key).String(); !strings.Contains(got, `$"end" $"none"`) {
			t.Errorf("the lock nodes have %s: %s", key, got)
		}
		wantReplies(t, c, [2]string{"PEXPIRE " + key + " 40000", ":1"}, [2]string{"DEL " + key, ":1"})
	}
	if got := c.Do(t, "EVAL", "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 40000) return 1 end return 0", "1", "lock:hash", "me").String(); got != ":1" {
		t.Fatal(got)
	}
	if got := c.Do(t, "PERSIST", "lock:hash").String(); !strings.HasPrefix(got, "-ADOPTREFUSED PERSIST lock:hash: a hash that has no end") || r.data.Do(t, "TTL", "lock:hash").Int() < 1 {
		t.Errorf("%s; it has no end at the upstream", got)
	}
}

// TestAdopt_BothBatch: one script renews several locks in both, as it does at one Redis.
func TestAdopt_BothBatch(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:* mode=both")
	c, on := redistest.Open(t, r.addr()), redistest.Open(t, redistest.StartProxy(t, r.data, r.nodes, "--adopt", "lock:* mode=on guard=no").Addr())
	const enter = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 20000) return nil end return redis.call('pttl', KEYS[1])"
	for key, who := range map[string]string{"lock:a": "me", "lock:b": "you", "other": "me"} {
		c.Do(t, "EVAL", enter, "1", key, who)
	}
	on.Do(t, "EVAL", enter, "1", "lock:c", "me")
	r.data.Do(t, "EVAL", enter, "1", "lock:d", "me")
	const extend = "local said = {} for i = 1, #KEYS do if redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1 then redis.call('pexpire', KEYS[i], ARGV[1]) said[i] = 1 else said[i] = 0 end end return said"
	for range 2 {
		got := c.Do(t, "EVAL", extend, "6", "lock:a", "lock:b", "other", "lock:c", "lock:d", "lock:e", "60000", "me", "me", "me", "me", "me", "me").String()
		if want := "*[:1 :0 :1 :1 :0 :0]"; got != want { // of lock:d the nodes know nothing, and a proxy is on
			t.Errorf("%s, want %s", got, want)
		}
	}
	for key, least := range map[string]int64{"lock:a": 50, "lock:b": 1, "lock:c": 50} {
		if ttl := on.Do(t, "TTL", key).Int(); ttl < least || least == 1 && ttl > 20 {
			t.Errorf("the nodes have %s for %d s", key, ttl)
		}
	}
}
