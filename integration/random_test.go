package integration

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// seedVariable gives back the seed that a failure printed: that stream alone is held.
const seedVariable = "LOCKPROXY_RANDOM_SEED"

// timeVariable is how long random streams are held, as a duration; 5s without it,
// 1s with -short.
const timeVariable = "LOCKPROXY_RANDOM_TIME"

// allVariable, when not empty, leaves the known differences in.
const allVariable = "LOCKPROXY_RANDOM_ALL"

// A stream is random commands of one client; all of it follows from the seed.
type stream struct {
	seed     uint64
	commands [][]string
}

// farewell takes back what a stream may have left on its connection and server.
// The PING takes what CLIENT REPLY SKIP skips.
var farewell = lines("PING", "RESET", "FLUSHALL", "SCRIPT FLUSH", "FUNCTION FLUSH", "HELLO 2")

// newStream makes a stream of commands of a few families, or of all.
func newStream(seed uint64) stream {
	s := &speaker{Rand: rand.New(rand.NewPCG(seed, 0))}
	names := make([]string, 0, len(grammar))
	for name := range grammar {
		names = append(names, name)
	}
	sort.Strings(names) // a map has no order, a seed must
	s.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:s.one3(1+s.IntN(4), 6, len(names))]
	names = append(names, s.one("keys", "strings", "transactions", "connection"))
	commands := make([][]string, 20+s.IntN(120))
	for i := range commands {
		family := grammar[s.one(names...)]
		commands[i] = s.say(family[s.IntN(len(family))])
	}
	if os.Getenv(allVariable) == "" {
		commands = withoutKnown(commands)
	}
	return stream{seed, commands}
}

// bursts are the stream's bytes as they are written: after each burst the client
// waits until something comes back, and each piece is a write of its own.
func (st stream) bursts() [][]string { return st.burstsBefore(farewell) }

// burstsBefore is bursts with another farewell.
func (st stream) burstsBefore(farewell string) [][]string {
	r := rand.New(rand.NewPCG(st.seed, 1))
	deepest := []int{1, 4, 30, 1000}[r.IntN(4)]
	var all [][]string
	for rest := st.commands; len(rest) > 0; {
		n := min(1+r.IntN(deepest), len(rest))
		var b strings.Builder
		for _, args := range rest[:n] {
			b.WriteString(encode(r, args))
		}
		all = append(all, pieces(r, b.String()))
		rest = rest[n:]
	}
	return append(all, []string{farewell + redistest.Command("PING", marker)})
}

// encode writes a command as libraries do, or sometimes, if it can be, as a person.
func encode(r *rand.Rand, args []string) string {
	line := strings.Join(args, " ")
	plain := !strings.ContainsFunc(line, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\'' })
	if plain && len(line) < 1000 && len(strings.Fields(line)) == len(args) && r.IntN(15) == 0 {
		return line + "\r\n"
	}
	return redistest.Command(args...)
}

// pieces cuts a burst, mostly not at all, sometimes into single bytes.
func pieces(r *rand.Rand, s string) (cut []string) {
	size := len(s)
	switch r.IntN(6) {
	case 0:
		size = 1 + r.IntN(len(s))
	case 1:
		size = 1 + r.IntN(20)
	case 2:
		if len(s) < 300 {
			size = 1
		}
	}
	size = max(size, len(s)/200) // a write of a megabyte in tiny pieces shows nothing new
	for c := range slices.Chunk([]byte(s), size) {
		cut = append(cut, string(c))
	}
	return cut
}

// pace is how long a client waits at most for a reply before its next burst: not
// every command has one.
const pace = 2 * time.Millisecond

// converse sends bursts and returns everything that came back, up to the marker's
// reply or the end of the connection.
func converse(addr string, bursts [][]string) (string, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience(0))); err != nil {
		return "", err
	}
	came := make(chan struct{}, 1)
	sent := make(chan error, 1)
	go func() { sent <- writeBursts(c, bursts, came) }()
	got, err := readTo(announcing{c, came}, marker+"\r\n")
	if err != nil {
		return got, err
	}
	return got, ignoreReset(<-sent)
}

func writeBursts(w io.Writer, bursts [][]string, came <-chan struct{}) error {
	for _, b := range bursts {
		select {
		case <-came: // an answer to an earlier burst
		default:
		}
		for _, piece := range b {
			if _, err := io.WriteString(w, piece); err != nil {
				return err
			}
		}
		select {
		case <-came:
		case <-time.After(pace):
		}
	}
	return nil
}

// announcing is a reader that tells when something has come.
type announcing struct {
	io.Reader
	came chan<- struct{}
}

func (a announcing) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	select {
	case a.came <- struct{}{}:
	default:
	}
	return n, err
}

// difference holds the stream with both and says where they first differ, or "".
func (w *twin) difference(st stream) (string, error) {
	bursts := st.bursts()
	want, err := converse(w.plain.Addr(), bursts)
	if err != nil {
		return "", fmt.Errorf("plain Redis: %w after %s", err, excerpt(want, len(want)))
	}
	got, err := converse(w.via, bursts)
	got, want = connectionID.ReplaceAllString(got, "${1}N"), connectionID.ReplaceAllString(want, "${1}N")
	if got == want && err == nil {
		return "", nil
	}
	i := firstDifference(got, want)
	return fmt.Sprintf("byte %d of %d (plain: %d), error %v\nproxy: %s\nplain: %s", i, len(got), len(want), err, excerpt(got, i), excerpt(want, i)), nil
}

