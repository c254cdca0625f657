package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// names are of the locks that clients fight for.
var names = []string{mutexNames + "a", mutexNames + "b", updateNames + "c", fencedNames + "d", timedNames + "e"}

// A world is what a run happens in. Everything ends with the test.
type world struct {
	tb       testing.TB
	dir      string
	seed     uint64
	maxTTL   time.Duration // of the proxies
	longest  time.Duration // lease of clients
	out      time.Duration // see size
	names    []string
	upstream *redistest.Server
	nodes    []*node
	watched  *redistest.Sentinel // nil, or one more lock node
	voters   int                 // lock nodes
	links    links
	shas     map[string]string // of scripts, by name
	proxies  []*redistest.Proxy
	clients  []*client
	targets  sync.Map // string -> *sync.Mutex; of what fails, one fault at a time
	own      *journal // what the harness did

	mu      sync.Mutex
	windows []window
	failing map[fault]instant // what fails now, since when
	begun   map[string]int    // faults, by kind
	counted map[string]int    // what else happened
	copied  []window          // from when a node lost its memory until it votes again
	found   []string          // what is wrong, beside what the clients wrote down
	events  int64
}

// A node is a lock node with a clock of its own, nil if clocks cannot be shifted here.
type node struct {
	*redistest.Server
	clock *clock
}

// persistence is what nodes keep, in turn.
var persistence = [][]string{
	nil,
	{"--appendonly", "yes", "--appendfsync", "everysec"},
	{"--appendonly", "yes", "--appendfsync", "always"},
}

// newWorld starts everything but the clients.
func newWorld(tb testing.TB, r Run, s size) *world {
	tb.Helper()
	w := &world{tb: tb, dir: tb.TempDir(), seed: r.Seed, maxTTL: s.out, longest: s.out, out: s.out, names: names, voters: s.nodes,
		upstream: redistest.Start(tb), begun: map[string]int{}, counted: map[string]int{}, failing: map[fault]instant{}}
	if r.Copies {
		w.maxTTL, w.longest, w.names = time.Hour, longestCopied, slices.Concat(names, moreNames)
	}
	j, err := openJournal(filepath.Join(w.dir, "harness"))
	if err != nil {
		tb.Fatal(err)
	}
	w.own = j
	if w.shas, err = shas(r.Mutant); err != nil {
		tb.Fatal(err)
	}
	lib, err := buildShim(w.dir)
	if err != nil && !errors.Is(err, errNoCompiler) {
		tb.Fatal(err)
	}
	if err != nil {
		tb.Logf("clocks are left alone: %v", err)
	}
	var addrs []string
	for i := range s.nodes {
		w.nodes = append(w.nodes, w.startNode(i, lib, r))
		addrs = append(addrs, w.nodes[i].Addr())
	}
	if w.links, err = openLinks(s.proxies, addrs); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(w.links.close)
	if r.Watch {
		w.watched = redistest.StartSentinel(tb, 2, 3)
		w.voters++
	}
	for p := range s.proxies {
		w.proxies = append(w.proxies, w.startProxy(p, slices.Concat(r.adopting(), r.Args)))
	}
	return w
}

func (w *world) startNode(i int, lib string, r Run) *node {
	args := persistence[(i+int(w.seed%3))%len(persistence)]
	if r.Copies { // see lose
		args = nil
	}
	if lib == "" {
		return &node{Server: redistest.Start(w.tb, args...)}
	}
	ppm := int64(0)
	if slices.Contains(r.Kinds, "drift") {
		random := w.random(i)
		if ppm = 3000 + random.Int64N(1500); random.IntN(2) == 0 { // any two within 1 %
			ppm = -ppm
		}
	}
	c, err := newClock(w.dir, lib, ppm)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.tb.Cleanup(c.close) // after the server, which is started later
	if slices.Contains(r.Kinds, "skew") && i == w.random(-1).IntN(w.voters) {
		c.step(3 * time.Second)
	}
	return &node{redistest.StartWith(w.tb, c.env, args...), c}
}

// random is the source of what the seed decides about one node, or with -1 about all.
func (w *world) random(node int) *rand.Rand { return rand.New(rand.NewPCG(w.seed, uint64(node+2))) }

