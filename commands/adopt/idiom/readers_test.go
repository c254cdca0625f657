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

func TestAccept_Shares(t *testing.T) {
	each(t, shareCases, func(t *testing.T, c scriptCase, text string) {
		call, err := ParseScript(text).Call(c.keys, c.args, 2, false, isLock)
		if err != nil {
			t.Fatal(err)
		}
		class := c.accepted(t, call)
		thread, refused := call.Thread(time.Now())
		if want := map[bool]string{true: "", false: "me"}[class == ForceRelease]; thread != want || refused != nil {
			t.Errorf("the thread %q, %v", thread, refused)
		}
	})
}

func TestAccept_RefusesShares(t *testing.T) {
	each(t, refusedShares, func(t *testing.T, c scriptCase, text string) {
		call, err := ParseScript(text).Call(c.keys, c.args, 2, false, isLock)
		if err != nil {
			return
		}
		rows, class := call.Accept(time.Now())
		if Full.Allows(class) || rows.Why() == "" {
			t.Errorf("%s: %q, %v", class, rows.Why(), rows)
		}
	})
}

// putShares lets lock:a on a server be a read/write lock in this state.
func putShares(t *testing.T, c *redistest.Conn, s State) {
	t.Helper()
	c.Do(t, "FLUSHALL")
	if s.Kind == Absent {
		return
	}
	ms := strconv.FormatInt(s.Left.Milliseconds(), 10)
	r := sharesOf(s)
	c.Do(t, "HSET", "lock:a", modeField, r.mode)
	for _, share := range r.all {
		c.Do(t, "HSET", "lock:a", share.field, strconv.Itoa(share.holds))
		for n := 1; n <= share.holds && !strings.HasSuffix(share.field, writeSuffix); n++ {
			c.Do(t, "SET", fmt.Sprint("{lock:a}:", share.field, holdSuffix, ":", n), "1", "PX", ms)
		}
	}
	c.Do(t, "PEXPIRE", "lock:a", ms)
}

// TestShares_AsRedis runs every script on read/write locks in every state, here and on a server.
func TestShares_AsRedis(t *testing.T) {
	c := redistest.Open(t, redistest.StartNodes(t, 1)[0].Addr())
	d := dialectOf(t, c)
	each(t, shareCases, func(t *testing.T, sc scriptCase, text string) {
		call, err := ParseScript(text).Call(sc.keys, sc.args, 2, false, isLock)
		if err != nil {
			t.Fatal(err)
		}
		call.Speak(d)
		for _, s := range shareStates("me") {
			out, err := call.Run(s.State, time.Now())
			if err != nil {
				t.Errorf("%s: %v", s.name, err)
				continue
			}
			putShares(t, c, s.State)
			raw := c.Do(t, append(append([]string{"EVAL", text, strconv.Itoa(len(sc.keys))}, sc.keys...), sc.args...)...).Raw
			if raw != string(out.Reply) && !(out.LeftRead && sameKindOfNumber(raw, string(out.Reply))) {
				t.Errorf("%s: Redis answers %q, here %q", s.name, raw, out.Reply)
			}
			sameShares(t, c, call, s)
		}
	})
}

// sameShares compares a read/write lock on a server with what a run of a call leaves.
func sameShares(t *testing.T, c *redistest.Conn, call *Call, s namedState) {
	t.Helper()
	w := call.world(s.State, time.Now())
	_, _ = call.run(w)
	var want, got []string
	if w.is.Kind != Absent {
		want = append(want, modeField+"="+w.shares.mode)
		for _, share := range w.shares.all {
			want = append(want, fmt.Sprint(share.field, "=", share.holds))
		}
	}
	flat := c.Do(t, "HGETALL", "lock:a").Elems
	for i := 0; i+1 < len(flat); i += 2 {
		got = append(got, flat[i].Text+"="+flat[i+1].Text)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("%s: Redis has %q, here %q", s.name, got, want)
	}
	if left := time.Duration(c.Do(t, "PTTL", "lock:a").Int()) * time.Millisecond; w.is.Kind != Absent && !near(left, w.is.Left) {
		t.Errorf("%s: %v are left in Redis, here %v", s.name, left, w.is.Left)
	}
}

// extendAllReaders extends what each thread has of each lock, as their numbers and names follow each other.
const extendAllReaders = `local said, at = {}, 2
	for k = 1, #KEYS, 2 do
	  local found, last = 0, at + tonumber(ARGV[at])
	  while at < last do
	    at = at + 1
	    local n = redis.call('hget', KEYS[k], ARGV[at])
	    if n then
	      found = 1
	      for i = n, 1, -1 do redis.call('pexpire', KEYS[k + 1] .. ':' .. ARGV[at] .. ':rwlock_timeout:' .. i, ARGV[1]) end
	    end
	  end
	  at = at + 1
	  if found == 1 then redis.call('pexpire', KEYS[k], ARGV[1]) end
	  said[#said + 1] = found
	end
	return said`

