package mutants

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestMigrationNotices: the tests of package adopt fail with every broken build.
func TestMigrationNotices(t *testing.T) {
	unitTestsNotice(t, Migration, Units{"commands/adopt", "^TestBoth|^TestFollowCopy_"})
}

// TestKeptNotices: the tests of package quorum fail with every broken build.
func TestKeptNotices(t *testing.T) {
	unitTestsNotice(t, Kept, Units{"backends/locks/quorum", "^TestOpen|^TestRenewEndless"})
}

// TestSettlingNotices: the tests of package quorum fail with every broken build.
func TestSettlingNotices(t *testing.T) {
	unitTestsNotice(t, Settling, Units{"backends/locks/quorum", "^TestLateVote|^TestUndo|^TestUnlock_(CountsHolds|StaleGrantAtALateNode)|^TestRelease_(Spares|Keeps)"})
}

// TestEtcdNotices: the tests of package etcd fail with every broken build.
func TestEtcdNotices(t *testing.T) {
	if os.Getenv("LOCKPROXY_MUTANTS") == "" {
		t.Skip("compiles the tests of a package once for every mutant; set LOCKPROXY_MUTANTS")
	}
	for _, m := range Etcd {
		t.Run(m.Name, func(t *testing.T) { m.noticedBy(t, m.Units) })
	}
}

// TestReadingNotices: the tests of readers, of permits and of several names fail with every broken script that the simulation may not notice.
func TestReadingNotices(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the tests of package quorum")
	}
	binary := filepath.Join(t.TempDir(), "quorum.test")
	compile(t, Mutant{Name: "no mutant"}, nil, "test", "-c", "-vet=off", "-o", binary, module+"/"+simulated)
	sound := exec.Command(binary, "-test.run", sharedScriptTests.Run+"|"+permitScriptTests.Run+"|"+severalScriptTests.Run+"|TestCopyScript|TestShared_Older")
	sound.Dir = filepath.Join("..", "..", filepath.FromSlash(simulated))
	if out, err := sound.CombinedOutput(); err != nil {
		t.Fatalf("without a mutant: %v\n%s", err, out)
	}
	for _, m := range slices.Concat(Reading, Seating, Several, Copying) {
		if m.onlyScripts() && m.Units != (Units{}) {
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(binary)
				cmd.Env = append(os.Environ(), "LOCKPROXY_SIM_SCRIPTS="+m.scripts(t))
				m.failed(t, cmd, m.Units)
			})
		}
	}
}

// TestSeveralNotices: the tests of LOCKs of several names fail with every broken build. TestReadingNotices has the scripts.
func TestSeveralNotices(t *testing.T) {
	if os.Getenv("LOCKPROXY_MUTANTS") == "" {
		t.Skip("compiles the tests of a package once for every mutant; set LOCKPROXY_MUTANTS")
	}
	for _, m := range Several {
		if !m.onlyScripts() && m.Units != (Units{}) {
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				m.noticedBy(t, m.Units)
			})
		}
	}
}

// TestUnitsNotice: the tests that are named fail with every broken build.
func TestUnitsNotice(t *testing.T) {
	if os.Getenv("LOCKPROXY_MUTANTS") == "" {
		t.Skip("compiles the tests of a package once for every mutant; set LOCKPROXY_MUTANTS")
	}
	reading := slices.DeleteFunc(slices.Concat(Reading, Seating, Copying), Mutant.onlyScripts) // TestReadingNotices has the scripts
	for _, m := range slices.Concat(All, Decisions, Handing, Lining, reading) {                // the others have tests of their own
		if m.Units != (Units{}) {
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				m.noticedBy(t, m.Units)
			})
		}
	}
}

func unitTestsNotice(t *testing.T, all []Mutant, by Units) {
	t.Helper()
	if os.Getenv("LOCKPROXY_MUTANTS") == "" {
		t.Skip("compiles the tests of " + by.Package + " once for every mutant; set LOCKPROXY_MUTANTS")
	}
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) { m.noticedBy(t, by) })
	}
}

// noticedBy fails the test if these do not fail.
func (m Mutant) noticedBy(t *testing.T, by Units) {
	t.Helper()
	m.failed(t, exec.Command(TestBinary(t, m.Name, by.Package)), by)
}

// failed fails the test if the command, a binary of tests with the mutant, does not fail.
func (m Mutant) failed(t *testing.T, cmd *exec.Cmd, by Units) {
	t.Helper()
	cmd.Args = append(cmd.Args, "-test.run", by.Run, "-test.timeout", "5m")
	cmd.Dir = filepath.Join("..", "..", filepath.FromSlash(by.Package))
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("--- FAIL")) {
		t.Errorf("no test noticed it: %s\n%s", m.Breaks, out)
		return
	}
	t.Logf("%s", firstFailure(out))
}

// firstFailure is the name of the test that failed first.
func firstFailure(out []byte) []byte {
	_, rest, _ := bytes.Cut(out, []byte("--- FAIL: "))
	name, _, _ := bytes.Cut(rest, []byte("\n"))
	return name
}