func (w *world) startProxy(p int, args []string) *redistest.Proxy {
	addr, err := redistest.FreeAddr()
	if err != nil {
		w.tb.Fatal(err)
	}
	all := []string{"--upstream", w.upstream.URL(), "--max-ttl", w.maxTTL.String(), "--fence-retention", max(10*time.Minute, 2*w.maxTTL).String()}
	for i, l := range w.links[p] {
		all = append(all, "--lock-node", fmt.Sprintf("redis://%s?id=%d", l.tap.Addr(), i))
	}
	if w.watched != nil {
		all = append(all, "--lock-node", w.watched.URL())
	}
	return redistest.StartServe(w.tb, addr, slices.Concat(all, args)...)
}

// A client is a process that locks and works, see RunClient.
type client struct {
	conf  clientConfig
	cmd   *exec.Cmd
	stdin io.Closer
}

func (w *world) startClients(n int, r Run) {
	var proxies []string
	for _, p := range w.proxies {
		proxies = append(proxies, p.Addr())
	}
	for id := range n {
		c := &client{conf: clientConfig{Seed: w.seed, ID: id, Proxies: proxies, Names: w.names, MaxTTL: w.longest, Copies: r.Copies}}
		if err := w.startClient(c); err != nil {
			w.tb.Fatal(err)
		}
		w.clients = append(w.clients, c)
		w.tb.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	}
}

func (w *world) startClient(c *client) error {
	c.conf.Journal = filepath.Join(w.dir, fmt.Sprintf("client-%d-%d", c.conf.ID, c.conf.Life))
	text, err := json.Marshal(c.conf)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.cmd = exec.Command(self)
	c.cmd.Env = append(os.Environ(), clientVariable+"="+string(text))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	return c.cmd.Start()
}

// stopClients lets every client end its turn.
func (w *world) stopClients() {
	for _, c := range w.clients {
		_ = c.stdin.Close()
	}
	for _, c := range w.clients {
		if err := c.cmd.Wait(); err != nil {
			w.tb.Errorf("client %d: %v", c.conf.ID, err)
		}
	}
}

// record notes what the harness does to names and clients.
func (w *world) record(e *Event) {
	if e.ID == 0 {
		w.mu.Lock()
		w.events++
		e.ID, e.Start = w.events, now()
		w.mu.Unlock()
	}
	w.own.write(e)
}

// history is what was written down so far.
func (w *world) history() history {
	at := now()
	paths, err := filepath.Glob(filepath.Join(w.dir, "client-*"))
	if err != nil {
		w.tb.Fatal(err)
	}
	var h history
	for _, path := range append(paths, filepath.Join(w.dir, "harness")) {
		if err := h.read(path); err != nil {
			w.tb.Fatalf("%s: %v", path, err)
		}
	}
	return h.until(at)
}

// sets are the sets as they are on the upstream.
func (w *world) sets() map[string][]string {
	final := map[string][]string{}
	for _, k := range w.upstream.Do(w.tb, "KEYS", "set:*").Elems {
		get := []string{"GET", k.Text}
		if strings.HasPrefix(k.Text, "set:"+fencedNames) {
			get = []string{"HGET", k.Text, "set"}
		}
		final[k.Text] = strings.Split(strings.TrimSuffix(w.upstream.Do(w.tb, get...).Text, ","), ",")
	}
	return final
}

