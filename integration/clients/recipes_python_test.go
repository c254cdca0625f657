package clients

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// pythonRecipes starts a proxy, and returns its address and a folder with the recipes for Python. It skips the test as the others are.
func pythonRecipes(t *testing.T) (proxy *redistest.Proxy, python, to string) {
	t.Helper()
	if os.Getenv(switchVariable) == "" {
		t.Skipf("fetches client libraries; set %s=1", switchVariable)
	}
	dir, err := pythonPackage()
	if err != nil {
		t.Fatal(err)
	}
	to = t.TempDir()
	if err := os.CopyFS(to, os.DirFS(filepath.Join("..", "..", "docs", "recipes"))); err != nil {
		t.Fatal(err)
	}
	return redistest.StartProxy(t, redistest.Start(t), redistest.StartNodes(t, 3)), filepath.Join(dir, venvPython), to
}

// TestRecipes_Celery has tasks run by a worker of Celery.
func TestRecipes_Celery(t *testing.T) {
	proxy, python, to := pythonRecipes(t)
	shop := filepath.Join(to, "shop")
	program, err := filepath.Abs(filepath.Join("python", "celery_recipe.py"))
	if err := errors.Join(err, os.Mkdir(shop, 0o755), os.Rename(filepath.Join(to, "tasks.py"), filepath.Join(shop, "tasks.py"))); err != nil {
		t.Fatal(err)
	}
	cmd, cancel := bounded(programTimeout, python, program)
	defer cancel()
	cmd.Dir, cmd.Env = to, append(os.Environ(), "PYTHONPATH="+to, "PROXY="+proxy.Addr(), "DATABASE="+filepath.Join(to, "db"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "ok\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRecipes_Cron runs the job of the crontab as cron does, on three machines at once, with and without lockproxy run.
func TestRecipes_Cron(t *testing.T) {
	proxy, python, to := pythonRecipes(t)
	lockproxy, err := redistest.Binary()
	if err := errors.Join(err, os.Symlink(lockproxy, filepath.Join(to, "lockproxy"))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(to, "crontab"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "\n")
	job := strings.Join(strings.Fields(line)[5:], " ")
	for old, now := range map[string]string{"redis://10.0.0.7:6380": proxy.URL(), "python3 /srv/nightly.py": python + " nightly.py"} {
		if !strings.Contains(job, old) {
			t.Fatalf("%s has no %s", job, old)
		}
		job = strings.ReplaceAll(job, old, now)
	}
	database := filepath.Join(to, "sales")
	db, err := sql.Open("sqlite", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	reset := func() {
		for _, q := range []string{
			"DROP TABLE IF EXISTS sales", "CREATE TABLE sales (amount INTEGER)", "INSERT INTO sales VALUES (3), (4)",
			"DROP TABLE IF EXISTS summary", "CREATE TABLE summary (total INTEGER, night TEXT, fence INTEGER)", "INSERT INTO summary VALUES (0, '', 0)",
		} {
			if _, err := db.Exec(q); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(job string) int { // the exit code
		cmd, cancel := bounded(programTimeout, "sh", "-c", job)
		defer cancel()
		cmd.Dir = to
		cmd.Env = append(os.Environ(), "PATH="+to+":"+os.Getenv("PATH"), "DATABASE="+database, "LOCKPROXY_URL="+proxy.URL())
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Errorf("%s: %v\n%s", job, err, out)
		}
		if code := cmd.ProcessState.ExitCode(); code == 0 || code == 75 {
			return code
		}
		t.Errorf("%s: %v\n%s", job, err, out)
		return -1
	}
	for _, job := range []string{job, python + " nightly.py"} {
		reset()
		codes := make([]int, 3)
		var machines sync.WaitGroup
		for i := range codes {
			machines.Go(func() { codes[i] = run(job) })
		}
		machines.Wait()
		first := summary(t, db)
		if first.total != 7 || first.fence == 0 {
			t.Errorf("%s: ended with %v, and the summary is %v", job, codes, first)
		}
		if code := run(job); code != 0 || summary(t, db) != first {
			t.Errorf("%s: once more it ended with %d, and changed the summary to %v", job, code, summary(t, db))
		}
		c := redistest.Open(t, proxy.Addr())
		c.Do(t, "LOCK", "nightly", "60s", "OWNER", "another")
		if code := run(job); code != 75 {
			t.Errorf("%s: beside another it ended with %d", job, code)
		}
		c.Do(t, "UNLOCK", "nightly", "another")
	}
}

// A nightly is what the job of the night has written.
type nightly struct {
	total, fence int64
	night        string
}

func summary(t *testing.T, db *sql.DB) (n nightly) {
	t.Helper()
	if err := db.QueryRowContext(context.Background(), "SELECT total, night, fence FROM summary").Scan(&n.total, &n.night, &n.fence); err != nil {
		t.Fatal(err)
	}
	return n
}
