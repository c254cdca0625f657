package clients

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// switchVariable, when not empty, runs the tests.
const switchVariable = "LOCKPROXY_CLIENTS"

// checks are what every client must be able to do through the proxy.
var checks = []string{"strings", "pipeline", "transaction", "blocking", "pubsub", "script", "scan", "select", "auth", "large", "locks", "reconnect"}

// programTimeout bounds a smoke program; installTimeout what fetches its library.
const (
	programTimeout = 2 * time.Minute
	installTimeout = 5 * time.Minute
)

func TestMain(m *testing.M) {
	code := m.Run()
	redistest.RemoveBinary()
	os.Exit(code)
}

// startProxy is a proxy with an upstream and three lock nodes of its own, or skips.
func startProxy(t *testing.T) *redistest.Proxy {
	t.Helper()
	if os.Getenv(switchVariable) == "" {
		t.Skipf("fetches client libraries; set %s=1", switchVariable)
	}
	data := redistest.Start(t)
	data.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~app:*", "&*", "+@all")
	return redistest.StartProxy(t, data, redistest.StartNodes(t, 3), "--drain-timeout", "1s")
}

// cache is the folder below bin/clients of that name, made if need be.
func cache(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "bin", "clients", name))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyTo copies files of this package into a folder.
func copyTo(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// install runs a command in dir that must succeed.
func install(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// smoke runs a program and holds it to the checks in each protocol version.
func smoke(t *testing.T, p *redistest.Proxy, dir, protocols, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PROXY="+p.Addr(), "PROTOCOLS="+protocols)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := attend(t, p, stdout, stdin)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, stderr.String())
	}
	for _, protocol := range strings.Fields(protocols) {
		for _, check := range checks {
			if !said["ok "+protocol+" "+check] {
				t.Errorf("%s in %s is not ok", check, protocol)
			}
		}
	}
	if t.Failed() {
		t.Logf("%s", stderr.String())
	}
}

// attend collects what a program says and restarts the proxy when it asks.
func attend(t *testing.T, p *redistest.Proxy, out io.Reader, in io.Writer) map[string]bool {
	t.Helper()
	said := map[string]bool{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		said[line] = true
		switch {
		case line == "restart":
			p.Terminate(5 * time.Second)
			if err := p.Restart(); err != nil {
				t.Error(err)
			}
			fmt.Fprintln(in)
		case !strings.HasPrefix(line, "ok "):
			t.Error(line)
		}
	}
	return said
}

func TestRedisPy(t *testing.T) {
	p := startProxy(t)
	dir := cache(t, "python")
	python := filepath.Join(dir, "venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		install(t, dir, "python3", "-m", "venv", "venv")
	}
	copyTo(t, dir, "python/requirements.txt", "python/smoke.py")
	install(t, dir, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt")
	smoke(t, p, dir, "resp2 resp3", python, "smoke.py")
}

func TestIORedis(t *testing.T) {
	p := startProxy(t)
	smoke(t, p, nodeModules(t), "resp2 resp3", "node", "ioredis.mjs")
}

func TestNodeRedis(t *testing.T) {
	p := startProxy(t)
	smoke(t, p, nodeModules(t), "resp2 resp3", "node", "node-redis.mjs")
}

func nodeModules(t *testing.T) string {
	t.Helper()
	dir := cache(t, "node")
	copyTo(t, dir, "node/package.json", "node/checks.mjs", "node/ioredis.mjs", "node/node-redis.mjs")
	install(t, dir, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent")
	return dir
}

func TestJedis(t *testing.T) { smokeJava(t, "JedisSmoke") }

func TestLettuce(t *testing.T) { smokeJava(t, "LettuceSmoke") }

func smokeJava(t *testing.T, program string) {
	t.Helper()
	p := startProxy(t)
	dir := cache(t, "java")
	source := program + ".java"
	copyTo(t, dir, "java/pom.xml", "java/Checks.java", "java/"+source)
	install(t, dir, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
	install(t, dir, "javac", "-cp", "lib/*", "-d", "classes", "Checks.java", source)
	smoke(t, p, dir, "resp2 resp3", "java", "-cp", "classes:lib/*", program)
}
