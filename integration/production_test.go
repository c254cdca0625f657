package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestPages_Production installs what docs/production.md shows, from its files and with its commands, on loopback addresses in
// place of the page's, and compares the answers.
func TestPages_Production(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ports := make([]string, 3)
	for i := range ports {
		addr, err := redistest.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		_, ports[i], _ = strings.Cut(addr, ":")
	}
	network := fmt.Sprintf("127.%d.", 2+os.Getpid()%250)
	page := strings.NewReplacer("10.0.", network, "6379", ports[0], "6380", ports[1], "6381", ports[2],
		"/etc/lockproxy", dir, "/etc/redis", dir).Replace(string(text))

	shown := func(language, start string) (all []string) {
		for _, block := range blocksOf(page, language) {
			if strings.HasPrefix(block, start) {
				all = append(all, block)
			}
		}
		return all
	}
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, block := range shown("", "# "+dir) {
		name, content, _ := strings.Cut(block, "\n")
		write(filepath.Base(name), content)
	}
	write("users.acl", shown("", "user default off")[0])
	for i := 1; i <= 3; i++ {
		conf := regexp.MustCompile(`bind .*`).ReplaceAllString(shown("", "bind ")[0], fmt.Sprintf("bind %s1.%d", network, i))
		startServer(t, fmt.Sprintf("%s1.%d:%s", network, i, ports[0]), "redis-server", write(fmt.Sprint("redis", i, ".conf"), conf))
	}
	upstream := startServer(t, network+"0.1:"+ports[0], "redis-server", "--bind", network+"0.1", "--port", ports[0], "--save", "")
	for line := range strings.Lines(shown("", "ACL SETUSER")[0]) {
		if v := upstream.Do(t, strings.Fields(line)...); v.IsError() {
			t.Fatalf("%s%s", line, v)
		}
	}

	binary, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	settings := shown("yaml", "listen: ")
	second := write("second.yaml", settings[1])
	first := write("lockproxy.yaml", settings[0])
	sessions := sessionsOf(page)
	if len(sessions) != 3 || len(settings) != 2 {
		t.Fatalf("the page shows %d sessions and the settings of %d proxies, want 3 and 2", len(sessions), len(settings))
	}
	sessions[0].play(t, "", "") // check
	startServer(t, network+"2.1:"+ports[1], binary, "serve", "--config", first)
	startServer(t, network+"2.2:"+ports[1], binary, "serve", "--config", second)
	sessions[1].play(t, "", "") // init
	sessions[2].play(t, "for i in 1 2; do until lockproxy nodes --proxy redis://ops:ops-secret@"+network+"2.$i:"+ports[1]+" | grep '^3 of 3'; do sleep 0.1; done; done", "")
}

// startServer starts a program, and returns a connection to it when it listens there. It ends with the test.
func startServer(t *testing.T, addr, name string, args ...string) *redistest.Conn {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("%s %v said:\n%s", name, args, out.String())
		}
	})
	var c *redistest.Conn
	eventually(t, time.Minute, addr+" listens", func() (ok bool) {
		var err error
		c, err = redistest.Dial(addr)
		return err == nil
	})
	t.Cleanup(func() { c.Close() })
	return c
}
