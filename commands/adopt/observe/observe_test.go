package observe

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

const (
	compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
	compareAndExpire = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`
	acquireOrRest    = `if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return nil end return redis.call('PTTL', KEYS[1])`
	acquireOrExtend  = `local v = redis.call('GET', KEYS[1]) if not v then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1 end if v == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1 end return 0`
	alwaysOK         = `if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return redis.status_reply('OK')`
	counting         = `redis.call('INCR', 'n') return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`
	inArguments      = `return redis.call('DEL', ARGV[1])`
	enterFenced      = `if redis.call('HLEN', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {redis.call('PTTL', KEYS[1]), -1} end redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return {-1, redis.call('INCR', KEYS[2])}`
	sortedTake       = `local t = redis.call('TIME') local ends = t[1] * 1000 + ARGV[2] if redis.call('ZCARD', KEYS[1]) > 0 and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return false end redis.call('ZADD', KEYS[1], ends, ARGV[1], ends, '__write__') redis.call('PEXPIREAT', KEYS[1], ends) return true`
	sortedRelease    = `if redis.call('TYPE', KEYS[1]).ok == 'string' or not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return false end redis.call('ZREM', KEYS[1], ARGV[1], '__write__') return true`
	sortedRead       = `local t = redis.call('TIME') local ends = t[1] * 1000 + ARGV[2] redis.call('ZADD', KEYS[1], ends, ARGV[1]) redis.call('PEXPIREAT', KEYS[1], ends) return true`
	limiter          = `local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end return n`
)

var texts = map[string]string{"cad": compareAndDelete, "cae": compareAndExpire, "take": acquireOrRest, "extend": acquireOrExtend, "ok": alwaysOK, "count": counting, "hidden": inArguments, "limit": limiter, "fenced": enterFenced, "sorted": sortedTake, "unsorted": sortedRelease, "sortedread": sortedRead}

// A world has an Observer, a clock and clients.
type world struct {
	t       *testing.T
	o       *Observer
	now     time.Time
	clients map[string]*Client
}

func newWorld(t *testing.T, opt Options) *world {
	t.Helper()
	w := &world{t: t, now: time.Unix(1e9, 0), clients: map[string]*Client{}}
	opt.Now = func() time.Time { return w.now }
	opt.MinTTL, opt.MaxTTL = 100*time.Millisecond, time.Minute
	var err error
	if w.o, err = New(opt); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) client(name string) *Client {
	if w.clients[name] == nil {
		w.clients[name] = &Client{ID: int64(len(w.clients) + 1)}
	}
	return w.clients[name]
}

// do runs lines "CLIENT: COMMAND … > reply". "wait D", "CLIENT closes", "in MULTI" and the like are steps of their own.
func (w *world) do(lines string) {
	w.t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		line = strings.TrimSpace(line)
		if d, ok := strings.CutPrefix(line, "wait "); ok {
			for_, err := time.ParseDuration(d)
			if err != nil {
				w.t.Fatal(err)
			}
			w.now = w.now.Add(for_)
			continue
		}
		if who, ok := strings.CutSuffix(line, " closes"); ok {
			w.client(who).Close()
			continue
		}
		who, rest, ok := strings.Cut(line, ": ")
		if !ok {
			w.t.Fatalf("no step: %q", line)
		}
		where := Plain
		for word, is := range map[string]Where{"MULTI ": InMulti, "PASS ": Uncounted, "ON ": Decided} {
			if cut, has := strings.CutPrefix(rest, word); has {
				rest, where = cut, is
			}
		}
		command, reply, _ := strings.Cut(rest, " > ")
		var args [][]byte
		for _, a := range strings.Fields(command) {
			if text := texts[a]; text != "" {
				a = text
			}
			args = append(args, []byte(a))
		}
		if tap := w.o.Command(w.client(who), where, 0, 2, args); tap != nil {
			for _, a := range args {
				clear(a) // it is the reader's buffer
			}
			if reply != "" {
				tap.Reply([]byte(strings.ReplaceAll(reply, `\r\n`, "\r\n") + "\r\n"))
			}
		}
	}
}

// row is the one row, as a line.
func (w *world) row() (Row, string) {
	w.t.Helper()
	r := w.o.Report()
	if len(r.Rows) != 1 {
		w.t.Fatalf("%d rows: %+v", len(r.Rows), r.Rows)
	}
	var hazards []string
	for _, h := range r.Rows[0].Hazards {
		hazards = append(hazards, fmt.Sprintf("%s %d %s", h.Name, h.Count, h.Key))
		if h.Means == "" {
			w.t.Errorf("%s is not explained", h.Name)
		}
	}
	return r.Rows[0], strings.Join(hazards, "; ")
}

// TestHazards: each is seen, with its count and a key, and nothing else is.
func TestHazards(t *testing.T) {
	for _, tt := range []struct{ name, steps, want string }{
		{"none", `a: SET lock:1 v1 NX PX 5000 > +OK
			b: SET lock:1 v2 NX PX 5000 > $-1
			a: EVAL cad 1 lock:1 v1 > :1
			b: SET lock:1 v2 NX PX 5000 > +OK
			b: EVAL cae 1 lock:1 v2 9000 > :1
			b: EVAL cad 1 lock:1 v2 > :1`, ""},
		{"no expiry", "a: SET lock:1 v NX > +OK\nwait 2s", "no expiry 1 lock:1"},
		{"no expiry yet", "a: SET lock:1 v NX > +OK\nwait 900ms", ""},
		{"setnx, then expire", "a: SETNX lock:1 v > :1\nwait 500ms\na: EXPIRE lock:1 30 > :1\nwait 5s", ""},
		{"setnx alone", "a: SETNX lock:1 v > :1\nwait 2s\na: EXPIRE lock:1 30 > :1", "no expiry 1 lock:1; setnx without expire 1 lock:1"},
		{"del", "a: SET lock:1 v NX PX 5000 > +OK\na: DEL lock:1 > :1", "del without compare 1 lock:1"},
		{"del of nothing", "a: SET lock:1 v NX PX 5000 > $-1\na: DEL lock:1 > :0", ""},
		{"expire", "a: SET lock:1 v NX PX 5000 > +OK\na: PEXPIRE lock:1 6000 > :1", "expire without compare 1 lock:1"},
		{"constant value", "a: SET lock:1 v NX PX 5000 > +OK\na: EVAL cad 1 lock:1 v > :1\nb: SET lock:2 v NX PX 5000 > +OK", "constant value 1 lock:2"},
		{"value of a process", "a: SET lock:1 v NX PX 5000 > +OK\na: SET lock:2 v NX PX 5000 > +OK\na: SET lock:3 v NX PX 5000 > +OK", "value of a process 1 lock:3"},
		{"held too long, compared", "a: SET lock:1 v NX PX 1000 > +OK\nwait 3s\na: EVAL cad 1 lock:1 v > :0\na: EVAL cad 1 lock:1 v > :0", "held longer than its ttl 1 lock:1"},
		{"held too long, another has it", "a: SET lock:1 v NX PX 1000 > +OK\nwait 3s\nb: SET lock:1 w NX PX 1000 > +OK\na: EVAL cae 1 lock:1 v 1000 > :0", "held longer than its ttl 1 lock:1"},
		{"held too long, deletes another's", "a: SET lock:1 v NX PX 1000 > +OK\nwait 3s\nb: SET lock:1 w NX PX 1000 > +OK\na: DEL lock:1 > :1",
			"del without compare 1 lock:1; held longer than its ttl 1 lock:1; released by another connection 1 lock:1"},
		{"held again in time", "a: SET lock:1 v NX PX 1000 > +OK\nwait 3s\na: SET lock:1 w NX PX 1000 > +OK\na: DEL lock:1 > :1", "del without compare 1 lock:1"},
		{"ttl over max-ttl", "a: SET lock:1 v NX EX 600 > +OK", "ttl over max-ttl 1 lock:1"},
		{"ttl under min-ttl", "a: SET lock:1 v NX PX 5 > +OK", "ttl under min-ttl 1 lock:1"},
		{"another connection", "a: SET lock:1 v NX PX 5000 > +OK\nb: EVAL cad 1 lock:1 v > :1", "released by another connection 1 lock:1"},
		{"asked again", "a: SET lock:1 v NX PX 5000 > +OK\na closes\nb: SET lock:1 v NX PX 5000 > $-1", "same value asked again after its connection closed 1 lock:1"},
		{"asked again while it is there", "a: SET lock:1 v NX PX 5000 > +OK\nb: SET lock:1 v NX PX 5000 > $-1", ""},
		{"keyspace events, then the lock", "b: PSUBSCRIBE __keyspace@0__:lock:*\na: SET lock:1 v NX PX 5000 > +OK", "waits by keyspace events 1 lock:1"},
		{"the lock, then keyspace events", "a: SET lock:1 v NX PX 5000 > +OK\nb: SUBSCRIBE __keyspace@0__:lock:1", "waits by keyspace events 1 lock:1"},
		{"keyspace events of others", "b: PSUBSCRIBE __keyspace@0__:x* __keyspace@1__:* news\na: SET lock:1 v NX PX 5000 > +OK", ""},
		{"keys not declared", "a: SET lock:1 v NX PX 5000 > +OK\na: EVAL hidden 0 lock:1 > :1", "del without compare 1 lock:1; keys not declared 1 lock:1"},
		{"script does more", "a: SET lock:1 v NX PX 5000 > +OK\na: EVAL count 1 lock:1 w 9000 > $-1", "script does more 1 lock:1"},
		{"inside MULTI", "a: SET lock:1 v NX PX 5000 > +OK\na: MULTI DEL lock:1", "inside MULTI 1 lock:1"},
		{"taken inside MULTI", "a: MULTI SET lock:1 v NX PX 5000", "inside MULTI 1 lock:1"},
		{"watched", "a: SET lock:1 v NX PX 5000 > +OK\na: WATCH x lock:1 > +OK", "inside MULTI 1 lock:1"},
		{"tracked reads", "a: SET lock:1 v NX PX 5000 > +OK\nb: CLIENT TRACKING ON\nb: GET lock:1 > $1", "tracked reads 1 lock:1"},
		{"tracked by prefix", "a: SET lock:1 v NX PX 5000 > +OK\nb: CLIENT TRACKING ON BCAST PREFIX x PREFIX lock:\nb: GET lock:1 > $1", "tracked reads 1 lock:1"},
		{"other prefixes", "a: SET lock:1 v NX PX 5000 > +OK\nb: CLIENT TRACKING ON BCAST PREFIX x\nb: GET lock:1 > $1", ""},
		{"tracked if asked", "a: SET lock:1 v NX PX 5000 > +OK\nb: CLIENT TRACKING ON OPTIN\nb: GET lock:1 > $1\nb: CLIENT CACHING YES\nb: GET lock:1 > $1\nb: GET lock:1 > $1", "tracked reads 1 lock:1"},
		{"tracked no more", "a: SET lock:1 v NX PX 5000 > +OK\nb: CLIENT TRACKING ON\nb: RESET\nb: GET lock:1 > $1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{All: true})
			w.do(tt.steps)
			if _, got := w.row(); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestRow: idiom, looks, times and what would become of the calls.
func TestRow(t *testing.T) {
	const hex = "0123456789abcdef0123456789abcdef"
	for _, tt := range []struct{ name, steps, idiom, looks, would, why, numbers string }{
		{"set nx px, and a script", "a: CLIENT SETINFO LIB-NAME redis-py\na: SET lock:1 " + hex + " PX 5000 NX > +OK\nb: SET lock:1 x PX 5000 NX > $-1\nwait 2s\na: EVAL cad 1 lock:1 " + hex + " > :1",
			"set-nx-px + cad script", "redis-py", "adopted", "", "1 taken, 1 contended, held 1 for 2000, ttl 5000-5000, 2 clients"},
		{"setnx, expire, del", "a: SETNX lock:1 1 > :1\na: EXPIRE lock:1 30 > :1\nwait 1s\na: GET lock:1 > $1\na: DEL lock:1 > :1",
			"setnx, then expire + get + del", "", "adopted", "", "1 taken, 0 contended, held 1 for 1000, ttl 30000-30000, 1 clients"},
		{"ttl over max-ttl", "a: SET lock:1 ADDED:x NX PX 600000 > +OK\nwait 3s\na: SET lock:1 ADDED:x XX PX 100 > +OK",
			"set-nx-px + set-xx", "ShedLock", "partly refused", "its ttl of 10m0s is over max-ttl, 1m0s", "1 taken, 0 contended, held 0 for 0, ttl 100-600000, 1 clients"},
		{"null means taken", "a: EVAL take 1 lock:1 v 5000 > $-1\nb: EVAL take 1 lock:1 w 5000 > :4800",
			"acquire script", "", "adopted", "", "1 taken, 1 contended, held 0 for 0, ttl 5000-5000, 2 clients"},
		{"acquire or extend", "a: EVAL extend 1 lock:1 v 5000 > :1\na: EVAL extend 1 lock:1 v 6000 > :1\nb: EVAL extend 1 lock:1 w 6000 > :0",
			"acquire-or-extend script", "", "adopted", "", "1 taken, 1 contended, held 0 for 0, ttl 5000-6000, 2 clients"},
		{"a text that comes by later", "a: SET lock:1 v NX PX 5000 > +OK\na: EVALSHA 0123 1 lock:1 v > -NOSCRIPT\na: EVAL cad 1 lock:1 v > :1",
			"set-nx-px + cad script", "", "adopted", "", "1 taken, 0 contended, held 1 for 0, ttl 5000-5000, 1 clients"},
		{"always the same reply", "a: SET lock:1 v NX PX 5000 > +OK\nwait 1s\nb: EVAL ok 1 lock:1 w > +OK\na: EVAL ok 1 lock:1 v > +OK",
			"set-nx-px + cad script", "", "adopted", "", "1 taken, 0 contended, held 1 for 1000, ttl 5000-5000, 2 clients"},
		{"error replies do nothing", "a: SET lock:1 v NX PX 5000 > -WRONGTYPE\na: SET lock:1 v NX PX 5000 > -MOVED 1 x",
			"set-nx-px", "", "adopted", "", "0 taken, 0 contended, held 0 for 0, ttl 0-0, 1 clients"},
		{"what no lock can", "a: SET lock:1 v NX PX 5000 > +OK\na: INCR lock:1 > -ERR",
			"set-nx-px + others", "", "partly refused", "INCR of a lock: a counter, or a semaphore, whose permits have neither owner nor end", "1 taken, 0 contended, held 0 for 0, ttl 5000-5000, 1 clients"},
		{"of several keys", "a: SET lock:1 v NX PX 5000 > +OK\na: DEL x lock:1 > :1",
			"set-nx-px + others", "", "partly refused", "it has other keys as well", "1 taken, 0 contended, held 0 for 0, ttl 5000-5000, 1 clients"},
		{"a channel of that name", "a: SET lock:1 v NX PX 5000 > +OK\na: PUBLISH lock:1 x > :0",
			"set-nx-px", "", "adopted", "", "1 taken, 0 contended, held 0 for 0, ttl 5000-5000, 1 clients"},
		{"adopted", "a: ON SET lock:1 v NX PX 5000 > +OK\nwait 1s\na: ON DEL lock:1 > -ADOPTREFUSED DEL lock:1: it has no end: no; adopted by \"lock:*\"",
			"set-nx-px + del", "", "partly refused", "it has no end: no", "1 taken, 0 contended, held 0 for 0, ttl 5000-5000, 1 clients"},
		{"too few nodes", "a: ON SET lock:1 v NX PX 5000 > -NOQUORUM 1 of 3", "set-nx-px", "", "", "", "0 taken, 0 contended, held 0 for 0, ttl 0-0, 1 clients"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{All: true})
			w.do(tt.steps)
			r, _ := w.row()
			numbers := fmt.Sprintf("%d taken, %d contended, held %d for %d, ttl %d-%d, %d clients", r.Acquired, r.Contended, r.Held.Count, r.Held.Most, r.TTL.Least, r.TTL.Most, r.Clients)
			if r.Idiom != tt.idiom || r.Looks != tt.looks || r.Would != tt.would || r.Why != tt.why || numbers != tt.numbers {
				t.Errorf("%q, %q, %q, %q, %q", r.Idiom, r.Looks, r.Would, r.Why, numbers)
			}
			if r.Keys != "lock:*" || r.Example != "lock:1" {
				t.Errorf("%s, %s", r.Keys, r.Example)
			}
		})
	}
}

// TestObserver_AllTrafficOnlyLocksMakeRows: of all traffic only what takes a lock makes a row.
// TestRow_ComparesInCommand: commands that compare the value are rows of their own, and adopted if the upstream has them.
func TestRow_ComparesInCommand(t *testing.T) {
	const take = "a: SET lock:1 v NX PX 5000 > +OK\nwait 1s\n"
	for _, tt := range []struct {
		upstream                  idiom.Dialect
		steps, idiom, would, held string
	}{
		{idiom.Dialect{Version: 80400}, "a: DELEX lock:1 IFEQ v > :1", "set-nx-px + del-ifeq", "adopted", "1 for 1000"},
		{idiom.Dialect{Version: 80400}, "a: SET lock:1 v IFEQ v PX 9000 > +OK\nwait 1s\na: DELEX lock:1 IFEQ w > :0\na: DELEX lock:1 IFEQ v > :1", "set-nx-px + del-ifeq + set-ifeq", "adopted", "1 for 2000"},
		{idiom.Dialect{Version: 90000, Valkey: true}, "a: DELIFEQ lock:1 v > :1", "set-nx-px + del-ifeq", "adopted", "1 for 1000"},
		{idiom.Dialect{}, "a: SET lock:1 v IFEQ v PX 9000 > +OK", "set-nx-px + set-ifeq", "partly refused", "0 for 0"},
	} {
		w := newWorld(t, Options{All: true, Dialect: func() idiom.Dialect { return tt.upstream }})
		w.do(take + tt.steps)
		r, hazards := w.row()
		if held := fmt.Sprintf("%d for %d", r.Held.Count, r.Held.Most); r.Idiom != tt.idiom || r.Would != tt.would || held != tt.held || hazards != "" {
			t.Errorf("%s\n%q, %q (%s), held %s, hazards %q", tt.steps, r.Idiom, r.Would, r.Why, held, hazards)
		}
	}
}

// TestSorted: locks in sorted sets are named, would be adopted, and are seen to be taken and given back; read locks would
// be refused.
func TestSorted(t *testing.T) {
	token := strings.Repeat("a", 43) + "="
	w := newWorld(t, Options{All: true})
	w.do("a: EVAL sorted 1 lock:a " + token + " 5000 > :1\nb: EVAL sorted 1 lock:a you 5000 > $-1\nwait 2s\na: EVAL unsorted 1 lock:a " + token + " > :1\na: EVAL sorted 1 lock:a " + token + " 5000 > :1")
	r, _ := w.row()
	if r.Idiom != "sorted set" || r.Looks != "Symfony" || r.Would != "adopted" || r.Acquired != 2 || r.Contended != 1 || r.Held.Count != 1 {
		t.Errorf("%+v", r)
	}
	w.do("a: EVAL sortedread 1 lock:a you 5000 > :1")
	if r, _ := w.row(); r.Would != "partly refused" || !strings.Contains(r.Why, "read lock") {
		t.Errorf("%+v", r)
	}
}

func TestObserver_AllTrafficOnlyLocksMakeRows(t *testing.T) {
	w := newWorld(t, Options{All: true})
	w.do(`a: GET x > $-1
		a: SET x 1 > +OK
		a: SET x 1 EX 5 > +OK
		a: DEL x > :1
		a: EVAL limit 1 n 5 > :1
		a: EVAL hidden 1 x x > :1
		a: SCRIPT LOAD cad
		a: PING
		a: SETNX`)
	if r := w.o.Report(); len(r.Rows) != 0 || r.Keys != 0 {
		t.Errorf("%+v", r)
	}
}

// TestUnknownScript has a row until its text comes by.
func TestUnknownScript(t *testing.T) {
	w := newWorld(t, Options{All: true})
	sha := idiom.ParseScript(compareAndDelete).SHA
	w.do("a: EVALSHA " + sha + " 1 lock:1 v > :1")
	r, _ := w.row()
	if r.Script != sha || r.Would != "" || !strings.Contains(r.Idiom, "unknown text") || r.Keys != "lock:*" {
		t.Errorf("%+v", r)
	}
	w.do("b: SCRIPT LOAD cad\na: EVALSHA " + strings.ToUpper(sha) + " 1 lock:1 v > :1")
	if r, _ := w.row(); r.Script != "" || r.Idiom != "cad script" || r.Would != "adopted" {
		t.Errorf("%+v", r)
	}
}

func patterns(t *testing.T, mode Mode) []Pattern {
	t.Helper()
	return []Pattern{
		{Glob: "lock:*", Literal: "lock:", Match: func(_ int, key string) bool { return strings.HasPrefix(key, "lock:") }, Mode: mode, As: idiom.Strict, NoExpiry: time.Second},
	}
}

// TestPattern: with mode=observe every command on its keys counts, and no other, by the pattern's words.
func TestPattern(t *testing.T) {
	w := newWorld(t, Options{Patterns: patterns(t, Observed)})
	w.do(`a: GET lock:1 > $-1
		a: SETNX lock:1 v > :1
		a: SET other:1 v NX PX 10 > +OK
		a: GET other:1 > $1
		a: EVAL cad 1 other:1 v > :1
		a: DEL lock:1 > :1`)
	r, _ := w.row()
	if r.Pattern != "lock:*" || r.Mode != "observe" || r.Would != "partly refused" || r.Why != "FORCE-RELEASE does not compare the value" || r.Allowed != 2 {
		t.Errorf("%+v", r)
	}
	if !w.o.Watches() {
		t.Error("it does not watch")
	}
	on := newWorld(t, Options{Patterns: patterns(t, Adopted)})
	if on.o.Watches() {
		t.Error("adopted keys are all that there is, and it watches")
	}
}

// TestPattern_FenceKey: a script that increments the fence is what it would be with the pattern's word.
func TestPattern_FenceKey(t *testing.T) {
	for _, named := range []bool{false, true} {
		p := patterns(t, Observed)
		if named {
			p[0].FenceOf = func(_ int, key string) string { return map[string]string{"fence:lock:1": "lock:1"}[key] }
		}
		w := newWorld(t, Options{Patterns: p})
		w.do(`a: EVAL fenced 2 lock:1 fence:lock:1 me 5000 > *2\r\n:-1\r\n:8
			b: EVAL fenced 2 lock:1 fence:lock:1 you 5000 > *2\r\n:5000\r\n:-1`)
		if r, _ := w.row(); named && (r.Would != "adopted" || r.Acquired != 1 || r.Contended != 1) || !named && r.Why != "INCR beside the lock" {
			t.Errorf("%v: %+v", named, r)
		}
	}
}

// TestPercentiles are at most a fifth too large, and the largest is exact.
func TestPercentiles(t *testing.T) {
	w := newWorld(t, Options{All: true})
	for i := range 100 {
		w.do(fmt.Sprintf("a: SET lock:1 v%d NX PX 50000 > +OK\nwait %dms\na: EVAL cad 1 lock:1 v%d > :1", i, 10*(i+1), i))
	}
	r, _ := w.row()
	if h := r.Held; h.Count != 100 || h.P50 < 500 || h.P50 > 600 || h.P99 < 990 || h.Most != 1000 {
		t.Errorf("%+v", h)
	}
}

// TestRate is over the last minute.
func TestRate(t *testing.T) {
	w := newWorld(t, Options{All: true})
	for range 120 {
		w.do("a: SETNX lock:1 v > :1\nwait 500ms")
	}
	if r, _ := w.row(); r.Rate < 1.8 || r.Rate > 2.2 {
		t.Errorf("%.2f a second", r.Rate)
	}
	w.do("wait 70s")
	if r, _ := w.row(); r.Rate != 0 {
		t.Errorf("%.2f a second, later", r.Rate)
	}
}

// TestObserver_CountsUnseenReplies: commands whose replies cannot be seen are counted.
func TestObserver_CountsUnseenReplies(t *testing.T) {
	w := newWorld(t, Options{All: true})
	w.do("a: SET lock:1 v NX PX 5000 > +OK\na: PASS GET lock:1\na: MULTI DEL lock:1\nb: PSUBSCRIBE __keyevent@0__:del")
	if r := w.o.Report(); r.Unseen != (Unseen{InMulti: 1, Uncounted: 1}) || r.KeyEvents != 1 {
		t.Errorf("%+v", r)
	}
}

// TestObserver_MemoryIsBounded: no traffic makes the Observer keep more than its bounds.
func TestObserver_MemoryIsBounded(t *testing.T) {
	w := newWorld(t, Options{All: true})
	c := w.client("a")
	name := func(i int) []byte { // as many shapes
		b := []byte("lock:")
		for ; i > 0; i /= 20 {
			b = append(b, byte('g'+i%20))
		}
		return b
	}
	for i := range maxKeys + 200 {
		if tap := w.o.Command(c, Plain, 0, 2, [][]byte{[]byte("SETNX"), name(i), fmt.Append(nil, i)}); tap != nil {
			tap.Reply([]byte(":1\r\n"))
		}
		if i%50 == 0 {
			w.o.Command(c, Plain, 0, 2, [][]byte{[]byte("EVALSHA"), fmt.Appendf(nil, "%040d", i), []byte("1"), name(i)})
		}
	}
	r := w.o.Report()
	if r.Keys != maxKeys || len(r.Rows) != maxRows+maxUnknown || !r.Full {
		t.Errorf("%d keys, %d rows, %t", r.Keys, len(r.Rows), r.Full)
	}
	following := 0
	for i := range w.o.followed {
		following += int(w.o.followed[i].Load())
	}
	if following != maxKeys {
		t.Errorf("%d are counted as followed", following)
	}
}

// TestConcurrent is for the race detector: sessions and upstream connections work at once.
func TestConcurrent(t *testing.T) {
	w := newWorld(t, Options{All: true})
	var wg sync.WaitGroup
	for n := range 4 {
		c := &Client{ID: int64(n)}
		wg.Go(func() {
			for i := range 200 {
				set := w.o.Command(c, Plain, 0, 2, [][]byte{[]byte("SET"), fmt.Appendf(nil, "lock:%d", i%7), []byte("v"), []byte("NX"), []byte("PX"), []byte("900")})
				set.Reply([]byte("+OK\r\n"))
				if cad := w.o.Command(c, Plain, 0, 2, [][]byte{[]byte("EVAL"), []byte(compareAndDelete), []byte("1"), fmt.Appendf(nil, "lock:%d", i%7), []byte("v")}); cad != nil {
					cad.Reply([]byte(":1\r\n"))
				}
				w.o.Report()
			}
			c.Close()
		})
	}
	wg.Wait()
	if r, _ := w.row(); r.Acquired != 800 {
		t.Errorf("%d acquisitions", r.Acquired)
	}
}

func TestShape(t *testing.T) {
	for key, want := range map[string]string{
		"lock:order:4711": "lock:order:*", "lock:{7}:a": "lock:{*}:a", "order12x": "order*x", "a:12:34.5": "a:*:*.*",
		"lock:5f2b0c9de1a4": "lock:*", "lock:deadbeef:x": "lock:*:x", "lock:facade": "lock:facade", "lock:xdeadbeef1": "lock:xdeadbeef*",
		"u:123e4567-e89b-12d3-a456-426614174000:l": "u:*:l", "t:mB3xq9ZkL0pRt7Wv8YcD2g==": "t:*", "invoice_processing_lock": "invoice_processing_lock",
		"Order-Processing-2024-Backup": "Order-Processing-*-Backup", "a*b[c]?": `a\*b\[c\]\?`, "": "", "job 1": "job *",
	} {
		if got := shapeOf(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if got := shapeOf(strings.Repeat("x", 9999)); len(got) > longestShape+1 {
		t.Errorf("%d bytes", len(got))
	}
}

// TestMatching takes rows by their shape, or an example.
func TestMatching(t *testing.T) {
	w := newWorld(t, Options{All: true})
	w.do("a: SETNX lock:1 v > :1\na: SETNX job:1 v > :1")
	for glob, want := range map[string]int{"lock:*": 1, "job:1": 1, "*": 2, "x": 0} {
		if got := w.o.Report().Matching(glob); len(got.Rows) != want {
			t.Errorf("%s: %d rows", glob, len(got.Rows))
		}
	}
	if r := w.o.Report(); !slices.IsSortedFunc(r.Rows, func(a, b Row) int { return strings.Compare(a.Keys, b.Keys) }) {
		t.Errorf("not in order: %+v", r.Rows)
	}
}

// TestCommand_OtherKeysAllocateNothing: a command on a key that is no lock allocates nothing.
func TestCommand_OtherKeysAllocateNothing(t *testing.T) {
	w := newWorld(t, Options{All: true, Patterns: patterns(t, Observed)})
	w.do("a: SETNX other:1 v > :1")
	c := w.client("b")
	for _, command := range []string{"GET x", "SET x 1 EX 10", "DEL x y z", "HSET h f v", "PING", "EXPIRE x 10", "PUBLISH c m"} {
		var args [][]byte
		for _, a := range strings.Fields(command) {
			args = append(args, []byte(a))
		}
		if n := testing.AllocsPerRun(100, func() { w.o.Command(c, Plain, 0, 2, args) }); n != 0 {
			t.Errorf("%s: %v allocations", command, n)
		}
	}
}

func BenchmarkCommand(b *testing.B) {
	o, err := New(Options{All: true, MinTTL: time.Millisecond, MaxTTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	c := &Client{ID: 1}
	for i := range maxKeys {
		o.Command(c, Plain, 0, 2, [][]byte{[]byte("SETNX"), fmt.Appendf(nil, "lock:%d", i), []byte("v")})
	}
	for _, command := range []string{"GET user:1234", "SET user:1234 value EX 10", "DEL a b c d", "SET lock:1 v NX PX 500", "GET lock:1", "EVAL cad 1 lock:1 v", "EVAL limit 1 n 5"} {
		var args [][]byte
		for _, a := range strings.Fields(command) {
			if texts[a] != "" {
				a = texts[a]
			}
			args = append(args, []byte(a))
		}
		b.Run(strings.ReplaceAll(command, " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if t := o.Command(c, Plain, 0, 2, args); t != nil {
					t.Reply([]byte(":1\r\n"))
				}
			}
		})
	}
}
