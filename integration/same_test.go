package integration

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// `make same OLD=<revision or path of a binary>` shows that a refactoring changed nothing that
// clients see. The old binary and that of this tree each stand in front of servers of their own,
// are sent the same random streams, and must answer with the same bytes. There are two kinds:
//
//   - streams of the grammar, compared byte for byte but for the id in HELLO's reply;
//   - sweeps over every command that the server and the proxy name in COMMAND DOCS, with arguments
//     made after its own description, wrong ones among them, in all modes of a connection. What
//     differs by nature is masked, as maskAll says, or sent only in the forms that [forms] gives.
//
// A difference counts when, in ten tries, the new binary never answers as the old one does;
// otherwise it is counted as unsteady, and shown by its seed, which replays it.
const (
	oldVariable      = "LOCKPROXY_SAME_OLD"   // a revision, or the path of a binary
	sameTimeVariable = "LOCKPROXY_SAME_TIME"  // of the whole run; 150s without it
	sameSeedVariable = "LOCKPROXY_SAME_SEED"  // replays one stream
	worldVariable    = "LOCKPROXY_SAME_WORLD" // the only arrangement of servers, by name
)

// A world is an arrangement of servers behind a proxy.
type world struct {
	name     string
	share    int // of the time
	cluster  bool
	replicas bool // reads go to replicas
	start    func(t *testing.T, binary string) *side
}

var worlds = []world{
	{name: "single", share: 4, start: func(t *testing.T, binary string) *side {
		return newSide(t, binary, redistest.Start(t, recorded...), 3)
	}},
	{name: "unshared", share: 3, start: func(t *testing.T, binary string) *side {
		return newSide(t, binary, redistest.Start(t, recorded...), 1, "--upstream-conns", "0")
	}},
	{name: "password", share: 2, start: func(t *testing.T, binary string) *side {
		s := redistest.Start(t, recorded...)
		s.Do(t, "CONFIG", "SET", "requirepass", password)
		return newSide(t, binary, protected{s}, 1)
	}},
	{name: "replicas", share: 2, replicas: true, start: func(t *testing.T, binary string) *side {
		return newSide(t, binary, redistest.StartReplicated(t, 1, recorded...), 1, "--upstream-mode", "replicated", "--read-from", "replica")
	}},
	{name: "sentinel", share: 1, start: func(t *testing.T, binary string) *side {
		return newSide(t, binary, redistest.StartSentinel(t, 1, 1, recorded...), 1)
	}},
	{name: "cluster", share: 4, cluster: true, start: func(t *testing.T, binary string) *side {
		return newSide(t, binary, redistest.StartCluster(t, 3, 0, recorded...), 1)
	}},
	{name: "cluster unshared", share: 2, cluster: true, start: func(t *testing.T, binary string) *side {
		return newSide(t, binary, redistest.StartCluster(t, 3, 0, recorded...), 1, "--upstream-conns", "0")
	}},
}

// recorded are arguments of servers whose answers are compared: no slow log, which knows how fast they were.
var recorded = append([]string{"--slowlog-log-slower-than", "-1"}, impatient...)

// password is that of the user default in the world that has one.
const password = "secret"

type protected struct{ *redistest.Server }

func (s protected) URL() string { return "redis://:" + password + "@" + s.Addr() }

// A side is one of the binaries, in front of servers of its own.
type side struct {
	proxy   *redistest.Proxy
	servers []*redistest.Conn // of the upstream, the master first or masters alone
	ports   *regexp.Regexp    // those of all servers
	cluster *redistest.Cluster
}

