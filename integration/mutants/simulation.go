package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// simulated is the package whose tests have the simulation.
const simulated = "backends/locks/quorum"

// simulationNeeds are files of its tests that the simulation needs, beside those whose names begin with sim_. The others are
// left out: to compile them takes as long as most mutants live.
var simulationNeeds = []string{"harness_test.go", "locks_test.go", "recovery_test.go", "race_off_test.go", "race_on_test.go"}

// Simulations run the simulation with mutants. Those that are about scripts alone share one binary, which is told the scripts. The zero
// value is ready; it is safe for concurrent use.
type Simulations struct {
	once   sync.Once
	shared string
}

// Command is the simulation with a mutant. tb is the test that it is for; all outlives it, and is the same for all of them.
func (s *Simulations) Command(all, tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	m, env := find(tb, name), os.Environ()
	var path string
	if m.onlyScripts() {
		s.once.Do(func() { s.shared = simulation(all, Mutant{Name: "no mutant"}) })
		if path = s.shared; path == "" {
			tb.Fatal("the simulation could not be compiled")
		}
		env = append(env, "LOCKPROXY_SIM_SCRIPTS="+m.scripts(tb))
	} else {
		path = simulation(tb, m)
	}
	cmd := exec.Command(path, append([]string{"-test.run", "^TestSimulation$"}, args...)...)
	cmd.Dir, cmd.Env = filepath.Join("..", "..", filepath.FromSlash(simulated)), env
	return cmd
}

// simulation compiles it.
func simulation(tb testing.TB, m Mutant) string {
	tb.Helper()
	root, err := moduleRoot()
	if err != nil {
		tb.Fatal(err)
	}
	tests, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(simulated), "*_test.go"))
	if err != nil {
		tb.Fatal(err)
	}
	without := slices.DeleteFunc(tests, func(path string) bool {
		base := filepath.Base(path)
		return strings.HasPrefix(base, "sim_") || slices.Contains(simulationNeeds, base)
	})
	path := filepath.Join(tb.TempDir(), "simulation.test")
	compile(tb, m, without, "test", "-c", "-vet=off", "-o", path, module+"/"+simulated)
	return path
}

// tooSlow reports whether make test leaves the mutant to make mutants: to compile a package for each took half of its time. Those of the
// scripts share one binary.
func (m Mutant) tooSlow() bool { return os.Getenv("LOCKPROXY_MUTANTS") == "" && !m.onlyScripts() }

// onlyScripts reports whether the mutant edits nothing but scripts.
func (m Mutant) onlyScripts() bool {
	return !slices.ContainsFunc(m.Edits, func(e Edit) bool { return !strings.HasPrefix(e.File, "scripts/") })
}

// scripts writes all scripts as the mutant has them, and returns the directory.
func (m Mutant) scripts(tb testing.TB) string {
	tb.Helper()
	root, err := moduleRoot()
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "scripts"))); err != nil {
		tb.Fatal(err)
	}
	for _, e := range m.Edits {
		path := filepath.Join(dir, filepath.Base(e.File))
		if err := e.apply(path, path); err != nil {
			tb.Fatalf("%s: %s: %v", m.Name, e.File, err)
		}
	}
	return dir
}
