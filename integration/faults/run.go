package faults

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A Run is one torture.
type Run struct {
	Seed   uint64
	Length time.Duration
	Kinds  []string // of faults; see kinds in plan.go
	Nodes  int
	Pace   time.Duration // faults in a storm are up to so far apart; 0: 350ms
	MaxTTL time.Duration // 0: 2s
	Copies bool          // nodes forget throughout, and vote again by copies only: see copies.go; MaxTTL is for nothing then
	Args   []string      // of the proxies
	Watch  bool          // one more lock node is the master of a set that Sentinel watches over
	Mutant string        // whose build the proxies are; empty: none
}

// keepVariable names a directory for the journals of runs that failed; the Makefile sets it.
const keepVariable = "LOCKPROXY_TORTURE_KEEP"

const (
	patience     = 4                // times its length a run may take, until enough has happened
	progress     = 12 * time.Second // and three times that a node is out, and a lease, after the last fault until every name can be had everywhere
	linearWithin = 30 * time.Second // for porcupine, a name
)

// least is what must have happened in a minute for a run to show anything.
var least = map[string]int{
	"grants": 360, "grants after a wait": 120, "grants of sessions": 60, "renewals": 48, "unlocks": 180, "re-entries": 24,
	"elements behind fences": 24, "elements behind none": 24, "grants of SET NX": 36, "grants of hashes": 12, "values replaced": 24, "names " + mutexNames: 90, "elements refused by a fence": 1, "faults": 6,
	"grants of adopted keys": 75, "grants without an end": 8, "grants until a time": 8, "grants of one value": 5, "transactions": 16, "grants of readers": 60, "grants with others": 10,
}

// Do runs it and fails the test if anything is wrong. It stops as soon as something is.
func (r Run) Do(t *testing.T) {
	t.Helper()
	s := size{nodes: r.Nodes, proxies: 3, clients: 6, out: cmp.Or(r.MaxTTL, 2*time.Second)}
	if r.Copies {
		s.out, s.spares = copyWithin, true // the last proxy
	}
	w := newWorld(t, r, s)
	w.awaitVotes()
	if s.spares {
		s.proxies--
	}
	faults := plan(r.Seed, r.patience()*r.Length, s, r.Kinds, r.Pace)
	t.Logf("seed %d, %v of %s", r.Seed, r.Length, strings.Join(r.Kinds, ","))
	w.startClients(s.clients, r)
	began := time.Now()
	stop, broken := make(chan struct{}), make(chan error, 1)
	forgotten := w.beginCopies(r, stop)
	go func() { broken <- w.carryOut(faults, stop) }()
	var lateness sync.WaitGroup
	lateness.Go(func() { w.noteLateness(stop) })
	j := r.watch(w, began)
	close(stop)
	lateness.Wait()
	undone := errors.Join(<-broken, forgotten())
	w.stopClients()
	if undone != nil { // what was found shows nothing: nodes or proxies may be missing for good
		t.Fatalf("void: faults could not be done: %v", undone)
	}
	if len(j.found) == 0 {
		if r.Copies {
			w.freeAll()
		}
		w.awaitProgress()
	}
	j = r.judge(w)
	j.check()
	sets := j.sets(w.sets())
	var undecided []string
	if !j.unsafe {
		undecided = j.linear(linearWithin)
	}
	r.report(t, w, j, sets, undecided, time.Since(began))
}

// watch waits until the run is over, or something is wrong already. Where the machine is
// slow it goes on for longer, until enough has happened.
func (r Run) watch(w *world, began time.Time) *judge {
	for next := 2 * time.Second; ; {
		left := time.Until(began.Add(r.Length))
		if left < 0 {
			left = next
		}
		time.Sleep(min(next, left))
		from := time.Now()
		j := r.judge(w)
		j.check()
		took := time.Since(began)
		if len(j.found) > 0 || took >= r.patience()*r.Length || took >= r.Length && len(r.few(r.counts(w, j))) == 0 {
			return j
		}
		next = max(2*time.Second, 10*time.Since(from))
	}
}

// few is what has happened less often than it must.
func (r Run) few(counts map[string]int) (few []string) {
	for k, n := range r.least() {
		if want := n * int(r.Length/time.Second) / 60; counts[k] < want && (k != "faults" || r.plans()) {
			few = append(few, fmt.Sprintf("%d of %d %s", counts[k], want, k))
		}
	}
	return few
}

