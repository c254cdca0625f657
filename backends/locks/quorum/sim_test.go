package quorum

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/scripts"
)

// simServers are the addresses of simulated nodes.
var simServers = func() (all []*backends.Server) {
	for i := range 5 {
		s, err := backends.Parse(fmt.Sprintf("node:%d", i+1))
		if err != nil {
			panic(err)
		}
		all = append(all, s)
	}
	return all
}()

func linkName(p, n int) string { return fmt.Sprintf("p%d-node %d", p, n) }
func nodeName(n int) string    { return fmt.Sprintf("node %d", n) }
func proxyName(p int) string   { return fmt.Sprintf("p%d", p) }

// simulate runs one seed in a bubble of its own.
func simulate(t *testing.T, seed uint64, trace bool) (w *simWorld) {
	t.Helper()
	defer patiently(seed)()
	synctest.Test(t, func(*testing.T) {
		w = newSimWorld(seed)
		w.trace = trace
		w.run()
	})
	return w
}

// patiently panics when a run takes two minutes and one of a processor, which most need a second of; on a busy machine it only
// says so, every two minutes: one that stands still ends with the test's timeout. The result ends it.
func patiently(seed uint64) (end func()) {
	used := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // which cannot fail
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began, ended := used(), atomic.Bool{}
	var later func()
	later = func() {
		time.AfterFunc(2*time.Minute, func() {
			switch text := fmt.Sprintf("seed %d does not end; again: %s", seed, replay(seed)); {
			case ended.Load():
			case used()-began > time.Minute:
				panic(text)
			default:
				fmt.Fprintln(os.Stderr, text)
				later()
			}
		})
	}
	later()
	return func() { ended.Store(true) }
}

// run is a whole run: clients and faults, then clients without faults, then the end.
func (w *simWorld) run() {
	h := w.history
	defer func() {
		for _, err := range w.end() {
			h.blame("", "%v", err)
		}
	}()
	if err := w.begin(); err != nil {
		h.blame("", "%v", err)
		return
	}
	w.with(func() {
		for _, n := range w.nodes {
			n.old = n.copyKeys()
		}
	})
	if w.busy(0, w.harm) {
		w.say("the faults are over")
		w.calm()
	}
}

// busy has clients act until meanwhile returns, and reports whether they have ended then.
func (w *simWorld) busy(first int, meanwhile func()) bool {
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range w.profile.clients {
		clients.Go(func() { w.newClient(first + i).run(stop) })
	}
	meanwhile()
	close(stop)
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(time.Minute + 30*w.profile.longest): // a session may be listened to for two leases, eight times
		w.history.blame("", "clients wait for ever")
		return false
	}
}

// calmLasts is for how long clients go on when nothing fails any more.
const calmLasts = 400 * time.Millisecond

// calm checks what must be so when nothing goes wrong: soon all nodes vote, every name is
// free after its lease, and nothing outlives its holder.
func (w *simWorld) calm() {
	h := w.history
	// Sought after startPatience at the latest, out for max-ttl, and without a floor for one more.
	if !w.voting(startingFor + 3*w.opts.MaxTTL + 3*eachProbe) {
		h.blame("", "the nodes do not vote again: %s", w.states())
		return
	}
	w.say("all nodes vote")
	if !w.busy(w.profile.clients, func() { time.Sleep(calmLasts) }) {
		return
	}
	c := &simClient{w: w, r: w.stream("calm"), who: "calm"}
	for i := range w.profile.names {
		name := fmt.Sprintf("n%d", i)
		for p := range w.proxies {
			c.progress(w.proxy(p), name)
		}
		c.handOver(w.proxy(0), w.proxy(1), name)
		c.balance(w.proxy(0), w.proxy(1), name)
		if w.profile.shares {
			c.readTogether(w.proxy(0), w.proxy(1), name)
		}
		if w.profile.permits {
			c.permitsTogether(w.proxy(0), w.proxy(1), name)
		}
	}
	if w.profile.several {
		c.allTogether(w.proxy(0), w.proxy(1))
	}
}

// progress locks and unlocks a name that somebody may have left locked.
func (c *simClient) progress(p *simProxy, name string) {
	h := c.w.history
	b, a, err := c.lock(p, locks.LockRequest{Key: locks.Key{Name: name}, TTL: time.Second, Wait: c.w.opts.MaxTTL + time.Second}, 0)
	if b == nil {
		h.blame(name, "nobody can lock it after the faults: %+v, %v", a, err)
		return
	}
	h.ended(b)
	if left, _, err := c.unlock(p, b, locks.UnlockRequest{}); err != nil || left != 0 {
		h.blame(name, "it cannot be given back after the faults: %d, %v", left, err)
	}
}