func newSide(t *testing.T, binary string, upstream redistest.Upstream, nodes int, args ...string) *side {
	t.Helper()
	var servers []*redistest.Server
	switch u := upstream.(type) {
	case protected:
		servers = []*redistest.Server{u.Server}
	case *redistest.Server:
		servers = []*redistest.Server{u}
	case *redistest.Replicated:
		servers = u.Servers
	case *redistest.Sentinel:
		servers = u.Servers
	case *redistest.Cluster:
		servers = u.Nodes
	}
	cluster, _ := upstream.(*redistest.Cluster)
	lockNodes := redistest.StartNodes(t, nodes)
	s := &side{cluster: cluster, proxy: redistest.StartBinary(t, binary, upstream, lockNodes, append([]string{"--log-level", "error"}, args...)...)}
	var ports []string
	for _, addr := range append(addrs(servers), append(addrs(lockNodes), s.proxy.Addr())...) {
		_, port, _ := net.SplitHostPort(addr)
		ports = append(ports, port)
	}
	s.ports = regexp.MustCompile(`\b(` + strings.Join(ports, "|") + `)\b`)
	for _, server := range servers {
		c := redistest.Open(t, server.Addr())
		if _, ok := upstream.(protected); ok {
			c.Do(t, "AUTH", password)
		}
		for _, args := range users {
			c.Do(t, args...)
		}
		s.servers = append(s.servers, c)
	}
	rival := redistest.Open(t, s.proxy.Addr())
	if _, ok := upstream.(protected); ok {
		rival.Do(t, "AUTH", password)
	}
	wantGrant(t, rival.Do(t, "LOCK", rivalName, "60s", "OWNER", "rival", "SESSION"))
	return s
}