// shrink leaves out what is not needed for a difference, for as long as it may take.
func (w *twin) shrink(st stream, deadline time.Time) stream {
	return st.shrink(deadline, func(less stream) bool {
		diff, err := w.difference(less)
		return err == nil && diff != ""
	})
}

// shrink leaves out commands without which the stream still differs, until deadline.
func (st stream) shrink(deadline time.Time, differs func(stream) bool) stream {
	for size := len(st.commands) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(st.commands) && time.Now().Before(deadline); {
			less := stream{st.seed, slices.Delete(slices.Clone(st.commands), at, at+size)}
			if differs(less) {
				st = less
			} else {
				at += size
			}
		}
	}
	return st
}

// show are the commands of a stream, one a line, long arguments cut.
func (st stream) show() string {
	var b strings.Builder
	for _, args := range st.commands {
		for _, a := range args {
			fmt.Fprintf(&b, " %.60q", a)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// impatient makes blocking commands time out soon after their time, not at the next
// of ten ticks a second.
var impatient = []string{"--hz", "500"}

// allowUsers adds the users that streams authenticate as.
func (w *twin) allowUsers(t *testing.T) {
	t.Helper()
	w.both(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	w.both(t, "ACL", "SETUSER", "reader", "on", ">pw", "~s*", "&c", "+@read", "+@connection", "+@transaction", "+subscribe")
}

// TestRandomStreams: whatever commands a client sends, however it cuts and
// pipelines them, the proxy's replies are the bytes of a plain Redis.
func TestRandomStreams(t *testing.T) {
	t.Parallel()
	w := startTwin(t, impatient...)
	w.allowUsers(t)
	if s := os.Getenv(seedVariable); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		w.hold(t, newStream(seed))
		return
	}
	until := time.Now().Add(randomTime(t))
	n := 0
	for ; time.Now().Before(until) && !t.Failed(); n++ {
		w.hold(t, newStream(rand.Uint64()))
	}
	t.Logf("%d streams", n)
}

func (w *twin) hold(t *testing.T, st stream) {
	t.Helper()
	if w.mute {
		st.commands = slices.DeleteFunc(st.commands, mayBeRefusedAuth)
	}
	diff, err := w.difference(st)
	if err != nil {
		t.Fatalf("%s=%d: %v", seedVariable, st.seed, err)
	}
	if diff == "" {
		return
	}
	least := w.shrink(st, time.Now().Add(10*time.Second))
	again, _ := w.difference(least)
	t.Errorf("%s=%d, %d commands: %s\nshrunk to\n%s%s", seedVariable, st.seed, len(st.commands), diff, least.show(), again)
}

// mayBeRefusedAuth says that a command authenticates, unless it surely succeeds.
func mayBeRefusedAuth(args []string) bool {
	text := strings.ToUpper(strings.Join(args, " "))
	return (args[0] == "AUTH" || args[0] == "HELLO" && strings.Contains(text, "AUTH")) &&
		!slices.Contains([]string{"AUTH APP PW", "AUTH READER PW", "AUTH DEFAULT ANY", "HELLO 2 AUTH APP PW"}, text)
}

func randomTime(t *testing.T) time.Duration {
	t.Helper()
	if s := os.Getenv(timeVariable); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatalf("%s: %v", timeVariable, err)
		}
		return d
	}
	if testing.Short() {
		return time.Second
	}
	return 5 * time.Second
}

// TestRandomStreamsFollowTheirSeed: without it a printed seed would be of no use.
func TestRandomStreamsFollowTheirSeed(t *testing.T) {
	a, b, other := newStream(7), newStream(7), newStream(8)
	if a.show() != b.show() || fmt.Sprint(a.bursts()) != fmt.Sprint(b.bursts()) {
		t.Error("one seed makes two streams")
	}
	if a.show() == other.show() {
		t.Error("two seeds make one stream")
	}
}

// TestRandomStreamsNotice: the comparison must see an upstream that is only a
// little different, and a single byte that is another on the way.
func TestRandomStreamsNotice(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t, impatient...)
	odd := redistest.Start(t, append([]string{"--hash-max-listpack-entries", "1"}, impatient...)...)
	for _, tt := range []struct{ name, via string }{
		{"an upstream that keeps hashes in another way", redistest.StartProxy(t, odd, redistest.StartNodes(t, 1)).Addr()},
		{"a null of the other kind", tamper(t, plain.Addr(), "$-1\r\n", "*-1\r\n")},
		{"one reply too few", tamper(t, plain.Addr(), ":1\r\n", "")},
	} {
		w := &twin{plain: plain, behind: odd, via: tt.via}
		w.allowUsers(t)
		if n := w.noticedAfter(t, 200); n == 0 {
			t.Errorf("%s went unnoticed", tt.name)
		} else {
			t.Logf("%s: noticed by stream %d", tt.name, n)
		}
	}
}

// noticedAfter is how many streams it takes to find a difference, 0 if more than most.
func (w *twin) noticedAfter(t *testing.T, most uint64) uint64 {
	t.Helper()
	for seed := uint64(1); seed <= most; seed++ {
		diff, err := w.difference(newStream(seed))
		if err != nil {
			t.Fatal(err)
		}
		if diff != "" {
			return seed
		}
	}
	return 0
}

// tamper relays to addr and replaces one text in what comes back. It ends with the
// test, and each connection with either side of it.
func tamper(t *testing.T, addr, old, new string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go tamperOne(client, addr, old, new)
		}
	}()
	return l.Addr().String()
}

func tamperOne(client net.Conn, addr, old, new string) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if _, werr := io.WriteString(client, strings.ReplaceAll(string(buf[:n]), old, new)); err != nil || werr != nil {
			return
		}
	}
}
