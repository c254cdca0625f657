package faults

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/mutants"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

const (
	mutantsVariable = "LOCKPROXY_MUTANTS" // not empty: run TestMutants; the names of some, with commas, or 1 for all
	mutantLives     = 3 * time.Minute     // on real servers, until it counts as not noticed
	simulationLives = 2 * time.Minute     // in the simulation
	simulationSays  = "LOCKPROXY_SIM_SEEDS=1000000"
)

// tempting are the faults under which a mutant shows soonest; those not here show in the mix.
var tempting = map[string]string{
	"no-drift":                "client-pause,client-kill,drift",
	"kept-by-one":             "skew,proxy-kill,node-pause,partition,cut,aimed-cut",
	"no-second-round":         "skew,node-pause,partition,proxy-pause,cut,aimed-cut",
	"no-quarantine":           forgetful,
	"undo-by-owner":           "proxy-pause,node-pause,client-pause,half-open,delay",
	"relative-holds":          "proxy-pause,node-pause,client-pause,half-open,delay",
	"renewal-after-validity":  "node-pause,proxy-pause,client-pause,partition,delay",
	"revival":                 "node-pause,proxy-pause,client-pause,partition,delay",
	"validity-from-the-reply": "aimed-pause,delay,client-pause,client-kill",
	"unlock-by-owner":         "client-pause,delay",
	"force-unnoted":           "force,proxy-pause,aimed-cut,aimed-pause",
	"short-quarantine":        forgetful,
	"enlisted-at-once":        "node-flush,aimed-cut,client-pause",
	"shortened-unnoted":       "aimed-cut,aimed-pause,client-pause,delay",
	"note-ignored":            "aimed-cut,aimed-pause,client-pause,delay",
	"renewal-from-the-reply":  "aimed-pause,delay,client-pause,client-kill",
	"session-to-the-end":      "aimed-cut,partition,proxy-pause,cut",
	"lease-cut-short":         "client-pause,delay",
	"fence-of-the-first":      "skew,node-pause,partition,proxy-pause,cut,aimed-cut",
	"restart-unseen":          forgetful,
	"renewal-by-one":          "node-pause,aimed-pause,aimed-cut,cut",
}

// forgetful are the faults that show what a node that forgot must not do.
const forgetful = "forget-in-turn,client-pause,aimed-cut"

// longer are max-ttls other than the usual, for what shows while a lease lasts.
var longer = map[string]string{"enlisted-at-once": "6s", "no-drift": "20s", "kept-by-one": "6s"}

const notNoticed = "not noticed"

// simulationSign is how the simulation reports a broken promise.
var simulationSign = regexp.MustCompile(`seed \d+ \([a-z, ]+\): `)

// TestMutants: every broken build is noticed; the table says how soon, in the simulation
// and on real servers.
func TestMutants(t *testing.T) {
	which := os.Getenv(mutantsVariable)
	if which == "" {
		t.Skip(mutantsVariable + " is not set: this takes many minutes (make mutants)")
	}
	var table strings.Builder
	var simulations mutants.Simulations
	fmt.Fprintf(&table, "%-24s %-12s %-12s %s\n", "mutant", "simulation", "real servers", "first sign there")
	reading := slices.DeleteFunc(slices.Clone(mutants.Reading), func(m mutants.Mutant) bool { return m.Rare }) // unit tests have them
	for _, m := range slices.Concat(mutants.All, reading) {
		if which != "1" && !strings.Contains(","+which+",", ","+m.Name+",") {
			continue
		}
		simulated := simulated(t, &simulations, m.Name)
		took, sign := tortured(t, m.Name)
		if took == "" {
			took = notNoticed
		}
		if took == notNoticed && simulated == notNoticed {
			t.Errorf("%s was not noticed: %s", m.Name, m.Breaks)
		}
		fmt.Fprintf(&table, "%-24s %-12s %-12s %s\n", m.Name, simulated, took, sign)
		t.Logf("%s: simulation %s, real servers %s: %s", m.Name, simulated, took, sign)
	}
	t.Log("\n" + table.String())
}

// simulated is in how many seconds the simulation fails.
func simulated(t *testing.T, s *mutants.Simulations, name string) string {
	t.Helper()
	cmd := s.Command(t, t, name, "-test.timeout", simulationLives.String(), "-test.failfast")
	m, err := mutants.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, simulationSays, "LOCKPROXY_SIM_PROFILE="+m.Profile)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err == nil || !simulationSign.Match(out) {
		return notNoticed
	}
	return seconds(began)
}

// tortured is in how many seconds the torture fails for a reason, and the reason: by other
// seeds each time, for as long as the mutant may live.
func tortured(t *testing.T, name string) (took, sign string) {
	t.Helper()
	bin := mutants.Build(t, name)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for seed := 1; time.Since(began) < mutantLives; seed++ {
		cmd := exec.Command(self, "-test.run", "^TestTorture$", "-test.v")
		cmd.Env = append(os.Environ(), redistest.BinaryVariable+"="+bin, mutantVariable+"="+name, timeVariable+"=60s", paceVariable+"=200ms",
			kindsVariable+"="+tempting[name], ttlVariable+"="+longer[name], seedVariable+"="+strconv.Itoa(seed))
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		if sign := firstSign(string(out)); sign != "" {
			return seconds(began), sign
		}
		t.Logf("%s, seed %d, failed for no reason that counts:\n%s", name, seed, out)
	}
	return "", ""
}

// firstSign is the first accusation in the output of a torture. A void run, or one that
// could not start, has none.
func firstSign(out string) string {
	for line := range strings.Lines(out) {
		for _, n := range names {
			if _, said, ok := strings.Cut(line, ": "+n); ok {
				return n + strings.TrimSpace(said)
			}
		}
	}
	return ""
}

func seconds(began time.Time) string { return fmt.Sprintf("%.0fs", time.Since(began).Seconds()) }
