package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
)

// TestConfig_OutputIsAnEqualFile: what config prints, used as a configuration file, gives the same settings again.
func TestConfig_OutputIsAnEqualFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("a.yaml", "max-ttl: 30s\nadopt:\n  - 'lock:* mode=on'\n  - \"mutex:* as=full\"\nlock-node: [redis://a:1, redis://b:1, redis://c:1]\n")
	password := write("up", "redis://u:hunter2@h:6379\n")
	env := map[string]string{"LOCKPROXY_LOG_LEVEL": "warn"}
	code, first, stderr := execute(t, env, "config", "--config", file, "--upstream-file", password, "--max-clients", "7")
	if code != exit.OK || stderr != "" {
		t.Fatalf("%d %s", code, stderr)
	}
	for _, want := range []string{
		"max-ttl: 30s # " + file + ":1\n", "max-clients: 7 # --max-clients\n", "log-level: warn # LOCKPROXY_LOG_LEVEL\n", "min-ttl: 100ms # default\n",
		"upstream-file: " + password + " ", "# admin: not set\n", "adopt:\n    # " + file + ":2\n    - lock:* mode=on\n    - mutex:* as=full\n", "# Servers\nlisten: ",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
	code, again, stderr := execute(t, nil, "config", "--config", write("b.yaml", first))
	comments := regexp.MustCompile(`(?m) *#.*$`)
	if a, b := comments.ReplaceAllString(first, ""), comments.ReplaceAllString(again, ""); code != exit.OK || a != b {
		t.Errorf("%d %s\n%s\nis then\n%s", code, stderr, a, b)
	}
}

func TestConfig_ShowsNoPasswordsAndAllFaults(t *testing.T) {
	env := map[string]string{"LOCKPROXY_ADMIN_PASSWORD": "hunter2", "LOCKPROXY_SENTINEL_PASSWORD": "hunter2"}
	code, stdout, stderr := execute(t, env, "config", "--upstream", "redis://u:hunter2@h:1",
		"--lock-node", "redis://a:1", "--lock-node", "redis://b:1?password=hunter2", "--lock-node", "redis://%zz:hunter2@", "--max-ttl", "5")
	if code != exit.Usage || !strings.Contains(stderr, "faults in the settings:") || !strings.Contains(stderr, `max-ttl: "5" has no unit`) {
		t.Errorf("%d %s", code, stderr)
	}
	if strings.Contains(stdout+stderr, "hunter2") {
		t.Errorf("a password in\n%s%s", stdout, stderr)
	}
	for _, want := range []string{"upstream: redis://u:xxxxx@h:1 # --upstream, password not shown\n", "# lock-node: not shown, from --lock-node", "# admin-password: not shown, from LOCKPROXY_ADMIN_PASSWORD\n", "max-ttl: 5 # --max-ttl\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if code, _, stderr := execute(t, nil, "config", "--upstream-file", "/none/such"); code != exit.Usage || !strings.Contains(stderr, "/none/such") {
		t.Errorf("a file that is not there: %d %s", code, stderr)
	}
}
