package clients

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// pythonPackage is the folder of [pythonPrograms], where our package is installed, and its tests are in folder package/tests.
var pythonPackage = sync.OnceValues(func() (string, error) {
	dir, err := pythonPrograms()
	if err != nil {
		return "", err
	}
	// A copy, since building leaves files in the folder of the package.
	from, to := filepath.Join("..", "..", "clients", "python"), filepath.Join(dir, "package")
	if err := os.RemoveAll(to); err != nil {
		return "", err
	}
	for _, part := range []string{"lockproxy", "tests"} {
		if err := os.CopyFS(filepath.Join(to, part), os.DirFS(filepath.Join(from, part))); err != nil {
			return "", err
		}
	}
	for _, file := range []string{"pyproject.toml", "README.md", "LICENSE"} {
		b, err := os.ReadFile(filepath.Join(from, file))
		if err := errors.Join(err, os.WriteFile(filepath.Join(to, file), b, 0o644)); err != nil {
			return "", err
		}
	}
	return dir, install(dir, venvPython, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall", "--no-deps", "./package")
})

// TestPackagePython runs the tests of clients/python as the package is installed, at two proxies that share lock
// nodes and one that speaks TLS.
func TestPackagePython(t *testing.T) {
	if os.Getenv(switchVariable) == "" {
		t.Skipf("fetches client libraries; set %s=1", switchVariable)
	}
	dir, err := pythonPackage()
	if err != nil {
		t.Fatal(err)
	}
	data, nodes, ca := redistest.Start(t), redistest.StartNodes(t, 3), redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "proxy")
	one, other := redistest.StartProxy(t, data, nodes), redistest.StartProxy(t, data, nodes)
	secure := redistest.StartProxy(t, data, nodes, "--tls-cert", cert, "--tls-key", key)
	passed := regexp.MustCompile(`\nRan [1-9]\d* tests? in .*\n\nOK\n$`)
	var all sync.WaitGroup
	for _, tests := range []string{"test_lease", "test_sync.AnswersTest", "test_sync.Resp2", "test_sync.Resp3", "test_asyncio.AnswersTest", "test_asyncio.Resp2", "test_asyncio.Resp3"} {
		all.Go(func() { // they wait more than they compute
			cmd, cancel := bounded(programTimeout, filepath.Join(dir, venvPython), "-m", "unittest", tests)
			defer cancel()
			cmd.Dir = filepath.Join(dir, "package", "tests")
			cmd.Env = append(os.Environ(), "PROXIES="+one.Addr()+" "+other.Addr(), "TLS_PROXY="+secure.Addr(), "TLS_CA="+ca.File)
			if out, err := cmd.CombinedOutput(); err != nil || !passed.Match(out) {
				t.Errorf("%s: %v\n%s", tests, err, out)
			}
		})
	}
	all.Wait()
	nothingLeft(t, nodes)
	readme, err := os.ReadFile(filepath.Join(dir, "package", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(shown) != 3 {
		t.Errorf("the README of the package shows %d programs", len(shown))
	}
	_, port, _ := strings.Cut(one.Addr(), ":")
	for _, program := range shown {
		for range 2 { // a lock that was not given back is not granted again
			out := output(t, dir, nil, filepath.Join(dir, venvPython), "-c", strings.ReplaceAll(program[1], "6380", port))
			if !regexp.MustCompile(`^mine, fences?( \d{16})+\s*$`).Match(out) {
				t.Errorf("%s\nprints %s", program[1], out)
			}
		}
	}
}
