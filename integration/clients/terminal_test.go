package clients

import (
	"bytes"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A terminal is redis-cli at a terminal of 100 columns, which script of util-linux
// makes for it.
type terminal struct {
	cmd   *exec.Cmd
	keys  io.WriteCloser
	ended chan struct{}

	mu     sync.Mutex
	screen bytes.Buffer // all that it has shown
	read   int          // of screen, by expect
}

// Keys that mean something to a terminal.
const (
	enter    = "\r"
	tab      = "\t"
	arrowUp  = "\x1b[A"
	controlC = "\x03"
)

// openTerminal starts redis-cli against a proxy. It is killed at the end of the test.
func openTerminal(t *testing.T, p *redistest.Proxy, args string) *terminal {
	t.Helper()
	host, port, _ := strings.Cut(p.Addr(), ":")
	line := "stty cols 100 rows 40 && exec redis-cli -h " + host + " -p " + port + " " + args
	cmd, cancel := bounded(programTimeout, "script", "--quiet", "--flush", "--command", line, "/dev/null")
	cmd.Env = append(cmd.Environ(), "TERM=xterm", "SHELL=/bin/sh", "REDISCLI_HISTFILE=/dev/null")
	term := &terminal{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = term, term
	var err error
	if term.keys, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(term.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-term.ended
	})
	return term
}

// Write takes in what redis-cli shows.
func (term *terminal) Write(p []byte) (int, error) {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.Write(p)
}

// press types keys.
func (term *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(term.keys, keys); err != nil {
		t.Fatal(err)
	}
}

var colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// expect waits until what was shown since the last expect matches, colours left out.
func (term *terminal) expect(t *testing.T, want string) {
	t.Helper()
	re := regexp.MustCompile(want)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		term.mu.Lock()
		shown := colours.ReplaceAllString(string(term.screen.Bytes()[term.read:]), "")
		matches := re.MatchString(shown)
		if matches {
			term.read = term.screen.Len()
		}
		term.mu.Unlock()
		if matches {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("redis-cli showed %.2000q, want %s", shown, want)
		}
	}
}

// prompt is how redis-cli asks for a command: by then it reads key by key. What was
// typed before is lost.
const prompt = `127\.0\.0\.1:\d+(\[\d+\])?(\(TX\))?> $`