func TestRenewals(t *testing.T) {
	r, err := ParseScript(extendAllReaders).Renewals(Dialect{}, []string{"lock:a", "{lock:a}", "lock:b", "{lock:b}"}, []string{"5000", "2", "me", "you", "1", "me"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	const ttl = 5 * time.Second
	want := []Renewal{{"lock:a", "me", ttl}, {"lock:a", "you", ttl}, {"lock:b", "me", ttl}}
	if !slices.Equal(r.Each, want) {
		t.Errorf("%v", r.Each)
	}
	for _, tt := range []struct {
		found []Renewal
		reply string
	}{
		{nil, "*2\r\n:0\r\n:0\r\n"},
		{[]Renewal{{Key: "lock:a", Thread: "you"}}, "*2\r\n:1\r\n:0\r\n"},
		{[]Renewal{{Key: "lock:b", Thread: "me"}}, "*2\r\n:0\r\n:1\r\n"},
	} {
		if reply, err := r.Reply(func(one Renewal) bool { return slices.Contains(tt.found, one) }); err != nil || string(reply) != tt.reply {
			t.Errorf("%v: %q, %v", tt.found, reply, err)
		}
	}
	one := r.Call(want[1])
	for _, s := range shareStates("you") {
		out, err := one.Run(s.State, time.Now())
		reads := s.Reads > 0 && s.Reader == "you"
		if err != nil || (out.Op == Op{Do: Renew, Kind: ReadWrite, Value: "you", Shared: true, TTL: ttl}) != reads || string(out.Reply) != map[bool]string{true: ":1\r\n", false: ":0\r\n"}[reads] {
			t.Errorf("%s: %v %q, %v", s.name, out.Op, out.Reply, err)
		}
	}
}

func TestRenewals_Many(t *testing.T) {
	var keys []string
	args := []string{"5000"}
	for i := range 100 {
		lock := fmt.Sprint("lock:", i)
		keys = append(keys, lock, "{"+lock+"}")
		args = append(args, "8")
		for thread := range 8 {
			args = append(args, fmt.Sprint("client:", thread))
		}
	}
	if r, err := ParseScript(extendAllReaders).Renewals(Dialect{}, keys, args, 2); err != nil || len(r.Each) != 800 {
		t.Error(r, err)
	}
}

func TestRenewals_Refuses(t *testing.T) {
	for i, text := range []string{
		`return {}`,
		`if redis.call('hget', KEYS[1], ARGV[2]) then redis.call('pexpire', KEYS[1], ARGV[1]) end return {1}`,
		`redis.call('hget', KEYS[1], ARGV[2]) redis.call('pexpire', KEYS[2] .. ':me:rwlock_timeout:1', ARGV[1]) return {1}`,
		`if redis.call('hget', KEYS[1], ARGV[2]) then redis.call('pexpire', KEYS[2] .. ':me:rwlock_timeout:1', ARGV[1]) redis.call('del', KEYS[1]) end return {1}`,
		`if redis.call('hget', KEYS[1], ARGV[2]) then redis.call('pexpire', KEYS[2] .. ':me:rwlock_timeout:1', ARGV[1]) redis.call('publish', 'ch', 1) end return {1}`,
		`if redis.call('hget', 'lock:c', ARGV[2]) then redis.call('pexpire', '{lock:c}:me:rwlock_timeout:1', ARGV[1]) end return {1}`,
		`if redis.call('hget', KEYS[1], ARGV[2]) then redis.call('pexpire', KEYS[2] .. ':me:rwlock_timeout:1', -1) end return {1}`,
	} {
		if r, err := ParseScript(text).Renewals(Dialect{}, []string{"lock:a", "{lock:a}"}, []string{"5000", "me"}, 2); err == nil {
			t.Errorf("%d: %v", i, r.Each)
		}
	}
}

// TestShares_Tagged: the pattern may match the keys of holds as well.
func TestShares_Tagged(t *testing.T) {
	tagged := func(key string) bool { return strings.HasPrefix(key, "{job}:") }
	for i, text := range shareCases[0].texts {
		call, err := ParseScript(text).Call([]string{"{job}:a", "{job}:a:me" + holdSuffix}, readArgs, 2, false, tagged)
		if err != nil || call.Key() != "{job}:a" {
			t.Fatal(i, err)
		}
		if _, class := call.Accept(time.Now()); class != ReaderAcquire {
			t.Errorf("%d: %s", i, class)
		}
	}
}
