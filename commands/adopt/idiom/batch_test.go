package idiom

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// batchScripts renew the locks of a list and answer whether they did: sentence 34. All are our own wording.
var batchScripts = []string{
	`local said = {}
	 for i, k in ipairs(KEYS) do
	   if redis.call('hexists', k, ARGV[i + 1]) == 1 then redis.call('pexpire', k, ARGV[1]) said[i] = 1 else said[i] = 0 end
	 end
	 return said`,
	`local said = {}
	 for i = 1, #KEYS, 1 do
	   if (redis.call("HEXISTS", KEYS[i], ARGV[1 + i]) == 1) then redis.call("PEXPIRE", KEYS[i], ARGV[1]); table.insert(said, 1);
	   else table.insert(said, 0); end;
	 end;
	 return said;`,
	`local function extend(k, who) return redis.call('hget', k, who) and redis.call('pexpire', k, tonumber(ARGV[1])) or 0 end
	 local said, i = {}, 1
	 while i <= #KEYS do said[i] = extend(KEYS[i], ARGV[i + 1]) i = i + 1 end
	 return said`,
	"local said = {}\r\nfor i = 1, #KEYS do -- in their order\r\n  local mine = redis.call('hstrlen', KEYS[i], ARGV[i + 1]) > 0\r\n  if mine then redis.call('expire', KEYS[i], ARGV[1] / 1000) end\r\n  said[i] = mine and 'yes' or 'no'\r\nend\r\nreturn said",
}

// refusedBatches do to several locks what cannot be decided for each by itself.
var refusedBatches = []string{
	`return redis.call('pexpire', KEYS[1], ARGV[1])`,
	`for i, k in ipairs(KEYS) do if redis.call('hexists', k, ARGV[i + 1]) == 0 then return {0, 0, 0} end end
	 for i, k in ipairs(KEYS) do redis.call('pexpire', k, ARGV[1]) end return {1, 1, 1}`,
	`local said, n = {}, 0 for i, k in ipairs(KEYS) do if redis.call('hexists', k, ARGV[i + 1]) == 1 then redis.call('pexpire', k, ARGV[1]) n = n + 1 end said[i] = n end return said`,
	`local said = {} for i, k in ipairs(KEYS) do said[i] = redis.call('hexists', k, ARGV[i + 1]) end return said`,
	`local said = {} for i, k in ipairs(KEYS) do said[i] = redis.call('hexists', k, ARGV[i + 1]) * redis.call('del', k) end return said`,
	`local said = {} for i, k in ipairs(KEYS) do redis.call('hexists', k, ARGV[i + 1]) said[i] = redis.call('pexpire', k, ARGV[1]) end return said`,
	`local said = {} for i, k in ipairs(KEYS) do if redis.call('hexists', k, ARGV[i + 1]) == 1 then redis.call('pexpire', k, ARGV[1]) redis.call('publish', k, 1) end said[i] = 1 end return said`,
	`local said = {} for i, k in ipairs(KEYS) do if redis.call('hexists', k, ARGV[i + 1]) == 1 then redis.call('pexpire', k, ARGV[1]) end said[i] = redis.call('pttl', k) end return said`,
	`local said = {} for i, k in ipairs(KEYS) do if redis.call('hexists', k, ARGV[i + 1]) + redis.call('hexists', k, ARGV[2]) > 0 then redis.call('pexpire', k, ARGV[1]) end said[i] = 1 end return said`,
	`local said = {} for i, k in ipairs(KEYS) do if redis.call('hexists', k, ARGV[i + 1]) == 1 then redis.call('persist', k) redis.call('hget', 'n', 'me') end said[i] = 1 end return said`,
	`local said = {} for i, k in ipairs(KEYS) do if redis.call('hexists', k, ARGV[i + 1]) == 0 then redis.call('hset', k, ARGV[i + 1], 1) end redis.call('pexpire', k, ARGV[1]) said[i] = 1 end return said`,
	`local said = {} for i, k in ipairs(KEYS) do if redis.call('get', k) == ARGV[i + 1] then redis.call('pexpire', k, ARGV[1]) end said[i] = 1 end return said`,
	`return redis.call(`,
}

var (
	batchKeys = []string{"lock:a", "lock:b", "lock:c"}
	batchArgs = []string{"9000", "me", "you", "me"}
)

func TestBatch_Refuses(t *testing.T) {
	for i, text := range refusedBatches {
		if _, err := ParseScript(text).Batch(Dialect{}, batchKeys, batchArgs, 2, false, false); err == nil {
			t.Errorf("%d: %s", i, text)
		}
	}
	for i, text := range batchScripts {
		if _, err := ParseScript(text).Batch(Dialect{}, []string{"lock:a", "lock:b", "lock:a"}, batchArgs, 2, false, false); err == nil {
			t.Errorf("%d, a lock twice", i)
		}
		if _, err := ParseScript(text).Batch(Dialect{}, batchKeys, batchArgs, 2, true, false); err == nil {
			t.Errorf("%d, read only", i)
		}
		if _, err := ParseScript(text).Batch(Dialect{}, batchKeys, batchArgs[:3], 2, false, false); err == nil {
			t.Errorf("%d, a field is missing", i)
		}
	}
}

