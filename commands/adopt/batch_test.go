package adopt

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// extendAll renews the locks of its keys that have the fields of its arguments, and answers which.
const extendAll = `local said = {} for i = 1, #KEYS do
	if redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1 then redis.call('pexpire', KEYS[i], ARGV[1]) said[i] = 1 else said[i] = 0 end
	end return said`

// eval runs a script with these keys and arguments.
func (c *client) eval(text string, keys []string, args ...string) string {
	c.t.Helper()
	return c.do(append(append([]string{"EVAL", text, strconv.Itoa(len(keys))}, keys...), args...)...)
}

// TestBatch: many locks are renewed with one script, through any proxy, each by itself.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 2, "lock:* guard=no", "job:* guard=no")
		var keys []string
		args := []string{"20000"}
		for i := range 100 {
			keys, args = append(keys, fmt.Sprint([]string{"lock:", "job:"}[i%2], i)), append(args, "me")
			if i%3 > 0 {
				if got := p[0].eval(enterHash, keys[i:], "5000", []string{"me", "you"}[i%3-1]); got != "$-1" {
					t.Fatal(got)
				}
			}
		}
		for range 2 {
			for _, c := range p {
				want := "*100"
				for i := range keys {
					want += []string{" :0", " :1", " :0"}[i%3]
				}
				if got := c.eval(extendAll, keys, args...); got != want {
					t.Fatalf("%s", got)
				}
			}
		}
		time.Sleep(10 * time.Second) // those of others have ended
		for i, key := range keys {
			if got, want := p[1].do("PTTL", key), []string{":-2", ":10000", ":-2"}[i%3]; got != want {
				t.Fatalf("%s: %s, want %s", key, got, want)
			}
		}
		if got := p[0].do("SET", keys[0], "me", "NX", "PX", "5000"); got != "+OK" {
			t.Fatal(got)
		}
		if got := p[0].eval(extendAll, keys[:2], "30000", "me", "me"); !strings.HasPrefix(got, "-WRONGTYPE") {
			t.Error(got)
		}
		if got := p[0].do("PTTL", keys[1]); got != ":30000" {
			t.Errorf("beside a lock that is no hash: %s", got)
		}
		if got := p[0].eval(extendAll, keys[:2], "90000", "me", "me"); !strings.Contains(got, "over max-ttl") {
			t.Error(got)
		}
	})
}

// TestBatch_WithOtherKeys: keys that are no locks are the upstream's, in the same script.
func TestBatch_WithOtherKeys(t *testing.T) {
	c := proxies(t, 1, "lock:* guard=no")[0]
	c.eval(enterHash, []string{"lock:b"}, "5000", "b")
	c.says = "*2\r\n:7\r\n:8\r\n"
	for range 2 {
		if got := c.eval(extendAll, []string{"a", "lock:b", "c", "lock:d"}, "9000", "a", "b", "c", "d"); got != "*4 :7 :1 :8 :0" {
			t.Error(got)
		}
	}
	if want := "EVAL " + extendAll + " 2 a c 9000 a c"; len(c.asked) != 2 || c.asked[0] != want {
		t.Errorf("%q", c.asked)
	}
	c.says = "-NOSCRIPT No matching script.\r\n"
	if got := c.eval(extendAll, []string{"a", "lock:b"}, "9000", "a", "b"); got != "-NOSCRIPT No matching script." {
		t.Error(got)
	}
	if got := c.eval(extendAll, []string{"lock:b", "lock:b"}, "9000", "b", "b"); got != "*2 :1 :1" {
		t.Error(got)
	}
}

// TestBatch_Refused: several locks of which one is not extended alone.
func TestBatch_Refused(t *testing.T) {
	c := proxies(t, 1, "lock:* guard=no")[0]
	c.eval(enterHash, []string{"lock:a"}, "5000", "me")
	for _, text := range []string{
		strings.Replace(extendAll, "pexpire', KEYS[i], ARGV[1]", "del', KEYS[i]", 1),
		strings.Replace(extendAll, "KEYS[i], ARGV[i + 1]", "KEYS[1], ARGV[2]", 1),
		strings.Replace(extendAll, "return said", "return 1", 1),
	} {
		for range 2 {
			if got := c.eval(text, []string{"lock:a", "lock:b"}, "9000", "me", "me"); !strings.HasPrefix(got, "ADOPTREFUSED EVAL lock:a: ") {
				t.Errorf("%s: %s", text, got)
			}
		}
	}
	if got := c.do("HGET", "lock:a", "me"); got != "$1 1" {
		t.Error(got)
	}
}

