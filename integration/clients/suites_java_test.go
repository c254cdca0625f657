package clients

import (
	"path/filepath"
	"sync"
	"testing"
)

var shedLockTests = sync.OnceValues(func() (string, error) { return javaClasses("adopt/shedlock", "ShedLockTests.java") })

// runShedLock leaves out two tests. shouldNotBeAbleToExtendExpiredLock has a lock for a millisecond or two, which min-ttl makes longer. And
// lockShouldSurviveCacheClearingInTheMiddle is for providers that remember which locks they have stored; those for Redis are no such.
func runShedLock(t *testing.T, addr string) map[string]bool {
	dir, err := shedLockTests()
	if err != nil {
		t.Fatal(err)
	}
	reports := t.TempDir()
	args := []string{"-cp", "classes:lib/*", "org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner", "--details=summary", "--reports-dir", reports}
	for _, class := range []string{"Lettuce", "Jedis", "Reactive"} {
		args = append(args, "--select-class", "ShedLockTests$"+class)
	}
	out := output(t, dir, []string{"REDIS=" + addr}, "java", args...)
	o := reported(t, filepath.Join(reports, "TEST-junit-jupiter.xml"), out)
	for _, class := range []string{"Lettuce", "Jedis"} {
		delete(o, "ShedLockTests$"+class+".shouldNotBeAbleToExtendExpiredLock()")
	}
	return o
}
