package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A replayed lock is what a library sends, which was looked up and is not run here: for each thing that a client wants, what is sent
// at once, with bars between. <k> is the key, <v> the client's value. What is behind that is sent if the value was among the replies,
// or, with "else ", if it was not.
type replayed struct {
	name string
	does map[string][]string
}

const (
	replayedRelease = `local mine = redis.call("GET", KEYS[1]) == ARGV[1] return mine and redis.call("DEL", KEYS[1]) or 0`
	replayedRefresh = `if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end return redis.call("EXPIRE", KEYS[1], ARGV[2])`
)

// compared is a transaction of StackExchange.Redis with the condition that the key has a value: where the server says that EXEC is aborted,
// the condition is looked at before MULTI.
func compared(command string) []string {
	return []string{"WATCH <k>|GET <k>", "MULTI|" + command + "|EXEC", "else UNWATCH"}
}

var replayedLocks = []replayed{
	{"StackExchange.Redis", map[string][]string{
		"take": {"SET <k> <v> EX 60 NX"}, "asks": {"GET <k>"},
		"extend": compared("EXPIRE <k> 90"), "extends by ms": compared("PEXPIRE <k> 80500"), "release": compared("DEL <k>"), "looks": {"WATCH <k>|GET <k>"}, "goes on": {"MULTI|DEL <k>|EXEC"},
	}},
	{"StackExchange.Redis, UNLINK", map[string][]string{
		"take": {"SET <k> <v> PX 60500 NX"}, "asks": {"GET <k>"},
		"extend": compared("EXPIRE <k> 90"), "extends by ms": compared("PEXPIRE <k> 80500"), "release": compared("UNLINK <k>"), "looks": {"WATCH <k>|GET <k>"}, "goes on": {"MULTI|UNLINK <k>|EXEC"},
	}},
	{"StackExchange.Redis, looking late", map[string][]string{
		"take": {"SET <k> <v> EX 60 NX"}, "asks": {"GET <k>"},
		"extend": late("EXPIRE <k> 90"), "extends by ms": late("PEXPIRE <k> 80500"), "release": late("DEL <k>"), "looks": {"WATCH <k>|GET <k>|MULTI|DEL <k>"}, "goes on": {"EXEC"},
	}},
	{"Laravel", map[string][]string{
		"take": {"SET <k> <v> EX 60 NX"}, "asks": {"GET <k>"},
		"extend": {"EVAL <refresh> 1 <k> <v> 90"}, "extends by ms": {"EVAL <refresh> 1 <k> <v> 85"}, "release": {"EVAL <release> 1 <k> <v>"}, "looks": {"GET <k>"}, "goes on": {"EVAL <release> 1 <k> <v>"},
	}},
	{"Laravel, without an end", map[string][]string{
		"take": {"SETNX <k> <v>"}, "asks": {"GET <k>"},
		"extend": {"EVAL <refresh> 1 <k> <v> 90"}, "extends by ms": {"EVAL <refresh> 1 <k> <v> 85"}, "release": {"EVAL <release> 1 <k> <v>"}, "looks": {"GET <k>"}, "goes on": {"EVAL <release> 1 <k> <v>"},
	}},
}

// late is compared with servers that do not say so: what was queued is looked at, too, and then executed or discarded.
func late(command string) []string {
	return []string{"WATCH <k>|GET <k>|MULTI|" + command, "EXEC", "else DISCARD"}
}

// replayedStory is who does what, in which order. What that is answered is what a Redis answers.
var replayedStory = []string{
	"a asks", "a take", "a asks", "b take", "b asks", "b extend", "b release", "a extend", "a extends by ms", "a asks", "a release", "a release", "a extend",
	"b take", "a take", "it ends", "b extend", "b release", "a take", "b release", "a asks", "it is cleared", "a asks",
	"b take", "b looks", "it ends", "a take", "b goes on", "a asks", "a release",
	"a take", "a extend", "b take", "a release", "b take", "a looks", "b release", "a goes on", "b asks",
}

// tell plays the story, a's part at the first address and b's at the other, and returns what was answered.
func (l *replayed) tell(t *testing.T, addrs [2]string, key string) string {
	t.Helper()
	conns := map[string]*redistest.Conn{"a": redistest.Open(t, addrs[0]), "b": redistest.Open(t, addrs[1])}
	operator := redistest.Open(t, addrs[1])
	var told strings.Builder
	for _, line := range replayedStory {
		who, what, _ := strings.Cut(line, " ")
		switch line {
		case "it ends":
			operator.Do(t, "PEXPIRE", key, "1")
			eventually(t, 10*time.Second, "the lock ends", func() bool { return operator.Do(t, "EXISTS", key).Int() == 0 })
			continue
		case "it is cleared":
			operator.Do(t, "DEL", key)
			continue
		}
		fmt.Fprintf(&told, "%s:", line)
		met := true
		for i, step := range l.does[what] {
			otherwise, isElse := strings.CutPrefix(step, "else ")
			if i > 0 && isElse == met {
				continue
			}
			met = l.send(t, conns[who], otherwise, key, "value-of-"+who, &told)
		}
		told.WriteByte('\n')
	}
	return told.String()
}

// send sends commands at once, and notes the replies. It reports whether one of them is the value.
func (l *replayed) send(t *testing.T, c *redistest.Conn, commands, key, value string, told *strings.Builder) (met bool) {
	t.Helper()
	fill := strings.NewReplacer("<k>", key, "<v>", value, "<release>", replayedRelease, "<refresh>", replayedRefresh)
	raw, n := "", 0
	for command := range strings.SplitSeq(commands, "|") {
		args := strings.Fields(command)
		for i := range args {
			args[i] = fill.Replace(args[i])
		}
		raw, n = raw+redistest.Command(args...), n+1
	}
	c.Send(t, raw)
	for range n {
		v := c.Read(t)
		met = met || v.Text == value
		fmt.Fprintf(told, " %v", v)
	}
	return met
}

// TestAdopt_Replay: what libraries send whose languages are not tried here is answered through two proxies as by one Redis.
func TestAdopt_Replay(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t)
	r := startRig(t, 3, 2, "--adopt", "lock:*", "--max-ttl", "2m")
	for i := range replayedLocks {
		l := &replayedLocks[i]
		t.Run(l.name, func(t *testing.T) {
			key := fmt.Sprint("lock:replayed:", i)
			want := l.tell(t, [2]string{plain.Addr(), plain.Addr()}, key)
			if got := l.tell(t, [2]string{r.proxies[0].Addr(), r.proxies[1].Addr()}, key); got != want {
				t.Errorf("lockproxy\n%s\nRedis\n%s", got, want)
			}
			for _, known := range []string{"a take: +OK", "a take: :1"} {
				if strings.Contains(want, known) {
					return
				}
			}
			t.Errorf("nobody has taken the lock:\n%s", want)
		})
	}
	if v := r.data.Do(t, "KEYS", "*"); len(v.Elems) > 0 {
		t.Errorf("the upstream has %v", v)
	}
}
