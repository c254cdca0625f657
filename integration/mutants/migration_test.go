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
	if os.Getenv("LOCKPROXY_MUTANTS") == "" {
		t.Skip("compiles the tests of commands/adopt once for every mutant; set LOCKPROXY_MUTANTS")
	}
	for _, m := range Migration {
		t.Run(m.Name, func(t *testing.T) {
			cmd := exec.Command(TestBinary(t, m.Name, "commands/adopt"), "-test.run", "^TestBoth|^TestOn_", "-test.timeout", "5m")
			cmd.Dir = filepath.Join("..", "..", "commands", "adopt")
			if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("--- FAIL")) {
				t.Errorf("no test noticed it: %s\n%s", m.Breaks, out)
			}
		})
	}
}