func (r Run) judge(w *world) *judge {
	w.mu.Lock()
	windows := slices.Clone(w.windows)
	for _, f := range w.failing {
		windows = append(windows, window{f, now()})
	}
	w.mu.Unlock()
	j := &judge{events: w.history(), faults: windows, longest: w.longest, out: w.out, unsafe: slices.Contains(r.Kinds, stepForward)}
	if slices.Contains(r.Kinds, "step-back") {
		j.back = mostBack
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	j.found = slices.Clone(w.found)
	return j
}

// plans reports whether anything is to fail, beside clocks that are wrong throughout.
func (r Run) plans() bool {
	return slices.ContainsFunc(r.Kinds, func(k string) bool { return k != "drift" && k != "skew" })
}

// report says what happened, and fails the test for what must not, or if it was too little.
func (r Run) report(t *testing.T, w *world, j *judge, sets setReport, undecided []string, took time.Duration) {
	t.Helper()
	counts := r.counts(w, j)
	counts["elements lost behind none, as late holders explain"] = sets.lost
	if j.unsafe {
		counts["times that two believed to have a lock, which a clock that steps forward may cause"] = j.overlaps
	}
	t.Logf("after %v: faults %v", took.Round(time.Second), w.begun)
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("  %6d %s", counts[k], k)
	}
	slices.Sort(j.found)
	for i, f := range slices.Compact(j.found) {
		if t.Error(f); i == 20 {
			t.Errorf("and more, %d in all", len(j.found))
			break
		}
	}
	if few := append(r.few(counts), undecided...); len(j.found) == 0 && len(few) > 0 {
		t.Errorf("void: too little happened to show anything: %s", strings.Join(few, ", "))
	}
	if verdict := "fences only grew, and the set behind fences lost nothing"; j.unsafe && !t.Failed() {
		t.Log(verdict)
	} else if !t.Failed() {
		t.Log("no two owners had one lock inside the validity that they were told, " + verdict)
	}
	if t.Failed() {
		t.Logf("to replay the plan and the clients' choices: %s", r.command())
		r.keep(t, w)
	}
}

// command replays the run.
func (r Run) command() string {
	if r.Copies {
		return fmt.Sprintf("LOCKPROXY_TORTURE_SEED=%d LOCKPROXY_TORTURE_TIME=%v go -C integration/faults test -v -run TestTortureOfCopies .", r.Seed, 3*r.Length)
	}
	return fmt.Sprintf("make torture SEED=%d TIME=%v FAULTS=%s", r.Seed, r.Length, strings.Join(r.Kinds, ","))
}

// keep copies the journals of a run that failed.
func (r Run) keep(t *testing.T, w *world) {
	t.Helper()
	to := os.Getenv(keepVariable)
	if to == "" {
		return
	}
	dir := filepath.Join(to, fmt.Sprint("torture-", r.Seed))
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	if err := os.CopyFS(dir, os.DirFS(w.dir)); err != nil {
		t.Error(err)
	}
	t.Logf("what the clients wrote down is in %s", dir)
}

// counts is how often what happened, faults too.
func (r Run) counts(w *world, j *judge) map[string]int {
	counts := j.counts()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.begun {
		counts["faults"] += n
	}
	maps.Copy(counts, w.counted)
	counts[leasesCopied] = j.outlasting(w.copied)
	return counts
}

// counts is how often what happened to clients.
func (j *judge) counts() map[string]int {
	n := map[string]int{}
	fences := map[ownerOf]int64{}
	for _, e := range j.events {
		countTransaction(n, e)
		switch {
		case e.Op == opLock && e.Reply == granted:
			countGrant(n, e, fences)
		case e.Op == opLock:
			n["LOCK: "+nothing(e.Reply)]++
		case e.Op == opKeep:
			n["sessions kept, or told: "+e.Reply]++
		case e.Op == opRenew && e.Reply == carried:
			n["renewals"]++
		case e.Op == opUnlock && e.Reply == carried && e.First:
			n["unlocks"]++
		case e.Op == opUnlock && !e.First && e.Req == "":
			n["late unlocks"]++
		case e.Op == opWrite:
			countWrite(n, e)
		case e.Op == opSwap && e.Reply == carried:
			n["values replaced"]++
		}
	}
	return n
}

