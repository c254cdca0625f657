package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestPages_Sessions types what pages show behind a prompt, and compares the answers. Each block is played at a lockproxy dev of
// its own: behind a shell's prompt by one shell, behind that of redis-cli over one connection.
func TestPages_Sessions(t *testing.T) {
	t.Parallel()
	for _, page := range []struct {
		name, without string   // blocks in which this is found are not played: they need other servers or a second terminal
		played        int      // how many blocks are
		args          []string // of lockproxy dev
	}{
		{"docs/verbs.md", `ASYNC`, 6, nil},
		{"docs/adopt.md", `LOCKCTL ADOPT|adopt check`, 4, []string{"--adopt", "lock:*"}},
		{"docs/lockctl.md", `import|LOCKCTL (NODES|ADOPT)`, 1, []string{"--adopt", "lock:*"}},
	} {
		t.Run(filepath.Base(page.name), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../" + page.name)
			if err != nil {
				t.Fatal(err)
			}
			played := 0
			for _, session := range sessionsOf(string(text)) {
				if regexp.MustCompile(page.without).MatchString(session.text) {
					continue
				}
				played++
				admin, err := redistest.FreeAddr()
				if err != nil {
					t.Fatal(err)
				}
				proxy := redistest.StartDev(t, append([]string{"--admin", admin}, page.args...)...)
				_, port, _ := strings.Cut(proxy.Addr(), ":")
				for i, command := range session.commands {
					session.commands[i] = strings.NewReplacer("127.0.0.1:6381", admin, "6380", port).Replace(command)
				}
				session.play(t, `export LOCKPROXY_PROXY=`+proxy.URL()+`
until redis-cli -e -p `+port+` LOCK ready 100ms && redis-cli -e -p `+port+` GET lock:ready; do sleep 0.1; done`, port)
			}
			if played != page.played {
				t.Errorf("%d sessions were played, want %d", played, page.played)
			}
		})
	}
}

// A session is a block of code that begins with a prompt.
type session struct {
	text              string
	redis             bool // the prompt is that of redis-cli, not of a shell
	commands, answers []string
}

// blocksOf returns the blocks of code of a page, without their indentation, that are said to be of this language.
func blocksOf(page, language string) (all []string) {
	for _, block := range regexp.MustCompile("(?ms)^( *)```(\\w*)\n(.*?)^ *```$").FindAllStringSubmatch(page, -1) {
		if block[2] == language {
			all = append(all, regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[3], ""))
		}
	}
	return all
}

func sessionsOf(page string) (all []session) {
	prompt := regexp.MustCompile(`^(\$|(127\.0\.0\.1:6380)?>) `)
	for _, text := range blocksOf(page, "") {
		if !prompt.MatchString(text) {
			continue
		}
		s := session{text: text, redis: !strings.HasPrefix(text, "$ ")}
		for line := range strings.Lines(text) {
			if p := prompt.FindString(line); p != "" {
				s.commands, s.answers = append(s.commands, strings.TrimPrefix(line, p)), append(s.answers, "")
			} else {
				s.answers[len(s.answers)-1] += line
			}
		}
		all = append(all, s)
	}
	return all
}

// play types the commands in a shell that has run before, and redis-cli's in one for this port.
func (s session) play(t *testing.T, before, port string) {
	t.Helper()
	path, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	const mark = "behind this is an answer"
	typed := `redis-cli() { command redis-cli --no-raw --no-auth-warning "$@"; }` + "\n" + `lockproxy() { "$BINARY" "$@"; }` + "\n" + before + "\n"
	say := "echo '" + mark + "'\n"
	if s.redis {
		typed += "exec redis-cli --no-raw -p " + port + "\n" // which goes on reading where the shell has stopped
	}
	for _, command := range s.commands {
		typed += say + command
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash")
	shell.Dir, shell.Stdin = t.TempDir(), strings.NewReader(typed)
	shell.Env = append(os.Environ(), "BINARY="+path)
	out, _ := shell.CombinedOutput() // the error is that of the last command
	if ctx.Err() != nil {
		t.Fatalf("%s\nhas not ended after a minute: %s", s.text, out)
	}
	answers := regexp.MustCompile(`(?m)^"?`+mark+`"?\n`).Split(string(out), -1)[1:]
	if len(answers) != len(s.commands) {
		t.Fatalf("%s\n%d answers to %d commands: %s", s.text, len(answers), len(s.commands), out)
	}
	for i, command := range s.commands {
		if !sameAnswer(s.answers[i], answers[i]) {
			t.Errorf("%s$ %sit answers\n%s\nthe page shows\n%s", s.text, command, answers[i], s.answers[i])
		}
	}
}

// sameAnswer compares an answer with what a page shows, in which "..." stands for any lines, and a note may stand behind a
// value. Fences, times, ports and generated owners differ from run to run.
func sameAnswer(page, answer string) bool {
	for _, r := range []struct{ old, now string }{
		{`(?m)^(\d\) .*?) {6,}\S.*`, "$1"},
		{`\b[A-Z2-7]{26}\b`, "OWNER"},
		{`\d nodes agree`, "N nodes agree"}, // on a busy machine not all
		{`(\d[\d.]*(ms|s|m|h))+|\d{4,}`, "N"},
	} {
		re := regexp.MustCompile(r.old)
		page, answer = re.ReplaceAllString(page, r.now), re.ReplaceAllString(answer, r.now)
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(page)), `\.\.\.`, `(?s:.*)`)
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSpace(answer))
}
