package goredis

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	"github.com/lockproxy/lockproxy/docs/recipes"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestRecipesShowTheirCode holds the page to the code that the tests below run.
func TestRecipesShowTheirCode(t *testing.T) {
	page, err := os.ReadFile("../../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../docs/recipes/*")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
		if strings.HasSuffix(f, ".lua") && !strings.Contains(string(page), "```lua\n"+string(text)+"```\n") {
			t.Errorf("the page does not show %s as it is", f)
		}
	}
	blocks := regexp.MustCompile("(?s)```(?:go|lua|sql|python|crontab)\n(.*?)```\n").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 12 {
		t.Errorf("%d blocks of code", len(blocks))
	}
	for _, b := range blocks {
		for _, part := range strings.SplitAfter(b[1], "\n}\n") { // a declaration, or a whole script
			if !strings.Contains(code.String(), strings.Trim(part, "\n")) {
				t.Errorf("no file has\n%s", part)
			}
		}
	}
}

// recipeClient is a client with a pool of its own; it ends with the test.
func recipeClient(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 40, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// request answers with the status code of a GET.
func request(t *testing.T, target string) int {
	t.Helper()
	resp, err := http.Get(target)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestRecipeFailAtOnce(t *testing.T) {
	t.Parallel()
	r := redistest.StartRig(t, 3, 1)
	busy, free := make(chan struct{}, 3), make(chan struct{})
	slow := func(http.ResponseWriter, *http.Request) { busy <- struct{}{}; <-free }
	srv := httptest.NewServer(recipes.Exclusive(recipeClient(t, r.Addr()), 10*time.Second, 0, http.HandlerFunc(slow)))
	defer srv.Close()
	var holders sync.WaitGroup
	begin := func(path string) { // returns when the request is being served
		holders.Go(func() {
			if got := request(t, srv.URL+path); got != http.StatusOK {
				t.Errorf("the only request for %s got %d", path, got)
			}
		})
		select {
		case <-busy:
		case <-time.After(30 * time.Second):
			t.Errorf("the request for %s is not served", path)
		}
	}
	begin("/order/7")
	if got := request(t, srv.URL+"/order/7"); got != http.StatusConflict {
		t.Errorf("a second request got %d", got)
	}
	begin("/order/8")
	close(free)
	holders.Wait()
	if got := request(t, srv.URL+"/order/7"); got != http.StatusOK {
		t.Errorf("a request afterwards got %d", got)
	}
}

func TestRecipeWait(t *testing.T) {
	t.Parallel()
	r := redistest.StartRig(t, 3, 1)
	rdb := recipeClient(t, r.Addr())
	const visitors = 30
	inside, seen := 0, 0 // written by whoever has the lock
	var others atomic.Int64
	count := func(http.ResponseWriter, *http.Request) {
		if others.Add(1) > 1 {
			t.Error("two are inside")
		}
		inside = seen
		time.Sleep(time.Millisecond)
		seen = inside + 1
		others.Add(-1)
	}
	srv := httptest.NewServer(recipes.Exclusive(rdb, 10*time.Second, 30*time.Second, http.HandlerFunc(count)))
	defer srv.Close()
	var all sync.WaitGroup
	for range visitors {
		all.Go(func() {
			if got := request(t, srv.URL+"/page"); got != http.StatusOK {
				t.Errorf("a request got %d", got)
			}
		})
	}
	all.Wait()
	if seen != visitors {
		t.Errorf("%d of %d visits were counted", seen, visitors)
	}

	lock, err := recipes.Lock(t.Context(), rdb, "/page", 10*time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	const wait = 200 * time.Millisecond
	impatient := httptest.NewServer(recipes.Exclusive(rdb, 10*time.Second, wait, http.HandlerFunc(count)))
	defer impatient.Close()
	start := time.Now()
	if got := request(t, impatient.URL+"/page"); got != http.StatusConflict || time.Since(start) < wait {
		t.Errorf("a request that may not wait long got %d after %v", got, time.Since(start))
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// errDied is where a worker of the test ends as if it had been killed.
var errDied = errors.New("died")

// TestRecipePutOff runs jobs of a few resources with workers that die and workers that
// are paused. Each job adds 1 to a balance of its own.
func TestRecipePutOff(t *testing.T) {
	t.Parallel()
	r := redistest.StartRig(t, 3, 1)
	const jobs, resources, workers, ttl = 60, 4, 6, 400 * time.Millisecond
	name := func(i int) string { return fmt.Sprintf("%d@account:%d", i, i%resources) }
	text, err := os.ReadFile("../../../docs/recipes/finish.lua")
	if err != nil {
		t.Fatal(err)
	}
	finish := redis.NewScript(string(text))
	var deaths, late, done atomic.Int64
	queues := make([]*recipes.Queue, workers)
	for i := range queues {
		queues[i] = &recipes.Queue{Redis: recipeClient(t, r.Addr()), Key: "jobs", TTL: ttl}
	}
	do := func(q *recipes.Queue, step int) func(context.Context, string) error {
		return func(ctx context.Context, job string) error {
			switch step % 7 {
			case 3:
				deaths.Add(1)
				return errDied
			case 5:
				time.Sleep(2 * ttl) // paused: the lease ends, and the job is shown again
			}
			n, err := finish.Run(ctx, q.Redis, []string{q.Key, "balance:" + job}, job, 1).Int()
			if err == nil && n == 0 {
				late.Add(1)
			}
			done.Add(int64(n))
			if step%7 == 6 { // after the effect, before anything else
				deaths.Add(1)
				return errDied
			}
			return err
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for w, q := range queues { // each submits its share, which also works on it, then works
		g.Go(func() error {
			step := w
			for i := w; i < jobs; i += workers {
				step++
				act := do(q, step)
				err := q.Run(ctx, name(i), func(ctx context.Context, _ *recipes.Grant) error { return act(ctx, name(i)) })
				if err != nil && !errors.Is(err, errDied) {
					return err
				}
			}
			for done.Load() < jobs {
				step++
				act := do(q, step)
				err := q.Work(ctx, func(ctx context.Context, job string, _ *recipes.Grant) error { return act(ctx, job) })
				switch {
				case errors.Is(err, redis.Nil):
					time.Sleep(10 * time.Millisecond)
				case err != nil && !errors.Is(err, errDied):
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if v := r.Data.Do(t, "GET", "balance:"+name(i)); v.Text != "1" {
			t.Errorf("%s ran %s times", name(i), v.Text)
		}
	}
	if n := r.Data.Do(t, "ZCARD", "jobs").Int(); n != 0 {
		t.Errorf("%d jobs are left in the queue", n)
	}
	t.Logf("%d deaths, %d workers too late", deaths.Load(), late.Load())
	if deaths.Load() == 0 || late.Load() == 0 {
		t.Error("nothing went wrong: the run proves nothing")
	}
}

// A worker that dies between taking a job and asking for the lock leaves no trace.
func TestRecipePutOff_WorkerDiesBeforeLocking(t *testing.T) {
	t.Parallel()
	r := redistest.StartRig(t, 1, 1)
	rdb := recipeClient(t, r.Addr())
	q := &recipes.Queue{Redis: rdb, Key: "jobs", TTL: 200 * time.Millisecond}
	text, err := os.ReadFile("../../../docs/recipes/take.lua")
	if err != nil {
		t.Fatal(err)
	}
	take := redis.NewScript(string(text))
	rdb.ZAdd(t.Context(), "jobs", redis.Z{Score: 1, Member: "1@a"})
	for range 2 { // the second time it is not due
		got, err := take.Run(t.Context(), rdb, []string{"jobs"}, q.TTL.Milliseconds()).Text()
		if got != "1@a" && !errors.Is(err, redis.Nil) {
			t.Fatalf("took %q, %v", got, err)
		}
	}
	ran := 0
	for end := time.Now().Add(30 * time.Second); ran == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		err := q.Work(t.Context(), func(context.Context, string, *recipes.Grant) error { ran++; return nil })
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	if ran != 1 {
		t.Error("a job whose worker died did not come up again")
	}
}

// stale makes two grants of a name one after the other: the first holder is paused past
// its lease and does not know.
func stale(t *testing.T, rdb *redis.Client, name string) (first, second *recipes.Grant) {
	t.Helper()
	first, err := recipes.Lock(t.Context(), rdb, name, 200*time.Millisecond, 0)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		second, err = recipes.Lock(t.Context(), rdb, name, 10*time.Second, 0)
		if err == nil {
			return first, second
		}
		if held := (*recipes.Held)(nil); !errors.As(err, &held) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestRecipeFenceSQL(t *testing.T) {
	t.Parallel()
	r := redistest.StartRig(t, 3, 1)
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "accounts"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range []string{
		"CREATE TABLE account (id INTEGER PRIMARY KEY, value TEXT, fence INTEGER NOT NULL DEFAULT 0)",
		"INSERT INTO account (id, value) VALUES (7, 'new')",
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	first, second := stale(t, recipeClient(t, r.Addr()), "account:7")
	if err := second.Store(t.Context(), db, 7, "second"); err != nil {
		t.Error(err)
	}
	if err := first.Store(t.Context(), db, 7, "first"); !errors.Is(err, recipes.ErrStale) {
		t.Errorf("the stale holder got %v", err)
	}
	var value string
	if err := db.QueryRow("SELECT value FROM account WHERE id = 7").Scan(&value); err != nil || value != "second" {
		t.Errorf("the account has %q, %v", value, err)
	}
}

func TestRecipeFenceRedis(t *testing.T) {
	t.Parallel()
	r := redistest.StartRig(t, 3, 1)
	rdb := recipeClient(t, r.Addr())
	first, second := stale(t, rdb, "account:7")
	for _, value := range []string{"second", "again"} {
		if err := second.Set(t.Context(), "account:7", value); err != nil {
			t.Error(err)
		}
	}
	if err := first.Set(t.Context(), "account:7", "first"); !errors.Is(err, recipes.ErrStale) {
		t.Errorf("the stale holder got %v", err)
	}
	got := rdb.HGetAll(t.Context(), "account:7").Val()
	if got["value"] != "again" || got["fence"] != strconv.FormatInt(second.Fence, 10) {
		t.Errorf("the account has %v", got)
	}
}

// TestRecipeLimited: at most k are at it, through two proxies; who does not wait is sent away, and the permits of holders that
// have crashed come back.
func TestRecipeLimited(t *testing.T) {
	t.Parallel()
	r := redistest.StartRig(t, 3, 2)
	clients := []*redis.Client{recipeClient(t, r.Addr()), recipeClient(t, r.Proxies[1].Addr())}
	const k, ttl = 3, 30 * time.Second
	for range k {
		if _, err := recipes.Lock(t.Context(), clients[0], "calls", time.Second, 0, "PERMITS", k); err != nil {
			t.Fatal("who crashes: ", err)
		}
	}
	var in, most, served atomic.Int64
	full := make(chan struct{})
	var all errgroup.Group
	for i := range 20 {
		all.Go(func() error {
			return recipes.Limited(t.Context(), clients[i%2], "calls", k, ttl, time.Minute, func(ctx context.Context) error {
				defer in.Add(-1)
				n := in.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				if served.Add(1) == k {
					close(full)
				}
				select { // the first ones stay until all permits are taken
				case <-full:
				case <-ctx.Done():
					return ctx.Err()
				}
				return nil
			})
		})
	}
	<-full
	if err := all.Wait(); err != nil || most.Load() != k || served.Load() != 20 {
		t.Errorf("%v; %d at once, %d served", err, most.Load(), served.Load())
	}
	busy := func(context.Context) error {
		return recipes.Limited(t.Context(), clients[1], "one", 1, ttl, 0, func(context.Context) error { return nil })
	}
	if err := recipes.Limited(t.Context(), clients[0], "one", 1, ttl, 0, busy); !errors.As(err, new(*recipes.Held)) {
		t.Error("beside the only one: ", err)
	}
	if err := busy(t.Context()); err != nil {
		t.Error("after it: ", err)
	}
}

// TestRecipeTransfer: many move money between three accounts, through two proxies and in any order. No account changes
// while one of them decides, and none is lost. A holder that is late moves nothing, whichever of its accounts others have had.
func TestRecipeTransfer(t *testing.T) {
	t.Parallel()
	r := redistest.StartRig(t, 3, 2)
	clients := []*redis.Client{recipeClient(t, r.Addr()), recipeClient(t, r.Proxies[1].Addr())}
	accounts := []string{"account:7", "account:8", "account:9"}
	const ttl, each = 30 * time.Second, 1000
	balance := func(account string) int64 {
		t.Helper()
		n, err := clients[0].HGet(t.Context(), account, "balance").Int64()
		if err != nil {
			t.Error(err)
		}
		return n
	}
	for _, a := range accounts {
		clients[0].HSet(t.Context(), a, "balance", each)
	}
	var inside [3]atomic.Int64
	var all errgroup.Group
	const transfers = 30
	for i := range transfers {
		from, to := i%3, (i+1+i/3%2)%3
		all.Go(func() error {
			return recipes.Transfer(t.Context(), clients[i%2], accounts[from], accounts[to], int64(1+from), ttl, time.Minute, func(_ context.Context, has int64) error {
				for _, a := range []int{from, to} {
					if n := inside[a].Add(1); n > 1 {
						t.Errorf("%d are at %s", n, accounts[a])
					}
					defer inside[a].Add(-1)
				}
				time.Sleep(time.Millisecond)
				if now := balance(accounts[from]); now != has {
					t.Errorf("%s had %d and has %d", accounts[from], has, now)
				}
				return nil
			})
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	want := [3]int64{each, each, each}
	for i := range transfers {
		from, to := i%3, (i+1+i/3%2)%3
		want[from] -= int64(1 + from)
		want[to] += int64(1 + from)
	}
	if got := [3]int64{balance(accounts[0]), balance(accounts[1]), balance(accounts[2])}; got != want {
		t.Errorf("balances %v, want %v", got, want)
	}
	refuses := errors.New("over the limit")
	no := func(context.Context, int64) error { return refuses }
	if err := recipes.Transfer(t.Context(), clients[0], accounts[0], accounts[1], 1, ttl, 0, no); err != refuses {
		t.Error(err)
	}
	for _, other := range accounts[:2] { // the late holder has both
		late, err := recipes.LockAll(t.Context(), clients[0], accounts[:2], ttl, 0)
		if err != nil {
			t.Fatal(err)
		}
		var held *recipes.Held
		if err := recipes.Transfer(t.Context(), clients[1], accounts[2], other, 1, ttl, 0, no); !errors.As(err, &held) || held.Name != other {
			t.Errorf("beside a holder of %s: %v", other, err)
		}
		clients[0].Do(t.Context(), "LOCKCTL", "FORCE", other)
		yes := func(context.Context, int64) error { return nil }
		if err := recipes.Transfer(t.Context(), clients[1], accounts[2], other, 1, ttl, time.Minute, yes); err != nil {
			t.Error(err)
		}
		before := [2]int64{balance(accounts[0]), balance(accounts[1])}
		if err := late[accounts[0]].Move(t.Context(), late[accounts[1]], 5); err != recipes.ErrStale {
			t.Errorf("late, after another had %s: %v", other, err)
		}
		if now := [2]int64{balance(accounts[0]), balance(accounts[1])}; now != before {
			t.Errorf("who is late has changed %v to %v", before, now)
		}
		clients[0].Do(t.Context(), "UNLOCKALL", 2, accounts[0], accounts[1], late[other].Owner)
	}
}

// TestRecipeFenceShared: data refuses a writer that was paused until others have read, and a reader that was paused until
// another has written; whoever is not late is served.
func TestRecipeFenceShared(t *testing.T) {
	t.Parallel()
	r := redistest.StartRig(t, 3, 1)
	rdb, ctx := recipeClient(t, r.Addr()), t.Context()
	taken := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(what, err)
		}
	}
	write := func() *recipes.Grant {
		g, err := recipes.Lock(ctx, rdb, "prices", 100*time.Millisecond, time.Minute)
		taken("a writer", err)
		return g
	}
	read := func(ttl time.Duration) *recipes.Reading {
		g, err := recipes.LockShared(ctx, rdb, "prices", ttl, time.Minute)
		taken("a reader", err)
		return g
	}
	gets := func(what string, r *recipes.Reading, want string, wanted error) {
		t.Helper()
		if got, err := r.Get(ctx, "shop", "apple"); got != want || !errors.Is(err, wanted) {
			t.Errorf("%s reads %q, %v; want %q, %v", what, got, err, want, wanted)
		}
	}
	puts := func(what string, g *recipes.Grant, value string, wanted error) {
		t.Helper()
		if err := g.Put(ctx, "shop", "apple", value); !errors.Is(err, wanted) {
			t.Errorf("%s: %v, want %v", what, err, wanted)
		}
	}
	first := write()
	puts("the first writer", first, "1", nil)
	puts("the same once more", first, "2", nil)
	const short, long = 100 * time.Millisecond, 30 * time.Second
	one, other := read(short), read(short) // once the first writer's lease is over
	gets("a reader", one, "2", nil)
	puts("the first writer, late", first, "3", recipes.ErrStale)
	gets("a reader that shares the number", other, "2", nil)
	second := write()
	gets("a reader, late, but nobody has written", one, "2", nil)
	puts("the second writer", second, "4", nil)
	gets("a reader, late", one, "", recipes.ErrStale)
	taken("where nobody reads", second.Put(ctx, "market", "pear", "5"))
	if err := first.Put(ctx, "market", "pear", "6"); !errors.Is(err, recipes.ErrStale) {
		t.Errorf("the first writer, late, where nobody reads: %v", err)
	}
	last := read(long)
	gets("a reader afterwards", last, "4", nil)
	taken("to read no more", last.Unlock(ctx))
	next, err := recipes.Lock(ctx, rdb, "prices", long, 0)
	taken("a writer, at once", err)
	puts("a writer afterwards", next, "7", nil)
}
