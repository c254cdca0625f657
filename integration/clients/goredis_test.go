package clients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// An app is what an application does with go-redis.
type app struct {
	proxy    *redistest.Proxy
	protocol int
	r        *redis.Client
}

func (a *app) open(more redis.Options) *redis.Client {
	more.Addr, more.Protocol = a.proxy.Addr(), a.protocol
	return redis.NewClient(&more)
}

// goChecks are those of [checks], each by its name.
var goChecks = map[string]func(*app, context.Context) error{
	"strings": (*app).strings, "pipeline": (*app).pipeline, "transaction": (*app).transaction, "blocking": (*app).blocking, "pubsub": (*app).pubsub, "script": (*app).script,
	"scan": (*app).scan, "select": (*app).selects, "auth": (*app).auth, "large": (*app).large, "locks": (*app).locks, "reconnect": (*app).reconnect,
}

// goRedis holds go-redis to the site's checks.
func goRedis(t *testing.T, s *site) {
	for _, protocol := range []int{2, 3} {
		goRedisIn(t, s, protocol)
	}
}

func goRedisIn(t *testing.T, s *site, protocol int) {
	a := &app{proxy: s.Proxy, protocol: protocol}
	a.r = a.open(redis.Options{})
	defer a.r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	defer cancel()
	if err := a.r.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range s.checks {
		t.Run(fmt.Sprintf("RESP%d %s", protocol, name), func(t *testing.T) {
			if err := goChecks[name](a, ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// want is nil when ok, else an error that shows what was got.
func want(ok bool, got ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("got %.300v", fmt.Sprint(got...))
}

// refused is nil when err begins with word.
func refused(word string, err error) error {
	return want(err != nil && strings.HasPrefix(err.Error(), word), err)
}

func (a *app) strings(ctx context.Context) error {
	binary := "\x00\r\n$-1\r\n\xff"
	if err := a.r.Set(ctx, binary, binary, 0).Err(); err != nil {
		return err
	}
	got, err := a.r.Get(ctx, binary).Result()
	_, none := a.r.Get(ctx, "none").Result()
	a.r.HSet(ctx, "hash", "a", "1", "b", "2")
	hash := a.r.HGetAll(ctx, "hash").Val()
	a.r.ZAdd(ctx, "zset", redis.Z{Score: 1.5, Member: "x"})
	zset := a.r.ZRangeWithScores(ctx, "zset", 0, -1).Val()
	return want(err == nil && got == binary && errors.Is(none, redis.Nil) && hash["b"] == "2" && len(zset) == 1 && zset[0].Score == 1.5, got, none, hash, zset)
}

func (a *app) pipeline(ctx context.Context) error {
	p := a.r.Pipeline()
	for range 1000 {
		p.Incr(ctx, "n")
	}
	got, err := p.Exec(ctx)
	if err != nil {
		return err
	}
	last := got[999].(*redis.IntCmd).Val()
	return want(len(got) == 1000 && last == 1000, last)
}

func (a *app) transaction(ctx context.Context) error {
	try := func(meddle bool) error {
		return a.r.Watch(ctx, func(tx *redis.Tx) error {
			if meddle {
				a.r.Set(ctx, "watched", "theirs", 0)
			}
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "watched", "mine", 0).Err() })
			return err
		}, "watched")
	}
	if err := try(false); err != nil {
		return err
	}
	err := try(true)
	return want(errors.Is(err, redis.TxFailedErr), err)
}

func (a *app) blocking(ctx context.Context) error {
	if _, err := a.r.BLPop(ctx, time.Second, "queue").Result(); !errors.Is(err, redis.Nil) {
		return want(false, err)
	}
	time.AfterFunc(100*time.Millisecond, func() { a.r.RPush(ctx, "queue", "late") })
	got, err := a.r.BLPop(ctx, 5*time.Second, "queue").Result()
	return want(err == nil && len(got) == 2 && got[1] == "late", got, err)
}

func (a *app) pubsub(ctx context.Context) error {
	sub := a.r.Subscribe(ctx, "channel")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		return err
	}
	if err := sub.PSubscribe(ctx, "pat*"); err != nil {
		return err
	}
	if _, err := sub.Receive(ctx); err != nil {
		return err
	}
	a.r.Publish(ctx, "channel", "\x00\r\n")
	a.r.Publish(ctx, "pattern", "m")
	first, err := sub.ReceiveMessage(ctx)
	if err != nil {
		return err
	}
	second, err := sub.ReceiveMessage(ctx)
	if err != nil {
		return err
	}
	return want(first.Payload == "\x00\r\n" && second.Pattern == "pat*", first, second)
}

func (a *app) script(ctx context.Context) error {
	s := redis.NewScript("return {KEYS[1], ARGV[1], redis.call('incr', KEYS[1])}")
	a.r.ScriptFlush(ctx)
	if err := refused("NOSCRIPT", s.EvalSha(ctx, a.r, []string{"counted"}, "x").Err()); err != nil {
		return err
	}
	for i := range int64(2) { // the first run falls back to EVAL
		got, err := s.Run(ctx, a.r, []string{"counted"}, "x").Slice()
		if err := want(err == nil && len(got) == 3 && got[2] == i+1, got, err); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) scan(ctx context.Context) error {
	for i := range 500 {
		a.r.Set(ctx, fmt.Sprint("scan:", i), i, 0)
	}
	seen := map[string]bool{}
	it := a.r.Scan(ctx, 0, "scan:*", 50).Iterator()
	for it.Next(ctx) {
		seen[it.Val()] = true
	}
	return want(it.Err() == nil && len(seen) == 500, len(seen), it.Err())
}

func (a *app) selects(ctx context.Context) error {
	other := a.open(redis.Options{DB: 3})
	defer other.Close()
	if err := other.Set(ctx, "only", "three", 0).Err(); err != nil {
		return err
	}
	err := a.r.Get(ctx, "only").Err()
	return want(errors.Is(err, redis.Nil) && other.Get(ctx, "only").Val() == "three", err)
}

func (a *app) auth(ctx context.Context) error {
	user := a.open(redis.Options{Username: "app", Password: "pw"})
	defer user.Close()
	if who, err := user.Do(ctx, "ACL", "WHOAMI").Text(); who != "app" {
		return want(false, who, err)
	}
	if err := user.Set(ctx, "app:1", "x", 0).Err(); err != nil {
		return err
	}
	if err := refused("NOPERM", user.Set(ctx, "other", "x", 0).Err()); err != nil {
		return err
	}
	wrong := a.open(redis.Options{Username: "app", Password: "wrong"})
	defer wrong.Close()
	return refused("WRONGPASS", wrong.Ping(ctx).Err())
}

func (a *app) large(ctx context.Context) error {
	value := strings.Repeat("\x00\r\n\xff+", 1<<20)
	if err := a.r.Set(ctx, "large", value, 0).Err(); err != nil {
		return err
	}
	got, err := a.r.Get(ctx, "large").Result()
	return want(err == nil && got == value, len(got), err)
}

func (a *app) locks(ctx context.Context) error {
	one := a.r.Conn() // the plain forms mean what this connection took
	defer one.Close()
	grant, err := one.Do(ctx, "LOCK", "job", "30s").Slice()
	if err := want(err == nil && len(grant) == 4 && grant[3] == int64(1), grant, err); err != nil {
		return err
	}
	if err := a.r.Do(ctx, "LOCK", "job", "30s", "OWNER", "you").Err(); !errors.Is(err, redis.Nil) {
		return want(false, err)
	}
	validity, err := one.Do(ctx, "RENEW", "job", "20s").Int()
	if err := want(err == nil && validity > 0 && validity <= 20000, validity, err); err != nil {
		return err
	}
	if n, err := one.Do(ctx, "UNLOCK", "job").Int(); n != 1 {
		return want(false, n, err)
	}
	return refused("LOCKLOST", a.r.Do(ctx, "RENEW", "job", "30s", "you").Err())
}

func (a *app) reconnect(ctx context.Context) error {
	if err := a.r.Set(ctx, "kept", "1", 0).Err(); err != nil {
		return err
	}
	a.proxy.Terminate(5 * time.Second)
	if err := a.proxy.Restart(); err != nil {
		return err
	}
	got, err := a.r.Get(ctx, "kept").Result()
	return want(err == nil && got == "1", got, err)
}