func addrs(servers []*redistest.Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

// clean is what a stream finds at each server.
var clean = [][]string{
	{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, {"FUNCTION", "FLUSH"}, {"CLIENT", "UNPAUSE"}, {"CONFIG", "SET", "maxmemory-samples", "5"}, {"ACL", "DELUSER", "extra"},
}

// users are those that streams authenticate as, no stream changes them.
var users = [][]string{
	{"ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all"},
	{"ACL", "SETUSER", "reader", "reset", "on", ">pw", "~s*", "&c", "+@read", "+@connection", "+@transaction", "+subscribe"},
}

// reset makes the servers of the side empty. What servers forbid as replicas is left to their master.
func (s *side) reset(t *testing.T, w *world) {
	t.Helper()
	for _, c := range s.servers {
		var b strings.Builder
		for _, args := range clean {
			b.WriteString(redistest.Command(args...))
		}
		c.Send(t, b.String())
		for range clean {
			c.Read(t)
		}
	}
	if w.replicas {
		s.sync()
	}
}

// moveSlot moves the slot of a tag of the streams to the next master, so that the first command
// for it is answered with MOVED.
func (s *side) moveSlot(t *testing.T, tag string) {
	t.Helper()
	slot := s.cluster.SlotOf(t, tag)
	at := slices.Index(s.cluster.Nodes, s.cluster.Owner(t, slot))
	s.cluster.MoveSlot(t, slot, s.cluster.Nodes[(at+1)%len(s.cluster.Nodes)])
}

// sync returns when the replicas have all that the master has.
func (s *side) sync() {
	offset := func(c *redistest.Conn, field string) string {
		v, _ := c.Try("INFO", "replication")
		_, rest, _ := strings.Cut(v.Text, field+":")
		n, _, _ := strings.Cut(rest, "\r")
		return n
	}
	for range 5000 {
		want := offset(s.servers[0], "master_repl_offset")
		if !slices.ContainsFunc(s.servers[1:], func(c *redistest.Conn) bool { return offset(c, "slave_repl_offset") != want }) {
			return
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// sameFarewell is farewell where a client may have to authenticate.
var sameFarewell = lines("PING", "RESET", "AUTH app pw", "RESET", "AUTH app pw")

// answer is all that comes back to a stream, masked.
func (s *side) answer(t *testing.T, w *world, st sent) string {
	s.reset(t, w)
	got, err := s.converse(w, st)
	got = s.ports.ReplaceAllString(got, "PORT.") // as long as a port, or the reply would be none
	if st.mode.name != "" {
		got = maskAll(got, w.cluster)
	}
	if err != nil { // it was not answered to its end
		got += "then nothing"
	}
	return connectionID.ReplaceAllString(got, "${1}N")
}

func (s *side) converse(w *world, st sent) (string, error) {
	if !st.stepwise {
		return converse(s.proxy.Addr(), st.bursts)
	}
	c, err := net.Dial("tcp", s.proxy.Addr())
	if err != nil {
		return "", err
	}
	defer c.Close()
	var got strings.Builder
	for i, burst := range st.bursts {
		for _, piece := range burst {
			if _, err := io.WriteString(c, piece); err != nil {
				break // what came before is an answer, too
			}
		}
		more, ended, err := readStep(c, fmt.Sprint(stepMark, i), i == len(st.bursts)-1)
		got.WriteString(more)
		if ended || err != nil {
			return got.String(), err
		}
		if w.replicas {
			s.sync()
		}
	}
	return got.String(), nil
}

// stepMark is what each burst of a stepwise stream ends with, in a PING, unless it is a verb's.
const stepMark = "end-of-step-"

// readStep reads until mark has come back, or nothing has for as long as a command may take
// that is not answered; the last step has to be answered.
func readStep(c net.Conn, mark string, last bool) (got string, ended bool, err error) {
	end := mark + "\r\n"
	if last {
		end = marker + "\r\n"
	}
	var b []byte
	buf := make([]byte, 64<<10)
	for {
		wait := 25 * time.Millisecond
		switch {
		case last:
			wait = patience(0)
		case len(b) > 0:
			wait = 10 * time.Millisecond
		}
		if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return string(b), true, nil
		}
		n, err := c.Read(buf)
		b = append(b, buf[:n]...)
		late := (net.Error)(nil)
		switch {
		case strings.HasSuffix(string(b), end):
			return string(b), false, nil
		case errors.As(err, &late) && late.Timeout():
			if last {
				return string(b), true, err
			}
			return string(b), false, nil
		case err != nil:
			return string(b), true, nil
		case !last && refusedStep.Match(b):
			return string(b), false, nil
		}
	}
}

// refusedStep is what is answered to the PING at the end of a burst that nobody may send, or that is queued.
var refusedStep = regexp.MustCompile(`(\+QUEUED|-NO(AUTH|PERM) .*)\r\n$`)

// sent is a stream as it goes out.
type sent struct {
	stream
	mode     mode // of a sweep
	bursts   [][]string
	stepwise bool // a burst is sent when the one before has been answered
}

// A recorder compares two binaries in one world and notes what it has done.
type recorder struct {
	*world
	*catalog
	old, new *side
	reads    map[string]bool // commands that replicas may serve, as the server marks them

	times, streams, commands int // the first counts streams again when they are sent again
	modes                    map[string]int
	covered                  map[string]int
	unsteady                 int
}

// draw makes the stream of a seed: every other one is a sweep.
func (r *recorder) draw(seed uint64) sent {
	s := sent{}
	switch {
	case seed%2 == 0:
		if s.stream, s.mode = newSweep(seed, r.catalog); r.cluster {
			s.stream = tagged(s.stream)
		}
	case r.cluster:
		s.stream = newClusterStream(seed)
	default:
		s.stream = newStream(seed)
	}
	return s
}

// unfit are commands whose answers depend on time in a world, by their first words.
func (r *recorder) unfit(args []string) bool {
	line := strings.ToUpper(strings.Join(args[:min(2, len(args))], " ")) + " "
	starts := func(all ...string) bool {
		return slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(line, s+" ") })
	}
	switch {
	case r.cluster: // a message to the client itself may come behind the reply to its PUBLISH; masters are heard in any order; behind SCRIPT DEBUG, CLUSTER commands reach a node
		return starts("PUBLISH", "SPUBLISH", "MONITOR", "SCRIPT DEBUG")
	case r.replicas: // there is no knowing when what is not answered has been replicated
		return starts("CLIENT REPLY", "WAIT", "ROLE", "MONITOR", "REPLCONF")
	case r.name == "sentinel":
		return starts("WAIT", "ROLE")
	}
	return false
}

// ready leaves out what is unfit and makes bursts of the rest.
func (r *recorder) ready(s sent) sent {
	s.commands = slices.DeleteFunc(slices.Clone(s.commands), r.unfit)
	r.times++
	out := stream{seed: s.seed}
	for _, args := range s.commands {
		args = slices.Clone(args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], eachTime, fmt.Sprintf("%0*d", len(eachTime), r.times))
		}
		out.commands = append(out.commands, args)
	}
	switch {
	case r.replicas:
		s.bursts = stepwiseBursts(out, func(args, next []string) bool {
			return !r.reads[strings.ToLower(args[0])]
		}, nil)
		s.stepwise = true
	case s.mode.loose || s.mode.name != "" && r.name == "password": // who has not authenticated may be loose at any time
		s.bursts = stepwiseBursts(out, func(args, next []string) bool { return isVerb(args) || isVerb(next) }, isVerb)
		s.stepwise = true
	default:
		s.bursts = out.burstsBefore(sameFarewell)
	}
	return s
}

