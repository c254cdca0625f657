package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// scripts of lock code, in our words
const (
	releaseOwn = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`
	enterHash  = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
		redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2]) return nil end
		return redis.call('pttl', KEYS[1])`
	leaveHash = `if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end
		redis.call('del', KEYS[1]) return 1`
)

// observedIdioms are three ways to use a lock, and what LOCKCTL ADOPT says of each. @ is the connection's own part of the key.
var observedIdioms = []struct {
	commands, replies []string
	want              map[string]string
}{
	{
		[]string{"SET set:@ me NX PX 30000", "SET set:@ you NX PX 30000", "GET set:@", "EVAL own 1 set:@ you", "EVAL own 1 set:@ me", "SET other:@ x"},
		[]string{"+OK", "null", `$"me"`, ":0", ":1", "+OK"},
		map[string]string{"keys": "set:@", "idiom": "set-nx-px + cad script", "acquired": "1", "contended": "1", "held": "1", "ttl-max-ms": "30000", "would-be": "adopted", "hazards": ""},
	},
	{
		[]string{"SETNX old:@ 1", "EXPIRE old:@ 30", "SETNX old:@ 1", "DEL old:@", "DEL old:@"},
		[]string{":1", ":1", ":0", ":1", ":0"},
		map[string]string{"keys": "old:@", "idiom": "setnx, then expire + del", "acquired": "1", "contended": "1", "held": "1", "would-be": "adopted", "hazards": "del without compare"},
	},
	{
		[]string{"EVAL enter 1 hash:@ me 30000", "EVAL enter 1 hash:@ me 30000", "EVAL leave 1 hash:@ me", "EVAL leave 1 hash:@ me", "EVAL leave 1 hash:@ me"},
		[]string{"null", "null", ":0", ":1", "null"},
		map[string]string{"keys": "hash:@", "idiom": "hash", "contended": "0", "held": "1", "would-be": "adopted", "hazards": ""},
	},
}

// TestAdopt_Observe: traffic is reported on as it is, however it travels, and gets the upstream's own replies.
func TestAdopt_Observe(t *testing.T) {
	t.Parallel()
	one, group := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	all := startServing(t, one.URL(), "--adopt-report")
	clustered := startServing(t, group.URL(), "--adopt-report")
	some := startServing(t, one.URL(), "--adopt", "set:* mode=observe", "--adopt", "old:* mode=observe", "--adopt", "hash:* mode=observe")
	for _, tt := range []struct {
		name   string
		proxy  *redistest.Proxy
		before string
	}{
		{"shared", all, "PING"}, {"pinned", all, "WATCH x"}, {"RESP-three", all, "HELLO 3"}, {"Cluster", clustered, "PING"}, {"Cluster-pinned", clustered, "WATCH x"},
		{"unshared", startServing(t, one.URL(), "--adopt-report", "--upstream-conns", "0"), "PING"}, {"pattern", some, "PING"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := redistest.Open(t, tt.proxy.Addr())
			c.Do(t, quoted(tt.before)...)
			for _, idiom := range observedIdioms {
				for i, command := range idiom.commands {
					args := quoted(strings.ReplaceAll(command, "@", tt.name))
					for n, a := range args {
						if text := map[string]string{"own": releaseOwn, "enter": enterHash, "leave": leaveHash}[a]; text != "" {
							args[n] = text
						}
					}
					want := idiom.replies[i]
					if want == "null" {
						want = map[bool]string{true: "_", false: "$-1"}[tt.before == "HELLO 3"]
					}
					if got := c.Do(t, args...); got.String() != want {
						t.Errorf("%s: %v, want %s", command, got, want)
					}
				}
			}
			for _, idiom := range observedIdioms {
				key := strings.ReplaceAll(idiom.want["keys"], "@", tt.name)
				got := observedRow(t, tt.proxy, key)
				for field, want := range idiom.want {
					if want = strings.ReplaceAll(want, "@", tt.name); got[field] != want {
						t.Errorf("%s: %s is %q, want %q", key, field, got[field], want)
					}
				}
			}
		})
	}
	t.Run("only locks", func(t *testing.T) {
		if v := redistest.Open(t, all.Addr()).Do(t, "LOCKCTL", "ADOPT", "MATCH", "other:*"); len(fieldsOf(v)["rows"].Elems) != 0 {
			t.Errorf("%v", v)
		}
	})
	t.Run("unseen", func(t *testing.T) {
		c := redistest.Open3(t, all.Addr())
		for _, command := range []string{"SETNX hidden me", "MULTI", "DEL hidden", "EXEC", "SUBSCRIBE news", "GET hidden"} {
			if v := c.Do(t, quoted(command)...); v.IsError() {
				t.Fatal(command, v)
			}
		}
		if got := observedRow(t, all, "hidden"); !strings.Contains(got["hazards"], "inside MULTI") {
			t.Error(got["hazards"])
		}
		v := fieldsOf(redistest.Open3(t, all.Addr()).Do(t, "LOCKCTL", "ADOPT"))
		if v["unseen-in-multi"].Int() != 1 || v["unseen-in-passthrough"].Int() != 1 {
			t.Errorf("%v in MULTI, %v in passthrough", v["unseen-in-multi"], v["unseen-in-passthrough"])
		}
	})
}

