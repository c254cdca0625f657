package mutants

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMigrationNotices: the tests of package adopt fail with every broken build.
func TestMigrationNotices(t *testing.T) {
	unitTestsNotice(t, Migration, "commands/adopt", "^TestBoth|^TestOn_")
}

// TestKeptNotices: the tests of package quorum fail with every broken build.
func TestKeptNotices(t *testing.T) {
	unitTestsNotice(t, Kept, "backends/locks/quorum", "^TestOpen|^TestFoster")
}

// TestLateUnlockNotices: the tests of request ids fail where a late UNLOCK takes another hold.
func TestLateUnlockNotices(t *testing.T) {
	m, err := Find("late-unlock-takes-another")
	if err != nil {
		t.Fatal(err)
	}
	unitTestsNotice(t, []Mutant{m}, "backends/locks/quorum", "^TestReq_Late")
}

func unitTestsNotice(t *testing.T, all []Mutant, pkg, run string) {
	if os.Getenv("LOCKPROXY_MUTANTS") == "" {
		t.Skip("compiles the tests of " + pkg + " once for every mutant; set LOCKPROXY_MUTANTS")
	}
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			cmd := exec.Command(TestBinary(t, m.Name, pkg), "-test.run", run, "-test.timeout", "5m")
			cmd.Dir = filepath.Join("..", "..", filepath.FromSlash(pkg))
			if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("--- FAIL")) {
				t.Errorf("no test noticed it: %s\n%s", m.Breaks, out)
			}
		})
	}
}
