package clients

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runRedisPy(t *testing.T, addr string) map[string]bool {
	dir, sdist := published(t, "redis==8.1.0", "redis-8.1.0")
	return pythonTests(t, dir, sdist, nil, "--redis-url", "redis://"+addr+"/9", "tests/test_lock.py", "tests/test_asyncio/test_lock.py")
}

// runPottery leaves out one test that fails at one Redis as well: it wants the text of another version of redis-py's client.
func runPottery(t *testing.T, addr string) map[string]bool {
	dir, sdist := published(t, "pottery==3.0.1", "pottery-3.0.1")
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	aimed(t, filepath.Join(sdist, "tests"), to, []string{"test_redlock.py", "test_aioredlock.py"},
		"localhost:6379", addr, "host=localhost,port=6379", "host="+host+",port="+port)
	return pythonTests(t, dir, to, []string{"REDIS=" + addr}, "-p", "masters", "-o", "asyncio_mode=auto", "--deselect", "test_redlock.py::TestRedlock::test_releaseunlockedlock_repr",
		"test_redlock.py", "test_aioredlock.py")
}

// runPythonRedisLock has the tests start a stand-in where they start redis-server. It leaves out those of reset_all, a script
// that deletes all locks by a pattern.
func runPythonRedisLock(t *testing.T, addr string) map[string]bool {
	dir, sdist := published(t, "python-redis-lock==4.0.1", "python_redis_lock-4.0.1")
	bin := t.TempDir()
	standin := fmt.Sprintf("#!/bin/sh\nexec %s %s %s \"$@\"\n", filepath.Join(dir, venvPython), filepath.Join(dir, "standin.py"), addr)
	if err := os.WriteFile(filepath.Join(bin, "redis-server"), []byte(standin), 0o755); err != nil {
		t.Fatal(err)
	}
	return pythonTests(t, dir, sdist, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, "-p", "no:asyncio", "-k", "not reset_all", "tests/test_redis_lock.py")
}

// published is the environment for Python, and in it a package as published, with its tests.
func published(t *testing.T, requirement, folder string) (dir, sdist string) {
	t.Helper()
	dir, err := adoptedPython()
	if err != nil {
		t.Fatal(err)
	}
	sdist = filepath.Join(dir, folder)
	if _, err := os.Stat(sdist); err != nil {
		if err := errors.Join(
			install(dir, venvPython, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:", requirement),
			install(dir, "tar", "xzf", folder+".tar.gz")); err != nil {
			t.Fatal(err)
		}
	}
	return dir, sdist
}

// pythonTests runs tests in a folder, with the plugins of the environment dir.
func pythonTests(t *testing.T, dir, in string, env []string, args ...string) map[string]bool {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.xml")
	args = append([]string{"-m", "pytest", "-q", "--tb=line", "--junitxml", report}, args...)
	out := output(t, in, append(env, "PYTHONPATH="+dir), filepath.Join(dir, venvPython), args...)
	return reported(t, report, out)
}

// reported reads a report of JUnit's kind, of a run that printed out.
func reported(t *testing.T, report string, out []byte) map[string]bool {
	t.Helper()
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	type testcase struct {
		Class   string    `xml:"classname,attr"`
		Name    string    `xml:"name,attr"`
		Failure *struct{} `xml:"failure"`
		Error   *struct{} `xml:"error"`
		Skipped *struct{} `xml:"skipped"`
	}
	// The root is one suite, or has suites.
	var root struct {
		Cases  []testcase `xml:"testcase"`
		Nested []testcase `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(b, &root); err != nil {
		t.Fatal(err)
	}
	o := outcome{}
	for _, c := range append(root.Cases, root.Nested...) {
		class := strings.TrimPrefix(c.Class, "tests.")
		o[class+"."+c.Name] = c.Failure == nil && c.Error == nil && c.Skipped == nil
	}
	if len(o.failed()) > 0 {
		t.Logf("%.3000s", out)
	}
	return o
}
