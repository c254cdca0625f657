package adopt

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// enterFenced enters a hash, and answers a counter beside it.
const enterFenced = `if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return {redis.call('pttl', KEYS[1]), -1} end
	local n = redis.call('incr', KEYS[2]) redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return {-1, n}`

// fenceSays is the fence in a reply of enterFenced, or to GET.
func fenceSays(t *testing.T, reply string) int64 {
	t.Helper()
	text := reply[strings.LastIndexAny(reply, " :")+1:]
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		t.Fatalf("no fence: %s", reply)
	}
	return n
}

// TestFence: what INCR of the key of a fence answers is the fence of the grant, through whichever proxy, and GET answers it while
// the lock is held, be it by a command of another kind.
func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 2, "lock:* guard=no fence-key=fence:")
		enter := func(at int, who string) string {
			return p[at].do("EVAL", enterFenced, "2", "lock:a", "fence:{lock:a}", "5000", who)
		}
		get := func(at int) string { return p[at].do("GET", "fence:{lock:a}") }
		gone := `ADOPTREFUSED GET lock:a: nobody has the lock, so it has no fence; adopted by "lock:*"`
		last := int64(0)
		for i, next := range []func() string{
			func() string { return enter(0, "me") },
			func() string { return enter(1, "you") },
			func() string { p[1].do("SET", "lock:a", "me", "NX", "PX", "5000"); return get(1) },
			func() string { time.Sleep(6 * time.Second); return enter(0, "me") },
		} {
			if got := get(i % 2); i < 3 && got != gone {
				t.Errorf("%d: of nobody: %s", i, got)
			}
			got := next()
			fence := fenceSays(t, got)
			if fence <= last {
				t.Errorf("%d: fence %d behind %d", i, fence, last)
			}
			last = fence
			for at := range p {
				if got := fenceSays(t, get(at)); got != fence {
					t.Errorf("%d: GET through %d: %d, the grant has %d", i, at, got, fence)
				}
				if i == 2 {
					continue
				}
				if again := enter(at, map[int]string{0: "me", 1: "you", 3: "me"}[i]); again != got {
					t.Errorf("%d: entered again: %s, first %s", i, again, got)
				}
				if other := enter(at, "they"); other != "*2 :5000 :-1" {
					t.Errorf("%d: another: %s", i, other)
				}
			}
			if i < 3 {
				p[i%2].do("DEL", "lock:a")
			}
		}
		for at := range p {
			if len(p[at].asked) > 0 {
				t.Errorf("the upstream got %q", p[at].asked)
			}
		}
	})
}

func TestFenceOf(t *testing.T) {
	for _, tt := range []struct{ pattern, key, lock string }{
		{"lock:*", "fence:lock:a", ""},
		{"lock:* fence-key=fence:", "fence:lock:a", "lock:a"},
		{"lock:* fence-key=fence:", "fence:{lock:a}", "lock:a"},
		{"lock:* fence-key=fence:", "fence:{lock:a}}", "lock:a}"},
		{"lock:* fence-key=fence:", "fence:{lock:a}:x", ""},
		{"lock:* fence-key=fence:", "fence:x", ""},
		{"lock:* fence-key=fence:", "lock:a", ""},
		{"lock:* db=1 fence-key=fence:", "fence:lock:a", ""},
		{"{* fence-key=fence:", "fence:{a}", "{a}"},
		{"lock:* fence-key=fence:", "fence:{other}", ""},
	} {
		if got := parsed(t, tt.pattern)[0].FenceOf(0, tt.key); got != tt.lock {
			t.Errorf("%s: %s: %q", tt.pattern, tt.key, got)
		}
	}
}

// TestFence_Refused: other commands than INCR by a script and GET are refused on the key of a fence. Keys that only look like one
// are no fences.
func TestFence_Refused(t *testing.T) {
	c := proxies(t, 1, "block:*", "clock:* mode=off", "lock:{*} fence-key=n:", "*lock:* fence-key=fence:")[0]
	for _, tt := range []struct{ line, want string }{
		{"GET fence:{lock:a}", "nobody has the lock"},
		{"GET fence:lock:a", "nobody has the lock"},
		{"GET n:lock:{a}", "nobody has the lock"},
		{"GET fence:{lock:a", "nobody has the lock"}, // of the lock {lock:a
		{"GET fence:{other}", "no lock"},
		{"GET fence:", "no lock"},
		{"GET fence:clock:a", "$-1"}, // a lock: clock:a is none
		{"GET n:lock:a", "$-1"},      // a lock of the second pattern
		{"SET n:lock:{a} 1", "SET of the key of a fence"},
		{"INCR fence:{lock:a}", "INCR of the key of a fence"},
		{"DEL fence:lock:a", "DEL of the key of a fence"},
		{"EXPIRE fence:lock:a 5", "EXPIRE of the key of a fence"},
		{"GET fence:lock:a x", "GET of the key of a fence"},
	} {
		if got := c.do(strings.Fields(tt.line)...); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s", tt.line, got)
		}
	}
	if _, err := c.a.Call(c, [][]byte{[]byte("DEL"), []byte("lock:a"), []byte("fence:lock:a")}, Keys{[]int{1, 2}, true}); err == nil || !strings.Contains(err.Error(), "DEL of the key of a fence") {
		t.Errorf("DEL of both: %v", err)
	}
	for _, script := range []string{`return redis.call('get', KEYS[1])`, `return redis.call('incr', KEYS[1])`, `return redis.call('del', KEYS[1])`} {
		if got := c.do("EVAL", script, "1", "fence:{lock:a}"); !strings.Contains(got, "ADOPTREFUSED") {
			t.Errorf("%s: %s", script, got)
		}
	}
	var tx Transaction
	words := [][]byte{[]byte("GET"), []byte("fence:lock:a")}
	if _, err := c.a.Queue(c, &tx, words, Keys{[]int{1}, true}, UpstreamTx{}); err == nil || !strings.Contains(err.Error(), "inside MULTI") {
		t.Errorf("inside MULTI: %v", err)
	}
	words[0] = []byte("WATCH")
	if err := c.a.Watch(t.Context(), c, &tx, words, Keys{[]int{1}, true}); err == nil || !strings.Contains(err.Error(), "WATCH of the key of a fence") || tx.Active() {
		t.Errorf("watched: %v", err)
	}
	for _, args := range []string{"GET fence:lock:a", "GET n:lock:{a}"} {
		if w := strings.Fields(args); !c.a.Concerns([][]byte{[]byte(w[0]), []byte(w[1])}) || !c.a.Adopts(0, [][]byte{[]byte(w[0]), []byte(w[1])}, Keys{[]int{1}, true}) {
			t.Errorf("%s is not seen", args)
		}
	}
	plain := proxies(t, 1, "lock:*")[0]
	if got := plain.do("EVAL", enterFenced, "2", "lock:a", "fence:{lock:a}", "5000", "me"); !strings.Contains(got, "INCR beside the lock") {
		t.Errorf("without the word: %s", got)
	}
	for text, fault := range map[string]string{"lock:* mode=both fence-key=f:": "mode=both", "lock:* fence-key=": "no beginning"} {
		if _, err := pattern.Parse(text); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