// isVerb reports whether a command is one of the proxy's own.
func isVerb(args []string) bool {
	return slices.Contains([]string{"LOCK", "RENEW", "UNLOCK", "LOCKCTL"}, args[0])
}

// stepwiseBursts are bursts that end where ends says so of a command and the next one, and have
// a PING behind them unless unmarked, nil for never, says so of the last command.
func stepwiseBursts(st stream, ends func(args, next []string) bool, unmarked func(args []string) bool) (all [][]string) {
	r := rand.New(rand.NewPCG(st.seed, 1))
	var b strings.Builder
	for i, args := range st.commands {
		b.WriteString(encode(r, args))
		if i+1 < len(st.commands) && !ends(args, st.commands[i+1]) {
			continue
		}
		if unmarked == nil || !unmarked(args) {
			b.WriteString(redistest.Command("PING", fmt.Sprint(stepMark, len(all))))
		}
		all = append(all, pieces(r, b.String()))
		b.Reset()
	}
	return append(all, []string{sameFarewell + redistest.Command("PING", marker)})
}

// both asks the two sides at once.
func (r *recorder) both(t *testing.T, s sent) (old, new string) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() { old = r.old.answer(t, r.world, s) })
	new = r.new.answer(t, r.world, s)
	wg.Wait()
	return old, new
}

// A likeness is how the answers to a stream compare that is sent ten times, or until both are alike.
type likeness int

const (
	alike    likeness = iota // at once
	unsteady                 // only in the end
	differs                  // never
)

// compare sends a stream; diff is what differed last.
func (r *recorder) compare(t *testing.T, s sent) (o likeness, diff string) {
	t.Helper()
	olds, news := map[string]bool{}, map[string]bool{}
	for range 10 {
		if tag := s.seed % 16; r.cluster && tag < 4 && s.mode.name != "tracking" { // a move ends connections that are tracking
			r.old.moveSlot(t, "{"+string('a'+rune(tag))+"}")
			r.new.moveSlot(t, "{"+string('a'+rune(tag))+"}")
		}
		old, new := r.both(t, r.ready(s))
		olds[old], news[new] = true, true
		for answer := range news {
			if olds[answer] {
				return o, diff
			}
		}
		i := firstDifference(new, old)
		o, diff = unsteady, fmt.Sprintf("old: %s\nnew: %s", excerpt(old, i), excerpt(new, i))
	}
	return differs, diff
}

// how is what replays a stream.
func (r *recorder) how(s sent) string {
	return fmt.Sprintf("SEED=%d WORLD='%s' (%s)", s.seed, r.name, strings.TrimSpace("stream "+s.mode.name))
}

// hold compares one stream, and shows the fewest of its commands that differ.
func (r *recorder) hold(t *testing.T, s sent) {
	t.Helper()
	r.note(s)
	o, diff := r.compare(t, s)
	switch o {
	case alike:
		return
	case unsteady:
		r.unsteady++
		t.Logf("unsteady: %s\n%s", r.how(s), diff)
		return
	}
	least := s
	least.stream = s.shrink(time.Now().Add(20*time.Second), func(less stream) bool {
		o, _ := r.compare(t, sent{stream: less, mode: s.mode})
		return o == differs
	})
	_, again := r.compare(t, least)
	t.Errorf("%s, %d commands:\n%s\nshrunk to\n%s%s", r.how(s), len(s.commands), diff, least.show(), again)
}

func (r *recorder) note(s sent) {
	s = r.ready(s)
	r.streams++
	r.commands += len(s.commands)
	r.modes[cmp.Or(s.mode.name, "grammar")]++
	for _, args := range s.commands {
		name := strings.ToLower(args[0])
		r.covered[name]++
		if len(args) > 1 {
			r.covered[name+"|"+strings.ToLower(args[1])]++
		}
	}
}

