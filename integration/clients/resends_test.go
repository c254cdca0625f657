package clients

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// resending are programs that take and give back one lock with our packages.
var resending = []struct {
	name      string
	installed func() (string, error)
	args      []string
}{
	{"redis-py", pythonPackage, []string{venvPython, filepath.Join("package", "tests", "resends.py"), "sync"}},
	{"redis-py asyncio", pythonPackage, []string{venvPython, filepath.Join("package", "tests", "resends.py"), "asyncio"}},
	{"ioredis", javascriptPackage, []string{"node", filepath.Join("package", "test", "resends.js"), "ioredis RESP3"}},
	{"node-redis", javascriptPackage, []string{"node", filepath.Join("package", "test", "resends.js"), "node-redis RESP3"}},
	{"Jedis", javaPackage, []string{"java", "-cp", javaTests, "io.github.lockproxy.Resends", "JEDIS_RESP2"}},
	{"Lettuce", javaPackage, []string{"java", "-cp", javaTests, "io.github.lockproxy.Resends", "LETTUCE_RESP3"}},
}

// TestResends runs each program twice at once, for 4 s, over a link that loses replies and
// holds them up for longer than the client waits: never do both have the lock, fences
// grow, and no hold stays behind.
func TestResends(t *testing.T) {
	if os.Getenv(switchVariable) == "" {
		t.Skipf("fetches client libraries; set %s=1", switchVariable)
	}
	for _, r := range resending {
		t.Run(r.name, func(t *testing.T) {
			dir, err := r.installed()
			if err != nil {
				t.Fatal(err)
			}
			data, nodes := redistest.Start(t), redistest.StartNodes(t, 3)
			var to []string
			for range 2 {
				to = append(to, redistest.StartProxy(t, data, nodes).Addr())
			}
			link := redistest.StartLink(t, 500*time.Millisecond, to...)
			var o order
			enough := func() bool { return o.locks >= 5 && link.Lost.Load() >= 3 && link.Delayed.Load() >= 3 }
			for range 10 { // on a busy machine once is too few
				o.watch(t, dir, link.Addr().String(), r.args)
				if enough() || t.Failed() {
					break
				}
			}
			t.Logf("%d locks, %d connections lost, %d replies late", o.locks, link.Lost.Load(), link.Delayed.Load())
			if !enough() {
				t.Error("too few to show anything")
			}
			nothingLeft(t, nodes)
		})
	}
}

// nothingLeft fails unless every hold is gone long before its lease is over.
func nothingLeft(t *testing.T, nodes []*redistest.Server) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		n := 0
		for _, s := range nodes {
			n += len(s.Do(t, "KEYS", "lockproxy:lock:*").Elems)
		}
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("%d holds are left", n)
			return
		}
	}
}

// An order is who has the lock, as the programs say.
type order struct {
	owner string
	fence int64
	locks int
}

// watch runs a program twice at once. They write to one pipe, which keeps what they say in
// order.
func (o *order) watch(t *testing.T, dir, addr string, args []string) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			cmd, cancel := bounded(programTimeout, args[0], args[1:]...)
			defer cancel()
			cmd.Dir, cmd.Stdout = dir, in
			cmd.Env = append(os.Environ(), "PROXY="+addr, "SECONDS=4", fmt.Sprint("WHO=", i))
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Run(); err != nil {
				t.Errorf("program %d: %v\n%s", i, err, stderr.String())
			}
		})
	}
	go func() {
		wg.Wait()
		_ = in.Close()
	}()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		o.hear(t, lines.Text())
	}
}

func (o *order) hear(t *testing.T, line string) {
	t.Helper()
	var fence int64
	who, what, _ := strings.Cut(line, " ")
	switch n, _ := fmt.Sscanf(what, "locked %d", &fence); {
	case n == 1 && (o.owner != "" || fence <= o.fence):
		t.Errorf("%s has fence %d while %q has it, with %d", who, fence, o.owner, o.fence)
	case n == 1:
		o.owner, o.fence = who, fence
		o.locks++
	case what == "unlocking" && o.owner == who:
		o.owner = ""
	default:
		t.Error(line)
	}
}