func redisCLITerminal(t *testing.T, s *site) {
	for _, tt := range []struct {
		name, args string
		single     bool // what a Cluster cannot do
		steps      []step
	}{
		{"typed", "", false, []step{
			{"", prompt},
			{"set typed 1" + enter, `\r\nOK\r\n` + prompt},
			{"INCR typed" + enter, `\r\n\(integer\) 2\r\n` + prompt},
			{arrowUp + enter, `\r\n\(integer\) 3\r\n` + prompt},
			{"GETRANGE ", `GETRANGE key start end`},
			{"typed 0 0" + enter, `\r\n"3"\r\n` + prompt},
			{"zrangebysc" + tab + " ", `zrangebysc.*ZRANGEBYSCORE `},
			{"typed 0 0" + enter, `\r\n\(error\) WRONGTYPE .*\r\n` + prompt},
			{"wrong" + enter, `\r\n\(error\) ERR unknown command 'wrong'.*\r\n` + prompt},
			{"lock ", `lock name ttl \[OWNER owner\] \[FRESH\|NOREENTER\] \[SHARED\|PERMITS k\] \[WAIT time \[ASYNC\]`},
			{"typed 0" + enter, `\r\n\(error\) ERR ttl .*\r\n` + prompt},
			{"HELP UNLOCK" + enter, `UNLOCK name \[owner\] \[SHARED\] \[FENCE n\](?s:.*)Give a lock back(?s:.*)` + prompt},
			{"lockall ", `lockall n name \[name \.\.\.\] ttl \[OWNER owner\] \[FRESH\|NOREENTER\] \[SHARED\]`},
			{"2 a a 30s" + enter, `\r\n\(error\) ERR the name 'a' was given twice\r\n` + prompt},
			{"LOCK typed 30s OWNER me" + enter, `\r\n1\) \(integer\) \d+\r\n2\) "me"\r\n(?s:.*)` + prompt},
			{"LOCK typed 30s OWNER you" + enter, `\r\n\(nil\)\r\n` + prompt},
			{"UNLOCK typed me" + enter, `\r\n\(integer\) 1\r\n` + prompt},
		}},
		{"transaction", "-3", false, []step{
			{"", prompt},
			{"MULTI" + enter, `\r\nOK\r\n` + prompt},
			{"HSET multi f v" + enter, `\(TX\)> (?s:.*)\r\nQUEUED\r\n` + prompt},
			{"HGETALL multi" + enter, `\(TX\)> (?s:.*)\r\nQUEUED\r\n` + prompt},
			{"EXEC" + enter, `\r\n1\) \(integer\) 1\r\n2\) 1# "f" => "v"\r\n` + prompt},
			{"MULTI" + enter, `\r\nOK\r\n` + prompt},
			{"wrong" + enter, `\r\n\(error\) ERR unknown command.*\r\n` + prompt},
			{"EXEC" + enter, `\r\n\(error\) EXECABORT .*\r\n` + prompt},
		}},
		{"database", "", true, []step{
			{"", prompt},
			{"SELECT 3" + enter, `\r\nOK\r\n.*\[3\]> $`},
			{"SET third 1" + enter, `\r\nOK\r\n` + prompt},
			{"EXISTS third" + enter, `\r\n\(integer\) 1\r\n` + prompt},
			{"SELECT 0" + enter, `\r\nOK\r\n` + prompt},
			{"EXISTS third" + enter, `\r\n\(integer\) 0\r\n` + prompt},
		}},
		{"--stat", "--stat -i 0.1", true, []step{
			{"", `keys +mem +clients(?s:.*)\r\n\d+ +[\d.]+[BKM] +\d+ +\d+ +\d+ \(\+\d+\)`},
			{controlC, ``},
		}},
		{"--latency", "--latency -i 0.1", false, []step{
			{"", `min: \d+, max: \d+, avg: [\d.]+ \(\d+ samples\)`},
			{controlC, ``},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.single && !s.single {
				t.Skip("for an upstream that is one server")
			}
			openTerminal(t, s.Proxy, tt.args).follow(t, tt.steps)
		})
	}
	t.Run("subscribe", func(t *testing.T) { leaveSubscription(t, s) })
	t.Run("monitor", func(t *testing.T) { leaveMonitor(t, s) })
	t.Run("blocked", func(t *testing.T) { leaveBlocked(t, s) })
}

// A step of a test types keys and waits for what is shown.
type step struct{ keys, want string }

func (term *terminal) follow(t *testing.T, steps []step) {
	t.Helper()
	for _, step := range steps {
		term.press(t, step.keys)
		term.expect(t, step.want)
	}
}