// countGrant counts a grant in n; fences are those of each owner's last one.
func countGrant(n map[string]int, e *Event, fences map[ownerOf]int64) {
	n["grants"]++
	switch {
	case isDeadline(e.Owner):
		n["grants until a time"]++
	case e.Open:
		n["grants without an end"]++
	case e.Granted == 0:
		n["grants of one value"]++
	case isAdopted(e.Owner):
		n["grants of SET NX"]++
	}
	if isAdopted(e.Owner) || isHash(e.Owner) {
		n["grants of adopted keys"]++
	}
	if isHash(e.Owner) {
		n["grants of hashes"]++
	}
	if e.Takes != "" {
		n["grants that may replace another"]++
	}
	if e.Wait > 0 {
		n["grants after a wait"]++
	}
	if e.Shared {
		n["grants of readers"]++
	}
	if e.Permits > 0 {
		n["grants of permits"]++
	}
	if e.With > 0 {
		n["grants with others"]++
	}
	if e.Session {
		n["grants of sessions"]++
	}
	kind, _, _ := strings.Cut(e.Name, ":")
	n["names "+kind+":"]++
	if k := (ownerOf{e.Name, e.Owner}); fences[k] == e.Granted && e.Granted != 0 {
		n["re-entries"]++
	} else {
		fences[k] = e.Granted
	}
}

func countTransaction(n map[string]int, e *Event) {
	switch {
	case e.Tx && (e.Reply == granted || e.Reply == carried):
		n["transactions"]++
	case e.Tx && e.Reply == lost:
		n["transactions that did nothing"]++
	case e.Tx && e.Reply != held:
		n["transactions: "+nothing(e.Reply)]++
	}
}

func countWrite(n map[string]int, e *Event) {
	switch fenced := isFenced(e.Name); {
	case e.Reply == stale && fenced:
		n["elements refused by a fence"]++
	case e.Reply == carried && fenced:
		n["elements behind fences"]++
	case e.Reply == carried:
		n["elements behind none"]++
	}
}

func nothing(reply string) string {
	if reply == "" {
		return "no reply"
	}
	return reply
}

// awaitVotes returns when every proxy has all nodes voting.
func (w *world) awaitVotes() {
	w.tb.Helper()
	for i, p := range w.proxies {
		w.await(fmt.Sprintf("all nodes vote at proxy %d", i), func() error {
			v, err := ask(p, "LOCKCTL", "NODES")
			if err == nil && strings.Count(v.String(), `"voting"`) < w.voters {
				err = fmt.Errorf("%v", v)
			}
			return err
		})
	}
}

func ask(p *redistest.Proxy, args ...string) (redistest.Value, error) {
	return askServer(p.Addr(), args...)
}

// awaitProgress holds that after the last fault, and the last client, every name can be had
// through every proxy.
func (w *world) awaitProgress() {
	w.tb.Helper()
	w.awaitVotes()
	for i, p := range w.proxies {
		for _, name := range w.names {
			w.await(fmt.Sprintf("%s can be had at proxy %d", name, i), func() error {
				v, err := ask(p, "LOCK", name, "200ms", "WAIT", w.out.String())
				if err != nil || len(v.Elems) != 4 {
					return fmt.Errorf("LOCK answered %v %w", v, err)
				}
				_, err = ask(p, "UNLOCK", name, v.Elems[1].Text)
				return err
			})
		}
		w.awaitNothing(i, p)
	}
}

// mostFiles is what a proxy without clients may have open.
const mostFiles = 60

// awaitNothing holds that no lock, waiter, session or connection stays behind.
func (w *world) awaitNothing(i int, p *redistest.Proxy) {
	w.tb.Helper()
	w.await(fmt.Sprintf("nothing is left at proxy %d", i), func() error {
		list, err := ask(p, "LOCKCTL", "LIST", "COUNT", "1000")
		if err != nil || len(list.Elems) != 2 || len(list.Elems[1].Elems) > 0 {
			return fmt.Errorf("LOCKCTL LIST answered %v %w", list, err)
		}
		info, err := ask(p, "INFO", "lockproxy")
		if err != nil {
			return err
		}
		for _, none := range []string{"_waiting:0\r\n", "_sessions:0\r\n", "_session_locks:0\r\n"} {
			if !strings.Contains(info.Text, none) {
				return fmt.Errorf("no %q in %s", none, info.Text)
			}
		}
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
		if err == nil && len(files) > mostFiles {
			err = fmt.Errorf("%d files are open", len(files))
		}
		return err
	})
}

// await waits for as long as progress may take.
func (w *world) await(what string, try func() error) {
	w.tb.Helper()
	deadline := time.Now().Add(progress + 3*w.out + w.longest)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.tb.Fatalf("%s: not in time: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