// carryOut has everything in the plan happen at its time and returns when all of it is
// over, or soon after stop was closed. It reports what could not be done.
func (w *world) carryOut(faults []fault, stop <-chan struct{}) error {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	began := time.Now()
	for _, f := range faults {
		select {
		case <-time.After(time.Until(began.Add(f.at))):
		case <-stop:
			wg.Wait()
			return errors.Join(errs...)
		}
		wg.Go(func() {
			if err := w.happen(f); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%v: %w", f, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// happen has one fault happen. A step of a clock that cannot be shifted is none.
func (w *world) happen(f fault) error {
	if (f.kind == "step-back" || f.kind == stepForward) && w.nodes[f.a].clock == nil {
		return nil
	}
	defer w.only(f.target())()
	from := now()
	w.mu.Lock()
	w.failing[f] = from
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.failing, f)
		w.windows = append(w.windows, window{from, now()})
	}()
	if !f.aims() {
		w.began(f)
	}
	switch f.kind {
	case "node-kill":
		return w.killNode(f.a, f.lasts)
	case "node-pause":
		w.nodes[f.a].Pause()
		time.Sleep(f.lasts)
		w.nodes[f.a].Resume()
	case "node-flush":
		return tell(w.nodes[f.a].Addr(), "FLUSHALL")
	case "script-flush":
		return tell(w.nodes[f.a].Addr(), "SCRIPT", "FLUSH")
	case "proxy-kill":
		p := w.proxies[f.a]
		p.Kill()
		time.Sleep(f.lasts)
		return again(p.Restart)
	case "proxy-pause":
		w.proxies[f.a].Pause()
		time.Sleep(f.lasts)
		w.proxies[f.a].Resume()
	case "client-kill":
		return w.killClient(w.clients[f.a], f.lasts)
	case "client-pause":
		c := w.clients[f.a]
		err := c.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(f.lasts)
		return errors.Join(err, c.cmd.Process.Signal(syscall.SIGCONT))
	case aimedKill, aimedPause, aimedProxy, aimedCut:
		return w.aimed(f)
	case inTurn:
		return w.forgetInTurn(f)
	case failover:
		_ = tell(w.watched.Sentinels[0].Addr(), "SENTINEL", "FAILOVER", redistest.MasterSet) // or the last one is not over
	case "force":
		w.force(w.names[int(f.at)%len(w.names)])
	case "step-back", stepForward:
		w.step(f)
	default:
		end, err := w.links.spoil(f)
		if err != nil {
			return err
		}
		time.Sleep(f.lasts)
		return end()
	}
	return nil
}

// only waits until nothing else is done to a target, and keeps it so until done is called.
func (w *world) only(target string) (done func()) {
	m, _ := w.targets.LoadOrStore(target, &sync.Mutex{})
	m.(*sync.Mutex).Lock()
	return m.(*sync.Mutex).Unlock
}

// began counts a fault.
func (w *world) began(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun[f.kind]++
}

func (w *world) killNode(i int, downFor time.Duration) error {
	n := w.nodes[i]
	n.Kill()
	time.Sleep(downFor)
	return again(func() error { return n.Restart() })
}

// again starts a child that was killed, also where something has its port for a moment.
func again(start func() error) (err error) {
	for range 5 {
		if err = start(); err == nil {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return err
}

// noteLateness notes when this machine does not run what is due, until stop is closed.
func (w *world) noteLateness(stop <-chan struct{}) {
	for last := now(); ; {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-stop:
			return
		}
		from := last
		if last = now(); last > from.add(prompt) {
			w.mu.Lock()
			w.windows = append(w.windows, window{from, last})
			w.mu.Unlock()
		}
	}
}

// tell sends one command to a server that may be stopped, or was just started and loads what
// it kept.
func tell(addr string, args ...string) error {
	for end := time.Now().Add(progress); ; time.Sleep(5 * time.Millisecond) {
		v, err := askServer(addr, args...)
		switch {
		case err != nil || !v.IsError():
			return err
		case !strings.HasPrefix(v.Text, "LOADING") || time.Now().After(end):
			return errors.New(v.Text)
		}
	}
}

func askServer(addr string, args ...string) (redistest.Value, error) {
	c, err := redistest.Dial(addr)
	if err != nil {
		return redistest.Value{}, err
	}
	defer c.Close()
	return c.Try(args...)
}

func (w *world) killClient(c *client, pause time.Duration) error {
	w.record(&Event{Op: opKill, Client: c.conf.ID})
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	time.Sleep(pause)
	c.conf.Life++
	return w.startClient(c)
}

// force takes a name away from whoever has it, through some proxy that answers.
func (w *world) force(name string) {
	e := &Event{Op: opForce, Name: name, Client: -1}
	w.record(e)
	if tell(w.proxies[0].Addr(), "LOCKCTL", "FORCE", name) == nil {
		e.End = now()
		w.record(e)
	}
}

func (w *world) step(f fault) {
	c := w.nodes[f.a].clock
	if f.kind == stepForward {
		c.step(f.amount)
		return
	}
	c.step(-f.amount)
}
