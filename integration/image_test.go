package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// The environment of `make image-test`: the image, the command of an engine that has it
// (docker, podman), and what else its run is to be told.
const (
	imageVariable  = "LOCKPROXY_TEST_IMAGE"
	engineVariable = "LOCKPROXY_TEST_ENGINE"
	runVariable    = "LOCKPROXY_TEST_RUNFLAGS"
)

// engine runs a command of the engine and returns its output. What it says besides is in
// the error.
func engine(args ...string) (string, error) {
	var said strings.Builder
	cmd := exec.Command(os.Getenv(engineVariable), args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, said.String())
	}
	return strings.TrimSpace(string(out)), err
}

func mustEngine(t *testing.T, args ...string) string {
	t.Helper()
	out, err := engine(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out
}

// runFlags are what the image is run with: nothing that it does not need.
func runFlags() []string {
	return append(strings.Fields(os.Getenv(runVariable)), "--network", "host", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
}

// TestImage runs the image that LOCKPROXY_TEST_IMAGE names as an operator would.
func TestImage(t *testing.T) {
	image := os.Getenv(imageVariable)
	if image == "" {
		t.Skip("make image-test runs this")
	}
	size, err := strconv.Atoi(mustEngine(t, "image", "inspect", "--format", "{{.Size}}", image))
	if err != nil || size > 64<<20 {
		t.Errorf("the image has %d bytes, %v", size, err)
	}
	t.Logf("the image has %.1f MB", float64(size)/1e6)
	if out := mustEngine(t, "image", "inspect", "--format", "{{.Config.Healthcheck.Test}}", image); !strings.Contains(out, "healthcheck") {
		t.Errorf("its health check is %q", out)
	}
	args := append([]string{"run", "--rm"}, runFlags()...)
	if out, err := engine(append(args, "--entrypoint", "/bin/sh", image, "-c", "exit 0")...); err == nil {
		t.Errorf("it has a shell: %s", out)
	}
	if out := mustEngine(t, append(args, image, "version")...); !strings.HasPrefix(out, "lockproxy ") {
		t.Errorf("its version is %q", out)
	}

	r := &rig{data: redistest.Start(t), nodes: redistest.StartNodes(t, 5)}
	addr, name := startContainer(t, image, r)
	c := redistest.Open(t, addr)
	c.Do(t, "SET", "k", "v")
	if v := r.data.Do(t, "GET", "k"); v.Text != "v" {
		t.Errorf("the upstream has %v", v)
	}
	mustLock(t, c, "job")
	if n := r.lockKeys(t); n < 3 {
		t.Errorf("the lock is on %d nodes", n)
	}
	pid := mustEngine(t, "inspect", "--format", "{{.State.Pid}}", name)
	if status, err := os.ReadFile("/proc/" + pid + "/status"); err != nil || !strings.Contains(string(status), "Uid:\t65532\t65532\t65532\t65532") {
		t.Errorf("its process is not of user 65532: %v\n%s", err, status)
	}

	c.Send(t, redistest.Command("DEBUG", "SLEEP", "1"))
	time.Sleep(200 * time.Millisecond) // so that it runs
	stopped := make(chan string, 1)
	go func() {
		_, err := engine("stop", "--time", "20", name)
		stopped <- fmt.Sprint(err)
	}()
	if v := c.Read(t); v.Text != "OK" {
		t.Errorf("what ran when the container was stopped is answered %v", v)
	}
	if got := <-stopped; got != "<nil>" {
		t.Errorf("stopping it: %s", got)
	}
	if code := mustEngine(t, "inspect", "--format", "{{.State.ExitCode}}", name); code != "0" {
		t.Errorf("it ended with %s", code)
	}
}

// startContainer runs the image in front of r, its servers' URLs in files, and returns
// when it is healthy.
func startContainer(t *testing.T, image string, r *rig) (addr, name string) {
	t.Helper()
	addr, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var urls []string
	for _, n := range r.nodes {
		urls = append(urls, n.URL())
	}
	for file, text := range map[string]string{"upstream": r.data.URL(), "lock-nodes": strings.Join(urls, "\n")} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { // for another user
		t.Fatal(err)
	}
	name = fmt.Sprintf("lockproxy-test-%d", os.Getpid())
	args := append([]string{"run", "--detach", "--name", name}, runFlags()...)
	args = append(args, "--volume", dir+":/run/secrets:ro", "--env", "LOCKPROXY_LISTEN="+addr,
		"--env", "LOCKPROXY_UPSTREAM_FILE=/run/secrets/upstream", "--env", "LOCKPROXY_LOCK_NODE_FILE=/run/secrets/lock-nodes", image)
	mustEngine(t, args...)
	t.Cleanup(func() {
		if t.Failed() {
			out, err := exec.Command(os.Getenv(engineVariable), "logs", name).CombinedOutput()
			t.Logf("%s\n%v", out, err)
		}
		_, _ = engine("rm", "--force", name)
	})
	eventually(t, 20*time.Second, "the container is healthy", func() bool {
		_, err := engine("exec", name, "/lockproxy", "healthcheck")
		return err == nil
	})
	return addr, name
}
