package integration

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
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

// A likeness is how the answers to a stream compare.
type likeness int

const (
	alike    likeness = iota // at once
	unsteady                 // in some of ten tries
	differs                  // in none
)

// compare sends a stream, ten times if the first answers differ, or fewer if they are long in coming; diff says how.
func (r *recorder) compare(t *testing.T, s sent) (l likeness, diff string) {
	t.Helper()
	olds, news := map[string]int{}, map[string]int{}
	began, tries := time.Now(), 0
	for ; tries < 10 && (tries < 3 || time.Since(began) < 10*time.Second); tries++ {
		if tag := s.seed % 16; r.cluster && tag < 4 && s.mode.name != "tracking" { // a move ends connections that are tracking
			r.old.moveSlot(t, "{"+string('a'+rune(tag))+"}")
			r.new.moveSlot(t, "{"+string('a'+rune(tag))+"}")
		}
		old, new := r.both(t, r.ready(s))
		olds[old]++
		news[new]++
		if diff == "" && old == new {
			return alike, ""
		}
		if old != new {
			i := firstDifference(new, old)
			diff = fmt.Sprintf("old: %s\nnew: %s", excerpt(old, i), excerpt(new, i))
		}
	}
	likeOld := 0
	for answer, times := range news {
		if olds[answer] > 0 {
			l = unsteady
			likeOld += times
		}
	}
	if l == unsteady {
		return l, fmt.Sprintf("%s\nin %d tries %d answers of the old, %d of the new, which answered %d times as the old had", diff, tries, len(olds), len(news), likeOld)
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
	l, diff := r.compare(t, s)
	switch l {
	case alike:
		return
	case unsteady:
		r.unsteady++
		t.Logf("unsteady: %s\n%s", r.how(s), diff)
		return
	}
	least := s
	least.stream = s.shrink(time.Now().Add(20*time.Second), func(less stream) bool {
		l, _ := r.compare(t, sent{stream: less, mode: s.mode})
		return l == differs
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