// TestBatch_AsRedis renews locks in every mixture of states, here one by one and on a server.
func TestBatch_AsRedis(t *testing.T) {
	n := redistest.StartNodes(t, 1)
	hash := func(field string, count int) State {
		return State{Kind: Hash, Value: field, Count: count, Left: 7 * time.Second}
	}
	some := []State{{}, hash("me", 1), hash("you", 2), {Kind: Hash, Value: "you", Count: 1, Left: Forever}}
	for _, proto := range []int{2, 3} {
		c := redistest.Open(t, n[0].Addr())
		c.Do(t, "HELLO", strconv.Itoa(proto))
		for _, text := range batchScripts {
			b, err := ParseScript(text).Batch(Dialect{}, batchKeys, batchArgs, proto, false, false)
			if err != nil {
				t.Fatal(err)
			}
			for mixture := range len(some) * len(some) * len(some) {
				states := []State{some[mixture%4], some[mixture/4%4], some[mixture/16]}
				want := "*3\r\n"
				var outs []Outcome
				c.Do(t, "FLUSHALL")
				for i := range batchKeys {
					out, err := b.Call(i).Run(states[i], time.Now())
					if err != nil {
						t.Fatal(err)
					}
					outs = append(outs, out)
					want += string(out.Reply)
					if states[i].Kind == Hash {
						c.Do(t, "HSET", batchKeys[i], states[i].Value, strconv.Itoa(states[i].Count))
						if states[i].Left != Forever {
							c.Do(t, "PEXPIRE", batchKeys[i], "7000")
						}
					}
				}
				if got := c.Do(t, slices.Concat([]string{"EVAL", text, "3"}, batchKeys, batchArgs)...).Raw; got != want {
					t.Errorf("%v: Redis answers %q, here %q", states, got, want)
				}
				for i, key := range batchKeys {
					left := time.Duration(c.Do(t, "PTTL", key).Int()) * time.Millisecond
					if left == -time.Millisecond {
						left = Forever
					}
					if after := after(states[i], outs[i].Op); after.Kind != Absent && !near(left, after.Left) {
						t.Errorf("%v: Redis has %s for %v, here for %v", states, key, left, after.Left)
					}
				}
			}
		}
	}
}

// TestBatch_Hundred: as many locks as libraries renew at once.
func TestBatch_Hundred(t *testing.T) {
	var keys []string
	args := []string{"9000"}
	for i := range 100 {
		keys, args = append(keys, fmt.Sprint("lock:", i)), append(args, fmt.Sprint("me:", i%7))
	}
	for i, text := range batchScripts {
		b, err := ParseScript(text).Batch(Dialect{}, keys, args, 2, false, false)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		out, err := b.Call(99).Run(State{Kind: Hash, Value: "me:1", Count: 3, Left: time.Second}, time.Now())
		if err != nil || out.Op != (Op{Do: Renew, TTL: 9 * time.Second}) || !strings.Contains(":1\r\n$3\r\nyes\r\n", string(out.Reply)) {
			t.Errorf("%d: %+v, %v", i, out, err)
		}
	}
}

// TestBatch_Only: the same script for some of its keys.
func TestBatch_Only(t *testing.T) {
	for i, text := range batchScripts {
		b, err := ParseScript(text).Batch(Dialect{}, batchKeys, batchArgs, 2, false, false)
		if err != nil {
			t.Fatal(err)
		}
		if keys, args, ok := b.Only([]int{1, 2}); !ok || !slices.Equal(keys, []string{"lock:b", "lock:c"}) || !slices.Equal(args, []string{"9000", "you", "me"}) {
			t.Errorf("%d: %q %q %t", i, keys, args, ok)
		}
	}
	const inPairs = `local said = {} for i, k in ipairs(KEYS) do if redis.call('hexists', k, ARGV[2 * i]) == 1 then redis.call('pexpire', k, ARGV[2 * i - 1]) said[i] = 1 else said[i] = 0 end end return said`
	b, err := ParseScript(inPairs).Batch(Dialect{}, batchKeys, []string{"1000", "me", "2000", "you", "3000", "me"}, 2, false, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := b.Only([]int{0}); ok {
		t.Error("which arguments are about a key is not known")
	}
}

func TestCallOn_Batch(t *testing.T) {
	for i, text := range batchScripts {
		call, err := ParseScript(text).CallOn(Dialect{}, "lock:b", batchKeys, batchArgs, 2, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if rows, class := call.Accept(time.Now()); class != ReentrantExtend || rows[1].State.Value != "you" {
			t.Errorf("%d: %s, %+v", i, class, rows)
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	var keys []string
	args := []string{"9000"}
	for i := range 100 {
		keys, args = append(keys, fmt.Sprint("lock:", i)), append(args, "me")
	}
	s := ParseScript(batchScripts[1])
	for name, known := range map[string]bool{"known": true, "new": false} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Batch(Dialect{}, keys, args, 2, false, known); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