// fieldsOf are the fields of a map, also of a flat one.
func fieldsOf(v redistest.Value) map[string]redistest.Value {
	all := map[string]redistest.Value{}
	for i := 0; i+1 < len(v.Elems); i += 2 {
		all[v.Elems[i].Text] = v.Elems[i+1]
	}
	return all
}

// observedRow is what LOCKCTL ADOPT says of one shape of keys, its hazards by name.
func observedRow(t *testing.T, p *redistest.Proxy, keys string) map[string]string {
	t.Helper()
	v := redistest.Open(t, p.Addr()).Do(t, "LOCKCTL", "ADOPT", "MATCH", keys)
	rows := fieldsOf(v)["rows"].Elems
	if len(rows) != 1 {
		t.Fatalf("%s: %d rows: %v", keys, len(rows), v)
	}
	all := map[string]string{}
	for name, field := range fieldsOf(rows[0]) {
		all[name] = field.Text
		if field.Kind == ':' {
			all[name] = fmt.Sprint(field.Int())
		}
	}
	var names []string
	for _, h := range fieldsOf(rows[0])["hazards"].Elems {
		names = append(names, fieldsOf(h)["hazard"].Text)
	}
	all["hazards"] = strings.Join(names, ", ")
	return all
}

// TestAdopt_ObserveOnScriptLoad: the text of a script may come by SCRIPT LOAD alone, as redis-py sends it.
func TestAdopt_ObserveOnScriptLoad(t *testing.T) {
	t.Parallel()
	p := startAdopting(t, redistest.Start(t))
	c := redistest.Open(t, p.Addr())
	sha := c.Do(t, "SCRIPT", "LOAD", releaseOwn).Text
	wantReplies(t, c, [][2]string{{"SET lock:a me NX PX 30000", "+OK"}, {"EVALSHA " + sha + " 1 lock:a me", ":1"}}...)
	got := observedRow(t, p, "lock:*")
	for field, want := range map[string]string{"idiom": "set-nx-px + cad script", "script": "", "held": "1", "would-be": "adopted"} {
		if got[field] != want {
			t.Errorf("%s is %q, want %q", field, got[field], want)
		}
	}
}

// TestAdopt_ObserveOn: locks of adopted keys have rows as well, with what was really refused.
func TestAdopt_ObserveOn(t *testing.T) {
	t.Parallel()
	p := startAdopting(t, redistest.Start(t))
	c := redistest.Open(t, p.Addr())
	wantReplies(t, c, [][2]string{
		{"SET lock:a me NX PX 30000", "+OK"}, {"SET lock:a you NX PX 30000", "$-1"}, {"DEL lock:a", ":1"}, {"GET other", "$-1"},
		{"INCR lock:a", `-ADOPTREFUSED INCR lock:a: INCR of a lock: a counter, or a semaphore, whose permits have neither owner nor end; adopted by "lock:*"`},
	}...)
	got := observedRow(t, p, "lock:*")
	for field, want := range map[string]string{
		"mode": "on", "pattern": "lock:*", "acquired": "1", "contended": "1", "held": "1", "calls-adopted": "3", "calls-refused": "1", "would-be": "partly refused", "why": "INCR of a lock: a counter, or a semaphore, whose permits have neither owner nor end", "hazards": "del without compare",
	} {
		if got[field] != want {
			t.Errorf("%s is %q, want %q", field, got[field], want)
		}
	}
	plain := startServing(t, redistest.Start(t).URL())
	if v := redistest.Open(t, plain.Addr()).Do(t, "LOCKCTL", "ADOPT"); !strings.HasPrefix(v.Text, "ERR no keys are looked at here") {
		t.Errorf("without a setting: %v", v)
	}
}