// TestBoth_Batch: many locks are renewed with one script in the mode both: each as if it had been renewed by itself.
func TestBoth_Batch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes(t, "guard=no")
		cases := []struct {
			before []string
			want   string
			left   string // at the nodes
		}{
			{[]string{"b enter me"}, ":1", ":9000"},
			{nil, ":0", ":-2"},
			{[]string{"b enter you"}, ":0", ":5000"},
			{[]string{"o enter me"}, ":1", ":9000"},                // the upstream has it not
			{[]string{"d enter me"}, ":1", ":9000"},                // taken over
			{[]string{"d enter me", "o enter you"}, ":0", ":5000"}, // the nodes have another's
			{[]string{"b enter me", "b enter me"}, ":1", ":9000"},
			{[]string{"b enter me", "d DEL"}, ":0", ":5000"}, // lost at the upstream
		}
		var keys, fields, want []string
		for i := range 96 {
			keys, fields = append(keys, "lock:"+strconv.Itoa(i)), append(fields, "me")
			of := cases[i%len(cases)]
			for _, step := range of.before {
				who, what, _ := strings.Cut(step, " ")
				if what == "DEL" {
					m[who].do("DEL " + keys[i])
				} else if got := m[who].do("EVAL enter 1 " + keys[i] + " 5000 " + strings.Fields(what)[1]); got != "$-1" {
					t.Fatalf("%s: %s", step, got)
				}
			}
			want = append(want, of.want)
		}
		began := time.Now()
		m["b"].asked = nil
		got := m["b"].do("EVAL extendAll 96 " + strings.Join(keys, " ") + " 9000 " + strings.Join(fields, " "))
		if got != "*96 "+strings.Join(want, " ") {
			t.Errorf("%s", got)
		}
		for i, key := range keys {
			want, _ := strconv.Atoi(cases[i%len(cases)].left[1:])
			if want > 0 {
				want -= int(time.Since(began).Milliseconds())
			}
			left, _ := strconv.Atoi(strings.TrimPrefix(m["o"].do("PTTL "+key), ":"))
			if left < want || left > want+1000 || want < 0 && left != want {
				t.Errorf("%s: the nodes have it for %d ms, want %d", key, left, want)
			}
		}
		if n := m["b"].takenOver(); n != 12 {
			t.Errorf("%v locks were taken over", n)
		}
		asked := 0
		for _, name := range m["b"].asked {
			if name == "EVAL" {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("the upstream was asked to run %d scripts", asked)
		}
	})
}

// TestBoth_BatchWithOtherKeys: locks of both, of on and no locks in one script.
func TestBoth_BatchWithOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes(t, "", "job:* guard=no")
		b := m["b"]
		for _, step := range []string{"b enter 1 lock:a 5000 me", "b enter 1 job:b 5000 me", "d enter 1 c 5000 me", "d enter 1 lock:d 5000 you"} {
			who, command, _ := strings.Cut(step, " ")
			if got := m[who].do("EVAL " + command); got != "$-1" {
				t.Fatalf("%s: %s", step, got)
			}
		}
		for range 2 {
			if got := b.do("EVAL extendAll 5 lock:a job:b c lock:d job:e 9000 me me me me me"); got != "*5 :1 :1 :1 :0 :0" {
				t.Error(got)
			}
		}
		for who, key := range map[string]string{"o": "lock:a", "b": "job:b", "d": "c"} {
			if got := m[who].do("PTTL " + key); got != ":9000" {
				t.Errorf("%s of %s: %s", key, who, got)
			}
		}
		m["d"].do("SET lock:f me NX PX 5000")
		if got := b.do("EVAL extendAll 2 lock:f lock:a 8000 me me"); !strings.HasPrefix(got, "-WRONGTYPE") {
			t.Error(got)
		}
		if got := b.do("EVAL extendAll 2 lock:a lock:d 90000 me me"); !strings.Contains(got, "over max-ttl") || m["d"].do("PTTL lock:a") != ":9000" {
			t.Errorf("%s; the upstream has it for %s", got, m["d"].do("PTTL lock:a"))
		}
		b.fail = errors.New("lost")
		if got := b.do("EVAL extendAll 2 lock:a lock:d 9000 me me"); got != "lost" {
			t.Error(got)
		}
	})
}
