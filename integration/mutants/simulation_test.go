package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// found is how the simulation reports a broken promise.
var found = regexp.MustCompile(`seed \d+ \([a-z ]+\): .*`)

// TestSimulationNotices: every broken build fails the simulation within some hundred seeds.
func TestSimulationNotices(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the tests of backends/locks once for every mutant")
	}
	for _, m := range All {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel() // a simulation takes one processor
			cmd := exec.Command(TestBinary(t, m.Name, "backends/locks"), "-test.run", "^TestSimulation$", "-test.timeout", "5m")
			cmd.Dir = filepath.Join("..", "..", "backends", "locks")
			cmd.Env = append(os.Environ(), "LOCKPROXY_SIM_SEEDS=600", "LOCKPROXY_SIM_FIRST=1", "LOCKPROXY_SIM_SEED=", "LOCKPROXY_SIM_TIME=")
			out, err := cmd.CombinedOutput()
			switch sign := found.Find(out); {
			case err == nil:
				t.Errorf("600 seeds did not notice it: %s", m.Breaks)
			case sign == nil:
				t.Errorf("the simulation did not run: %v\n%s", err, out)
			default:
				t.Logf("%s", sign)
			}
		})
	}
}
