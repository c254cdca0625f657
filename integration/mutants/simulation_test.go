package mutants

import (
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// found is how the simulation reports a broken promise.
var found = regexp.MustCompile(`seed \d+ \([a-z, ]+\): .*`)

// bound is how many seeds may not notice a mutant; where it has a profile only about one in
// ten of them is run.
func bound(m Mutant) int {
	if m.Profile != "" {
		return 2200
	}
	return 600
}

// TestSimulationNotices: every broken build fails the simulation within some hundred seeds.
func TestSimulationNotices(t *testing.T) {
	all := t
	if testing.Short() {
		t.Skip("compiles the tests of backends/locks/quorum")
	}
	var simulations Simulations
	for _, m := range slices.Concat(All, Kept, Several, Reading, Seating, Copying) {
		if m.Rare || m.hard() || m.tooSlow() { // unit tests and the torture have those that are rare or hard
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel() // a simulation takes one processor
			cmd := simulations.Command(all, t, m.Name, "-test.timeout", "10m")
			cmd.Env = append(cmd.Env, "LOCKPROXY_SIM_SEEDS="+strconv.Itoa(bound(m)), "LOCKPROXY_SIM_PROFILE="+m.Profile,
				"LOCKPROXY_SIM_FIRST=1", "LOCKPROXY_SIM_SEED=", "LOCKPROXY_SIM_TIME=")
			out, err := cmd.CombinedOutput()
			switch sign := found.Find(out); {
			case err == nil:
				t.Errorf("%d seeds did not notice it: %s", bound(m), m.Breaks)
			case sign == nil:
				t.Errorf("the simulation did not run: %v\n%s", err, out)
			default:
				t.Logf("after %v of a processor: %s", cmd.ProcessState.UserTime(), sign)
			}
		})
	}
}