// handOver has one wait at another proxy for a lock whose holder crashes: its lease ends,
// or, in a session, the grace.
func (c *simClient) handOver(p, other *simProxy, name string) {
	const ttl, late = 400 * time.Millisecond, 150 * time.Millisecond
	for _, session := range []bool{false, true} {
		r := locks.LockRequest{Key: locks.Key{Name: name}, TTL: ttl, Wait: time.Second}
		if session {
			r.Session = p.svc.NewSession(nil)
		}
		h, began := c.w.history, time.Now()
		b, a, err := c.lock(p, r, 0)
		if b == nil {
			h.blame(name, "not granted after the faults: %+v, %v", a, err)
			return
		}
		within := time.Since(began) + ttl + ttl/50 + late
		if session {
			c.sleep(3 * ttl)
			h.ended(b)
			r.Session.End()
			began, within = time.Now(), c.w.opts.SessionGrace+late
		}
		b, a, err = c.lock(other, locks.LockRequest{Key: locks.Key{Name: name}, TTL: ttl, Wait: 5 * time.Second}, 0)
		if b == nil {
			h.blame(name, "not granted after its holder crashed: %+v, %v", a, err)
			return
		}
		if took := time.Since(began); took > within {
			h.blame(name, "it outlived its holder: free after %v, %v were due (session: %v)", took, within, session)
		}
		h.ended(b)
		_, _, _ = c.unlock(other, b, locks.UnlockRequest{})
	}
}

// balance takes a name three times as one owner, one of them with a request that is sent
// twice, through two proxies, and gives it back: every number must be right.
func (c *simClient) balance(p, other *simProxy, name string) {
	h, owner := c.w.history, c.owner()
	var b *simBelief
	for i, step := range []struct {
		p     *simProxy
		req   string
		holds int
	}{{p, "", 1}, {other, "once", 2}, {p, "once", 2}, {p, "", 3}} {
		now, a, err := c.lock(step.p, locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: time.Second, Req: step.req}, 0)
		if now == nil || a.Grant.Holds != step.holds {
			h.blame(name, "step %d: %+v, %v, %d holds were due", i, a, err, step.holds)
			return
		}
		if b != nil && now != b {
			h.blame(name, "step %d: a re-entry has fence %d, not %d", i, now.fence, b.fence)
		} else {
			b = now
		}
	}
	for i, step := range []struct {
		p    *simProxy
		req  string
		left int
	}{{other, "once", 2}, {p, "once", 2}, {p, "", 1}, {other, "", 0}, {p, "", 0}} {
		if step.left == 0 {
			h.ended(b)
		}
		if left, _, err := c.unlock(step.p, b, locks.UnlockRequest{Req: step.req}); err != nil || min(left, 1) != min(step.left, 1) {
			h.blame(name, "step %d of giving back: %d left, %v, %d were due", i, left, err, step.left)
		}
	}
}

func simEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// TestSimulation runs some hundred seeds, or LOCKPROXY_SIM_SEEDS, from LOCKPROXY_SIM_FIRST
// on, or for as long as LOCKPROXY_SIM_TIME says, of LOCKPROXY_SIM_PROFILE only if that is
// set; with LOCKPROXY_SIM_SEED one, whose history it prints.
func TestSimulation(t *testing.T) {
	defer oneProcessor()()
	if s := os.Getenv("LOCKPROXY_SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		w := simulate(t, seed, true)
		for _, e := range w.history.sorted() {
			fmt.Println(e)
		}
		w.report(t)
		return
	}
	first, n := simEnv("LOCKPROXY_SIM_FIRST", 1), simEnv("LOCKPROXY_SIM_SEEDS", 120)
	if testing.Short() {
		n = min(n, 40)
		if raceDetector {
			n = min(n, 12)
		}
	}
	long, err := time.ParseDuration(os.Getenv("LOCKPROXY_SIM_TIME"))
	if err == nil {
		n = math.MaxInt32
	}
	only := os.Getenv("LOCKPROXY_SIM_PROFILE")
	began, total := time.Now(), map[string]int{}
	grants, runs := map[string]int{}, map[string]int{}
	for seed := first; seed-first < n && !t.Failed() && (long == 0 || time.Since(began) < long); seed++ {
		for _, seed := range runsOf(seed, only != "") {
			if only != "" && profileOf(seed).name != only || t.Failed() {
				continue
			}
			w := simulate(t, seed, false)
			w.report(t)
			grants[w.profile.name] += w.history.grants
			runs[w.profile.name]++
			for what, n := range w.history.counts {
				total[what] += n
			}
			total["seeds"]++
			total["grants"] += w.history.grants
		}
	}
	took := time.Since(began)
	t.Logf("%v, %.0f seeds a minute: %v", took.Round(time.Millisecond), float64(total["seeds"])/took.Minutes(), total)
	for _, what := range []string{"hand-overs", "joined calls"} {
		if !t.Failed() && len(runs) > 5 && total[what] == 0 {
			t.Errorf("void: no %s", what)
		}
	}
	for profile, n := range runs {
		if !t.Failed() && n >= 5 && grants[profile] < 4*n {
			t.Errorf("void: %q made only %d grants in %d runs", profile, grants[profile], n)
		}
	}
}