// TestDevAtATerminal: who tries lockproxy dev with redis-cli finds what a real server has: hints, help, INFO.
func TestDevAtATerminal(t *testing.T) {
	for _, program := range []string{"redis-cli", "script"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	p := redistest.StartDev(t, "--admin", "127.0.0.1:0")
	for _, tt := range []struct {
		args  string
		steps []step
	}{
		{"", []step{
			{"", prompt},
			{"SET ", `SET key value \[NX\|XX\] \[GET\] \[EX seconds\|PX milliseconds\|EXAT unix-time-seconds`},
			{"greeting hello" + enter, `\r\nOK\r\n` + prompt},
			{"lock ", `lock name ttl \[OWNER owner\]`},
			{"job 30s OWNER me" + enter, `\r\n1\) \(integer\) \d+\r\n2\) "me"\r\n(?s:.*)` + prompt},
			{"help LOCK" + enter, `LOCK name ttl (?s:.*)Take a lock, or wait for it(?s:.*)group: lock(?s:.*)` + prompt},
			{"help GET" + enter, `GET key(?s:.*)Get the value of a key(?s:.*)group: string(?s:.*)` + prompt},
			{"help @geo" + enter, `GEOADD key (?s:.*)GEOSEARCH key (?s:.*)` + prompt},
			{"zrangebysc" + tab + " ", `zrangebysc.*ZRANGEBYSCORE key min max \[WITHSCORES\] \[LIMIT offset count\]`},
			{"greeting 0 1" + enter, `\r\n\(error\) WRONGTYPE .*\r\n` + prompt},
			{"INFO keyspace" + enter, `# Keyspace\s+db0:keys=1,expires=0,avg_ttl=0\s+` + prompt},
			{"COMMAND GETKEYS LOCK job 30s" + enter, `\r\n1\) "job"\r\n` + prompt},
		}},
		{"-3", []step{{"", prompt}, {"CONFIG GET maxmemory" + enter, `\r\n1# "maxmemory" => "0"\r\n` + prompt}, {"help UNLOCK" + enter, `Give a lock back(?s:.*)` + prompt}}},
		{"--stat -i 0.1", []step{{"", `keys +mem +clients(?s:.*)\r\n1 +[\d.]+[BKM] +\d+ +0 +\d+ \(\+\d+\)`}}},
		{"--bigkeys", []step{{"", `Biggest string found '"greeting"' has 5 bytes`}}},
		{"--memkeys", []step{{"", `Sampled 1 keys in the keyspace!`}}},
		{"--scan", []step{{"", `"greeting"\r\n`}}},
		{"--latency -i 1", []step{{"", `min: \d+, max: \d+, avg: [\d.]+ \(\d+ samples\)`}}},
	} {
		t.Run("redis-cli "+tt.args, func(t *testing.T) { openTerminal(t, p, tt.args).follow(t, tt.steps) })
	}
}

// leaveSubscription ends a subscription with Ctrl-C, which goes back to the prompt.
func leaveSubscription(t *testing.T, s *site) {
	term, other := openTerminal(t, s.Proxy, ""), redistest.Open(t, s.Addr())
	term.expect(t, prompt)
	term.press(t, "SUBSCRIBE left"+enter)
	term.expect(t, `1\) "subscribe"\r\n2\) "left"\r\n3\) \(integer\) 1\r\n`)
	if n := other.Do(t, "PUBLISH", "left", "hello").Int(); n != 1 {
		t.Errorf("%d got the message", n)
	}
	term.expect(t, `1\) "message"\r\n2\) "left"\r\n3\) "hello"\r\n`)
	term.press(t, controlC)
	term.expect(t, prompt)
	await(t, "nobody subscribes", func() bool { return other.Do(t, "PUBLISH", "left", "bye").Int() == 0 })
	term.press(t, "ECHO back"+enter)
	term.expect(t, `\r\n"back"\r\n`+prompt)
}

// leaveMonitor ends MONITOR with Ctrl-C, which goes back to the prompt.
func leaveMonitor(t *testing.T, s *site) {
	term, other := openTerminal(t, s.Proxy, ""), redistest.Open(t, s.Addr())
	term.expect(t, prompt)
	term.press(t, "MONITOR"+enter)
	term.expect(t, `\r\nOK\r\n`)
	other.Do(t, "SET", "monitored", "1")
	term.expect(t, `"SET" "monitored" "1"\r\n`)
	term.press(t, controlC)
	term.expect(t, prompt)
	term.press(t, "ECHO back"+enter)
	term.expect(t, `\r\n"back"\r\n`+prompt)
}

// leaveBlocked ends a blocking pop with Ctrl-C: the pop is over upstream too.
func leaveBlocked(t *testing.T, s *site) {
	term, other := openTerminal(t, s.Proxy, ""), redistest.Open(t, s.Addr())
	term.expect(t, prompt)
	term.press(t, "BLPOP left 0"+enter)
	await(t, "blocked", func() bool { return s.blocked(t) == 1 })
	term.press(t, controlC)
	await(t, "not blocked any more", func() bool { return s.blocked(t) == 0 })
	other.Do(t, "RPUSH", "left", "kept")
	if n := other.Do(t, "LLEN", "left").Int(); n != 1 {
		t.Errorf("%d elements: the pop was not over", n)
	}
}

// await waits until ok says yes.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never came true: ", what)
		}
	}
}
