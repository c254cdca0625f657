package clients

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"

	"errors"
	"path/filepath"
	"sync"
)

// Redisson of today, and the last that releases without a latch, a key that keeps the answer of a release.
var (
	adoptedRedisson = sync.OnceValues(func() (string, error) { return installRedisson("4.7.0") })
	oldRedisson     = sync.OnceValues(func() (string, error) { return installRedisson("3.23.5") })
)

// installRedisson is a folder with that version, and our programs compiled against it.
func installRedisson(version string) (string, error) {
	dir, err := folder("adopt/redisson", "pom.xml", "Update.java", "Locks.java", "ReadWrite.java", "PageViews.java")
	if err != nil {
		return "", err
	}
	lib := filepath.Join(version, "lib")
	if _, err = os.Stat(filepath.Join(dir, lib)); err != nil {
		err = install(dir, "mvn", "-q", "-B", "dependency:copy-dependencies", "-Dredisson="+version, "-DoutputDirectory="+lib)
	}
	return filepath.Join(dir, version), errors.Join(err,
		install(dir, "javac", "-cp", filepath.Join(lib, "*"), "-d", filepath.Join(version, "classes"), "Update.java", "Locks.java", "ReadWrite.java", "PageViews.java"))
}

func redissonProgram(args ...string) []string {
	return append([]string{"java", "-cp", "classes:lib/*"}, args...)
}

// redissonLocks are what every version must be able to do, and the kinds of locks that are refused.
var (
	redissonLocks = []string{"lock", "spin", "multi", "multi-taken-back", "multi-extended", "lease", "try", "woken-by-message", "watchdog", "watchdog-of-many",
		"died", "entered-again", "not-the-holder", "forced", "fenced", "fenced-plain", "fenced-again", "fenced-watchdog", "fenced-woken",
		"rw-read", "rw-write", "rw-readers", "rw-again", "rw-downgrade", "rw-inner-read", "rw-upgrade", "rw-lease", "rw-try", "rw-woken", "rw-all-woken",
		"rw-watchdog", "rw-watchdog-of-many", "rw-died", "rw-not-the-holder", "rw-forced"}
	redissonRefused = []string{"fair", "token-of-nobody", "semaphore-permits", "semaphore-added", "semaphore-released", "semaphore",
		"expirable-semaphore", "expirable-semaphore-added", "expirable-semaphore-taken", "count-down-latch", "count-down", "counter"}
)

// redissons are the versions, and what does not pass on adopted keys.
var redissons = []struct {
	version   string
	installed func() (string, error)
	notYet    []string
}{
	{"4.7.0", adoptedRedisson, nil},
	{"3.23.5", oldRedisson, nil},
}

// TestAdopted_Redisson has Redisson do with its locks all that they promise, half of it at each of two proxies, and ask
// for those kinds that are refused.
func TestAdopted_Redisson(t *testing.T) {
	if os.Getenv(adoptedSwitch) == "" {
		t.Skipf("fetches lock libraries; set %s=1", adoptedSwitch)
	}
	for _, r := range redissons {
		t.Run(r.version, func(t *testing.T) {
			plain := redistest.Start(t)
			said := redissonSays(t, r.installed, plain.Addr(), plain.Addr())
			mustSay(t, said, "ok", redissonLocks)
			mustSay(t, said, "taken", redissonRefused)

			s := newAdoptedSite(t, "lock:* fence-key=redisson_lock_token:")
			said = redissonSays(t, r.installed, s.proxies[0].Addr(), s.proxies[1].Addr())
			mustSay(t, said, "ok", slices.DeleteFunc(slices.Clone(redissonLocks), func(name string) bool { return slices.Contains(r.notYet, name) }))
			mustSay(t, said, "failed", r.notYet)
			mustSay(t, said, "refused", redissonRefused)
			if keys := s.data.Do(t, "KEYS", "*"); len(keys.Elems) > 0 {
				t.Errorf("the upstream has the keys %v", keys)
			}
			for _, name := range redissonRefused {
				if locks := redistest.Open(t, s.proxies[0].Addr()).Do(t, "LOCKCTL", "INFO", "lock:"+name); !locks.Null {
					t.Errorf("refused, and held: %v", locks)
				}
			}
		})
	}
}

func redissonSays(t *testing.T, installed func() (string, error), addr, other string) []string {
	t.Helper()
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	program := redissonProgram("Locks")
	return strings.Split(string(output(t, dir, []string{"REDIS=" + addr, "OTHER=" + other}, program[0], program[1:]...)), "\n")
}

// mustSay fails the test for each name of which said has not word.
func mustSay(t *testing.T, said []string, word string, names []string) {
	t.Helper()
	for _, name := range names {
		i := slices.IndexFunc(said, func(line string) bool {
			_, about, _ := strings.Cut(line, " ")
			return strings.TrimSuffix(strings.SplitN(about+" ", " ", 2)[0], ":") == name
		})
		if i < 0 || !strings.HasPrefix(said[i], word+" ") {
			t.Errorf("%s is not %s: %v", name, word, said[max(0, i):min(len(said), max(0, i+1))])
		}
	}
}