// TestMain has nodes run the scripts of the directory LOCKPROXY_SIM_SCRIPTS, if that is set: those of a mutant.
func TestMain(m *testing.M) {
	if dir := os.Getenv("LOCKPROXY_SIM_SCRIPTS"); dir != "" {
		useScripts(dir)
	}
	os.Exit(m.Run())
}

func useScripts(dir string) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name+".lua"))
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	for _, s := range scripts.All() {
		s.Source = scripts.Compose(s.Name, read)
		s.SHA1 = scripts.SHA1(s.Source)
	}
}

// runsOf are the runs of a number: that seed, and for one in six, or for each, one with adopted clients, one with locks
// without an end, one with readers, one with permits, one with several names and one with copies.
func runsOf(n int, each bool) []uint64 {
	more := n
	switch {
	case each:
	case n%6 == 0:
		more /= 6 // of every profile
	default:
		return []uint64{uint64(n)}
	}
	return []uint64{uint64(n), adoptedSeeds + uint64(more), keptSeeds + uint64(more), sharedSeeds + uint64(more), permitSeeds + uint64(more),
		severalSeeds + uint64(more), copySeeds + uint64(more)}
}

// oneProcessor has goroutines run one at a time, in an order that does not change as long
// as none is interrupted, and collects less garbage. The result reinstates it.
func oneProcessor() func() {
	processors, percent := runtime.GOMAXPROCS(1), debug.SetGCPercent(400)
	return func() {
		runtime.GOMAXPROCS(processors)
		debug.SetGCPercent(percent)
	}
}

// TestSimulation_Repeats runs seeds again: all that is told, and what each node does, must be
// the same. Where several goroutines may go on at one moment the runtime chooses another
// one first now and then, mostly on a busy machine, and a run differs from there on: so
// most seeds have to have two runs among a few that are the same.
func TestSimulation_Repeats(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector runs goroutines in a random order")
	}
	defer oneProcessor()()
	same := 0
	for seed := range uint64(len(simProfiles)) {
		if repeats(t, seed) {
			same++
		}
	}
	if same <= len(simProfiles)/2 {
		t.Errorf("only %d seeds of %d repeat", same, len(simProfiles))
	}
}

// repeats runs a seed until two runs are the same.
func repeats(t *testing.T, seed uint64) bool {
	var runs [][]simEvent
	for range 4 {
		run := simulate(t, seed, true).history.sorted()
		for _, other := range runs {
			if i := differ(run, other); i >= 0 {
				t.Logf("seed %d is another run from here on:\n%s\nor\n%s", seed, lines(run, i), lines(other, i))
			} else {
				return true
			}
		}
		runs = append(runs, run)
	}
	return false
}

// differ is where two histories do, negative if nowhere.
func differ(a, b []simEvent) int {
	for i := range max(len(a), len(b)) {
		if i == len(a) || i == len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// lines are those of a history around the i-th.
func lines(all []simEvent, i int) string {
	var b strings.Builder
	for _, e := range all[min(max(0, i-3), len(all)):min(i+3, len(all))] {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// replay is the command that repeats a seed.
func replay(seed uint64) string {
	return fmt.Sprintf("LOCKPROXY_SIM_SEED=%d go test ./backends/locks/quorum -run 'TestSimulation$' -count=1 -v", seed)
}

// report fails the test for every promise that was broken.
func (w *simWorld) report(t *testing.T) {
	t.Helper()
	for i, wrong := range w.history.wrong {
		if i == 3 {
			break
		}
		t.Errorf("seed %d (%s): %s: %s\n%s\nagain: %s",
			w.seed, w.profile.name, wrong.name, wrong.text, w.history.excerpt(wrong.name, wrong.at, 60), replay(w.seed))
	}
}