// TestSame is `make same`.
func TestSame(t *testing.T) {
	if os.Getenv(oldVariable) == "" {
		t.Skip("compares with another build: make same OLD=<revision or path of a binary>")
	}
	old := oldBinary(t, os.Getenv(oldVariable))
	new, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	c, reads := learnCommands(t, old)
	total := 0
	for _, w := range worlds {
		total += w.share
	}
	seed, seeded := seedOf(t)
	covered, shaky, failed := map[string]int{}, 0, 0
	for i := range worlds {
		w := &worlds[i]
		if only := os.Getenv(worldVariable); only != "" && only != w.name {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			r := &recorder{world: w, catalog: c, reads: reads, modes: map[string]int{}, covered: covered, old: w.start(t, old), new: w.start(t, new)}
			if seeded {
				r.hold(t, r.draw(seed))
				return
			}
			n := seed
			for until := time.Now().Add(sameTime(t) * time.Duration(w.share) / time.Duration(total)); time.Now().Before(until) && !t.Failed(); n++ {
				r.hold(t, r.draw(n))
			}
			t.Logf("seeds %d to %d: %d streams, %d commands; %v", seed, n-1, r.streams, r.commands, r.modes)
			shaky += r.unsteady
			if t.Failed() {
				failed++
			}
		})
	}
	var missing []string
	for _, name := range c.names {
		if covered[name] == 0 && neverSent[name] == "" {
			missing = append(missing, name)
		}
	}
	t.Logf("%d of %d commands sent; never: %v, on purpose: %v", len(c.names)-len(missing), len(c.names), missing, neverSent)
	only := 0
	for _, f := range forms {
		only += len(strings.Fields(f.commands))
	}
	t.Logf("%d of these only in the forms that same_commands_test.go gives, with why", only)
	t.Logf("worlds with differences: %d; unsteady streams: %d", failed, shaky)
}

// seedOf is the first seed of a run, and whether it is the only one.
func seedOf(t *testing.T) (seed uint64, given bool) {
	t.Helper()
	s := os.Getenv(sameSeedVariable)
	if s == "" {
		return rand.Uint64() >> 20, false // short enough to be typed
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", sameSeedVariable, err)
	}
	return seed, true
}

func sameTime(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv(sameTimeVariable)
	if s == "" {
		return 150 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", sameTimeVariable, err)
	}
	return d
}

// learnCommands asks a server, through the binary, for all commands.
func learnCommands(t *testing.T, binary string) (c *catalog, reads map[string]bool) {
	t.Helper()
	p := redistest.StartBinary(t, binary, redistest.Start(t), redistest.StartNodes(t, 1), "--log-level", "error")
	conn := redistest.Open(t, p.Addr())
	reads = map[string]bool{}
	for _, e := range conn.Do(t, "COMMAND").Elems {
		for _, flag := range e.Elems[2].Elems {
			reads[e.Elems[0].Text] = reads[e.Elems[0].Text] || flag.Text == "readonly"
		}
	}
	return newCatalog(conn.Do(t, "COMMAND", "DOCS")), reads
}

// oldBinary is the path of a binary, or of that which is built from a revision.
func oldBinary(t *testing.T, old string) string {
	t.Helper()
	if info, err := os.Stat(old); err == nil && !info.IsDir() {
		return old
	}
	dir := t.TempDir()
	tree, binary := filepath.Join(dir, "tree"), filepath.Join(dir, "lockproxy")
	for _, step := range []string{
		`mkdir "$1" && git -C .. archive --format=tar "$3" | tar -x -C "$1"`,
		`cd "$1" && go build -o "$2" ./cmd/lockproxy`,
	} {
		if out, err := exec.Command("sh", "-c", step, "sh", tree, binary, old).CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", old, err, out)
		}
	}
	return binary
}

// TestSweepsFollowTheirSeed: without it a printed seed would be of no use.
func TestSweepsFollowTheirSeed(t *testing.T) {
	c := &catalog{names: []string{"get"}, group: map[string]string{"get": "string"}, args: map[string][]syntax{"get": {{name: "key", kind: "key"}}}}
	a, _ := newSweep(7, c)
	b, _ := newSweep(7, c)
	other, _ := newSweep(8, c)
	if a.show() != b.show() || tagged(a).show() != tagged(b).show() {
		t.Error("one seed makes two sweeps")
	}
	if a.show() == other.show() {
		t.Error("two seeds make one sweep")
	}
}
