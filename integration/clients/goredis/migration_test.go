package goredis

import (
	"context"
	"strconv"
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
			return redis.NewScript(redistest.CompareAndDelete).Run(ctx, c, []string{"lock:counter"}, value).Err()
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
