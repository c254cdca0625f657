package faults

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// What a torture is told by the environment; the Makefile sets them.
const (
	timeVariable   = "LOCKPROXY_TORTURE_TIME"    // how long it lasts, as a duration; 10s without it
	seedVariable   = "LOCKPROXY_TORTURE_SEED"    // that was printed
	kindsVariable  = "LOCKPROXY_TORTURE_FAULTS"  // only these, with commas
	nodesVariable  = "LOCKPROXY_TORTURE_NODES"   // lock nodes; 3 without it
	paceVariable   = "LOCKPROXY_TORTURE_PACE"    // faults in a storm are up to so far apart
	ttlVariable    = "LOCKPROXY_TORTURE_MAX_TTL" // of the proxies; 2s without it
	mutantVariable = "LOCKPROXY_TORTURE_MUTANT"  // of which the proxies are a build, see integration/mutants
)

func TestMain(m *testing.M) {
	if RunClient() {
		return
	}
	redistest.Main(m)
}

// TestTorture: whatever fails, nobody has what another has, fences grow, and what is
// behind them stays whole.
func TestTorture(t *testing.T) {
	only, err := parseKinds(os.Getenv(kindsVariable))
	if err != nil {
		t.Fatal(err)
	}
	r := Run{
		Seed: rand.Uint64(), Length: duration(t, timeVariable, 10*time.Second), Pace: duration(t, paceVariable, 0),
		Kinds: only, Nodes: 3, MaxTTL: duration(t, ttlVariable, 0), Mutant: os.Getenv(mutantVariable),
	}
	if s := os.Getenv(seedVariable); s != "" {
		if r.Seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if s := os.Getenv(nodesVariable); s != "" {
		if r.Nodes, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	r.Watch = slices.Contains(only, failover)
	r.Do(t)
}

// TestTortureOfCopies: the same where nodes forget all the time and only what they copy from others lets them vote again, while
// leases are longer than that.
func TestTortureOfCopies(t *testing.T) {
	if testing.Short() {
		t.Skip("one torture is enough")
	}
	r := Run{Seed: rand.Uint64(), Length: duration(t, timeVariable, 60*time.Second) / 3, Kinds: copyKinds, Nodes: 5, Pace: time.Second, Copies: true}
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if r.Seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	r.Do(t)
}

// TestClockThatStepsForward: a lock node whose clock jumps ahead frees its locks early, and
// two may have one. What is behind fences does not care.
func TestClockThatStepsForward(t *testing.T) {
	if testing.Short() {
		t.Skip("one torture is enough")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(errNoCompiler)
	}
	Run{Seed: rand.Uint64(), Length: 5 * time.Second, Kinds: []string{stepForward, "node-pause", "proxy-pause"}, Nodes: 3}.Do(t)
}

// TestFailover: a lock node that fails over, with Sentinel, to a replica that may not have
// heard of a lease sits it out.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("one torture is enough")
	}
	Run{Seed: rand.Uint64(), Length: 8 * time.Second, Kinds: []string{failover, "node-pause", "cut"}, Nodes: 2, Watch: true}.Do(t)
}

func duration(t *testing.T, variable string, otherwise time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return d
}
