package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// An idiom is how existing code takes a lock and gives it back, command by command.
type idiom struct {
	name string
	take func(*user) (granted bool, err error)
	free func(*user) error
}

// The scripts of idioms; each user loads them.
const (
	takeOrExtend = `local v = redis.call('get', KEYS[1])
if not v then redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) return 1 end
if v == ARGV[1] then redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end
return 0`
	enterHash = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2]) return nil
end
return redis.call('pttl', KEYS[1])`
	leaveHash = `if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) return 0 end
redis.call('del', KEYS[1]) redis.call('publish', 'free:' .. KEYS[1], '0') return 1`
)

var idioms = []idiom{
	{"SET NX PX; compare-and-delete", (*user).setNX, func(u *user) error { return u.run(releaseIfMine) }},
	{"take-or-extend; compare-and-delete", func(u *user) (bool, error) {
		v, err := u.eval(takeOrExtend, u.me, lease)
		return v.Int() == 1, err
	}, func(u *user) error { return u.run(releaseIfMine) }},
	{"hash, re-entrant, with a message", func(u *user) (bool, error) {
		v, err := u.eval(enterHash, u.me, lease)
		return v.Null, err
	}, func(u *user) error { return u.run(leaveHash, lease) }},
	{"SETNX, EXPIRE; DEL", func(u *user) (bool, error) {
		v, err := u.do("SETNX", u.name, u.me)
		if err != nil || v.Int() != 1 {
			return false, err
		}
		_, err = u.do("EXPIRE", u.name, "30")
		return true, err
	}, func(u *user) error {
		_, err := u.do("DEL", u.name)
		return err
	}},
	{"SET NX PX; WATCH, GET, MULTI, DEL, EXEC", (*user).setNX, (*user).deleteWatched},
}

const lease = "30000" // ms

// A user takes one lock again and again, by one idiom.
type user struct {
	conn     *redistest.Conn
	idiom    *idiom
	name, me string
	shas     map[string]string // of the scripts

	granted, refused int // acquisitions, and times that another had the lock
}

func (i *idiom) newUser(addr, name, me string) (*user, error) {
	conn, err := redistest.Dial(addr)
	if err != nil {
		return nil, err
	}
	u := &user{conn: conn, idiom: i, name: name, me: me, shas: map[string]string{}}
	for _, text := range []string{releaseIfMine, takeOrExtend, enterHash, leaveHash} {
		v, err := conn.Try("SCRIPT", "LOAD", text)
		if err != nil || v.IsError() {
			return u, fmt.Errorf("SCRIPT LOAD: %v, %w", v, err)
		}
		u.shas[text] = v.Text
	}
	return u, nil
}

func (u *user) acquire() error {
	for {
		granted, err := u.idiom.take(u)
		if err != nil {
			return err
		}
		if granted {
			u.granted++
			return nil
		}
		u.refused++
		time.Sleep(time.Millisecond + rand.N(9*time.Millisecond))
	}
}

func (u *user) release() error { return u.idiom.free(u) }

func (u *user) Close() error { return u.conn.Close() }

// do sends commands together until none is answered NOQUORUM, and returns the last reply.
func (u *user) do(args ...string) (redistest.Value, error) { return u.together(args) }

func (u *user) together(commands ...[]string) (last redistest.Value, err error) {
	var raw strings.Builder
	for _, args := range commands {
		raw.WriteString(redistest.Command(args...))
	}
	for range maxUndecided {
		if _, err := io.WriteString(u.conn, raw.String()); err != nil {
			return last, err
		}
		again := false
		for range commands {
			if last, err = u.conn.Next(); err != nil {
				return last, err
			}
			if again = again || last.IsError() && strings.HasPrefix(last.Text, "NOQUORUM "); last.IsError() && !again {
				return last, errors.New(last.Text)
			}
		}
		if !again {
			return last, nil
		}
	}
	return last, fmt.Errorf("%s: NOQUORUM %d times in a row", commands[0][0], maxUndecided)
}

func (u *user) eval(text string, args ...string) (redistest.Value, error) {
	return u.do(append([]string{"EVALSHA", u.shas[text], "1", u.name}, args...)...)
}

// run runs a script of a release. What it answers does not matter: one that was not decided may have been done.
func (u *user) run(text string, args ...string) error {
	_, err := u.eval(text, append([]string{u.me}, args...)...)
	return err
}

func (u *user) setNX() (bool, error) {
	v, err := u.do("SET", u.name, u.me, "NX", "PX", lease)
	return err == nil && !v.Null, err
}

// deleteWatched compares in the client.
func (u *user) deleteWatched() error {
	for range maxUndecided {
		v, err := u.together([]string{"WATCH", u.name}, []string{"GET", u.name})
		if err != nil {
			return err
		}
		if v.Text != u.me {
			_, err = u.do("UNWATCH")
			return err
		}
		if v, err = u.together([]string{"MULTI"}, []string{"DEL", u.name}, []string{"EXEC"}); err != nil || !v.Null {
			return err
		}
	}
	return errors.New("EXEC is aborted again and again")
}

// measureIdioms measures each idiom on one Redis, forwarded to it by the proxy, and adopted.
func measureIdioms(p plan, page *report) error {
	g, err := openGround(5, "--adopt", "lock:*")
	if err != nil {
		return err
	}
	defer g.close()
	slice := p.slice / 2
	page.linef("\n## Existing code on adopted keys\n")
	page.linef("Five masters. Locks by the commands that libraries and home-made code send: on one Redis; forwarded to it by the proxy, as keys that no pattern matches; and adopted. In turns of %v, times in ms of a whole cycle: until the lock is granted, and given back. 16 contenders want one name; who is refused tries again after 1–10 ms at random.\n", slice)
	page.table("commands", "keys", "1 client: cycles/s", "p50", "p99", "16 contenders: cycles/s", "p50", "p99", "tries a grant")
	for i := range idioms {
		if err := idioms[i].measure(g, p.rounds, slice, page); err != nil {
			return fmt.Errorf("%s: %w", idioms[i].name, err)
		}
	}
	return nil
}

func (i *idiom) measure(g *ground, rounds int, slice time.Duration, page *report) error {
	places := []struct{ name, addr, prefix string }{
		{"direct", g.data.Addr(), "direct:"}, {"forwarded", g.proxy.Addr(), "forwarded:"}, {"adopted", g.proxy.Addr(), "lock:"},
	}
	contenders := []int{1, 16}
	users := make([][2][]cycler, len(places))
	samples := make([][2]sample, len(places))
	defer func() {
		for _, place := range users {
			closeAll(append(place[0], place[1]...))
		}
	}()
	for at, place := range places {
		for k, n := range contenders {
			for c := range n {
				u, err := i.newUser(place.addr, fmt.Sprint(place.prefix, n), fmt.Sprint("user-", c))
				if err != nil {
					return err
				}
				users[at][k] = append(users[at][k], u)
			}
		}
	}
	for round := range rounds + 1 {
		for at := range places {
			for k := range contenders {
				s, err := drive(users[at][k], slice)
				if err != nil {
					return fmt.Errorf("%s: %w", places[at].name, err)
				}
				if round > 0 { // the first one warms up
					samples[at][k].add(s)
				}
			}
		}
	}
	for at, place := range places {
		cells := []string{i.name, place.name}
		for k := range contenders {
			s := &samples[at][k]
			cells = append(cells, fmt.Sprintf("%.0f", s.rate()), inMillis(quantile(s.both, 0.5)), inMillis(quantile(s.both, 0.99)))
		}
		granted, refused := 0, 0
		for _, c := range users[at][1] {
			granted, refused = granted+c.(*user).granted, refused+c.(*user).refused
		}
		page.row(append(cells, ratio(float64(granted+refused), float64(granted)))...)
	}
	return nil
}
