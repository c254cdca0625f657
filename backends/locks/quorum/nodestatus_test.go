package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// A logBuffer may be written and read at once.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// lines are those with a text in them.
func (b *logBuffer) lines(with string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.buf.String()) {
		if strings.Contains(line, with) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// startLogged is start with a log.
func startLogged(t *testing.T, nodes []*redistest.Server, user string) (*proxy, *logBuffer) {
	log := &logBuffer{}
	var at []string
	for _, n := range nodes {
		at = append(at, user+n.Addr())
	}
	return serve(t, testOptions{Nodes: nodesAt(t, at...), NodeTimeout: patient, Log: slog.New(slog.NewTextHandler(log, nil))}), log
}

// Ways to make a real server refuse writes, and to end that.
var waysToRefuse = []struct {
	code        string
	asked       bool   // it is seen once LOCK and UNLOCK have come, else before
	user        string // in the nodes' URLs
	begin, undo func(t *testing.T, n *redistest.Server)
}{
	{"OOM", false, "", configure("maxmemory", "1"), configure("maxmemory", "0")},
	{"READONLY", false, "", does("REPLICAOF", "127.0.0.1", "1"), does("REPLICAOF", "NO", "ONE")},
	{"NOREPLICAS", false, "", configure("min-replicas-to-write", "1"), configure("min-replicas-to-write", "0")},
	{"MISCONF", false, "", failSaving, does("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")},
	{"NOPERM", false, "redis://locks:secret@", does("ACL", "SETUSER", "locks", "-set"), does("ACL", "SETUSER", "locks", "+set")},
	// What is tried while nothing was refused needs none of these.
	{"NOPERM", true, "redis://locks:secret@", does("ACL", "SETUSER", "locks", "-hset"), does("ACL", "SETUSER", "locks", "+hset")},
	{"NOPERM", true, "redis://locks:secret@", does("ACL", "SETUSER", "locks", "-pexpireat"), does("ACL", "SETUSER", "locks", "+pexpireat")},
	{"NOPERM", true, "redis://locks:secret@", does("ACL", "SETUSER", "locks", "-del"), does("ACL", "SETUSER", "locks", "+del")},
}

func does(args ...string) func(*testing.T, *redistest.Server) {
	return func(t *testing.T, n *redistest.Server) { n.Do(t, args...) }
}

func configure(name, value string) func(*testing.T, *redistest.Server) {
	return does("CONFIG", "SET", name, value)
}

// failSaving makes a BGSAVE fail for the want of a directory.
func failSaving(t *testing.T, n *redistest.Server) {
	n.Do(t, "CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
	n.Do(t, "CONFIG", "SET", "save", "3600 1")
	gone := filepath.Join(n.Dir, "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	n.Do(t, "CONFIG", "SET", "dir", gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	n.Do(t, "BGSAVE")
	eventually(t, 20*time.Second, "the save fails", func() bool {
		return strings.Contains(n.Do(t, "INFO", "persistence").Text, "rdb_last_bgsave_status:err")
	})
}

// TestNode_RefusesWrites: nodes that refuse writes do not vote, whatever they refuse and
// with whatever error, and vote again by themselves.
func TestNode_RefusesWrites(t *testing.T) {
	t.Parallel()
	for i, way := range waysToRefuse {
		t.Run(way.code+string(rune('a'+i)), func(t *testing.T) {
			t.Parallel()
			nodes := redistest.StartNodes(t, 3)
			for _, n := range nodes {
				n.Do(t, "ACL", "SETUSER", "locks", "on", ">secret", "~lockproxy:*", "&lockproxy:*", "+@all")
			}
			s, log := startLogged(t, nodes, way.user)
			allVote(t, s)
			lock(t, s, "kept", "alice", 50*time.Second)
			eventually(t, 10*time.Second, "all have it", func() bool { return inspect(t, s, "kept").Holding.Votes == 3 })

			began := time.Now()
			for _, n := range nodes[:2] {
				way.begin(t, n)
			}
			refuses := locks.NodeStatus{State: locks.NodeRefusing, Err: &locks.RefusalError{Text: way.code}}
			seen := func(n locks.NodeStatus) bool { return n.Brief() == refuses.Brief() && n.Up }
			eventually(t, 20*time.Second, "two of three refuse", func() bool {
				if way.asked {
					_, _ = s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second})
					_, _ = s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "bob"})
				}
				all := s.Nodes()
				return seen(all[0]) && seen(all[1]) && all[2].State == locks.NodeVoting
			})
			_, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second})
			if err == nil && way.code == "NOPERM" { // LOCK itself needs neither SET nor DEL
				err = &locks.QuorumError{Failed: []error{errors.New(way.code)}}
			}
			if q := (*locks.QuorumError)(nil); !errors.As(err, &q) || !strings.Contains(err.Error(), way.code) {
				t.Errorf("LOCK: %v", err)
			}
			if since := s.Nodes()[0].Since; since.Before(began) || since.After(time.Now()) {
				t.Errorf("since %v, want one after %v", since, began)
			}
			if st := s.Stats(); st.Voting != 1 {
				t.Errorf("%d vote", st.Voting)
			}
			stays(t, 3, s, func() bool { return seen(s.Nodes()[0]) && seen(s.Nodes()[1]) })
			in := inspect(t, s, "kept")
			if !in.Held || in.Holding.Votes != 3 || in.Nodes[0].State != locks.NodeRefusing || in.Nodes[0].Owner != "alice" || in.Nodes[2].Err != nil {
				t.Errorf("what they have is still true: %+v", in)
			}

			for _, n := range nodes[:2] {
				way.undo(t, n)
			}
			if way.code == "READONLY" { // it may have been another's replica
				eventually(t, 20*time.Second, "they sit out", func() bool { return strings.Count(states(s), string(locks.NodeQuarantine)) == 2 })
				return
			}
			eventually(t, 20*time.Second, "all vote again", func() bool { return allVoting(s) })
			lock(t, s, "job", "bob", time.Second)
			stays(t, 2, s, func() bool { return allVoting(s) })
			for _, line := range []string{"lock quorum lost", "lock quorum is back"} {
				if got := log.lines(line); len(got) != 1 {
					t.Errorf("%q: %q, want it once", line, got)
				}
			}
			if got := log.lines("lock quorum lost"); len(got) == 1 && (!strings.Contains(got[0], "level=ERROR") || !strings.Contains(got[0], "refuses ("+way.code+")")) {
				t.Error(got)
			}
			if got := log.lines("lock quorum is back"); len(got) == 1 && (!strings.Contains(got[0], "level=INFO") || !strings.Contains(got[0], "lost_for=")) {
				t.Error(got)
			}
			for _, n := range nodes {
				if n.Do(t, "EXISTS", "lockproxy:node:probe").Int() != 0 {
					t.Error("what was tried is still there")
				}
			}
		})
	}
}

// TestNode_RefusesWritesInQuarantine: a node in quarantine that refuses writes is shown to refuse them, with what is left of the
// quarantine. It votes once it takes them and has copied, and was in one quarantine.
func TestNode_RefusesWritesInQuarantine(t *testing.T) {
	t.Parallel()
	for _, way := range waysToRefuse {
		if way.user != "" || way.code == "READONLY" {
			continue
		}
		t.Run(way.code, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.StartNodes(t, 3)
			s := serve(t, longLeases(t, nodes))
			allVote(t, s)
			nodes[1].Pause() // else the quarantine may end too soon
			nodes[0].Do(t, "FLUSHALL")
			is := func(state locks.NodeState) func() bool {
				return func() bool { n := s.Nodes()[0]; return n.State == state && n.Left > 58*time.Minute }
			}
			eventually(t, time.Minute, "it is in quarantine", is(locks.NodeQuarantine))
			way.begin(t, nodes[0])
			eventually(t, time.Minute, "it refuses writes", is(locks.NodeRefusing))
			if n := s.Nodes()[0]; n.Brief() != "refuses ("+way.code+")" || !n.Up {
				t.Errorf("it is shown as %s: %+v", n.Brief(), n)
			}
			if in, _ := s.Inspect(t.Context(), locks.Key{Name: "job"}); len(in.Nodes) == 0 || locks.WhySilent(in.Nodes[0].Err) != way.code {
				t.Errorf("in WHY: %+v", in.Nodes)
			}
			_, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second})
			if says := nodes[0].Addr() + " votes when it takes writes again: " + way.code; err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("LOCK says %v, want %q in it", err, says)
			}
			way.undo(t, nodes[0])
			eventually(t, time.Minute, "it does not refuse any more", is(locks.NodeQuarantine), s)
			nodes[1].Resume()
			copied(t, s, nodes[0])
			if n := (metrics.Registry{s.set}).Sample("lockproxy_lock_node_quarantines_total", "node", nodes[0].Addr()); n == nil || n.Value != 1 {
				t.Errorf("quarantines counted: %v", n)
			}
		})
	}
}

// stays fails the test unless ok after each of so many looks at the nodes.
func stays(t *testing.T, looks int64, s *proxy, ok func() bool) {
	t.Helper()
	probes := func() int64 { return durations(s, "round_seconds", "question", "state").Count() } // begun
	for last, end := probes(), probes()+looks+1; last < end; {
		eventually(t, 10*time.Second, "another look", func() bool { return probes() > last })
		last = probes()
		if !ok() {
			t.Fatalf("%s", states(s))
		}
	}
}

// TestNode_ProbesWriteNothing: probes write nothing but the time of this proxy's last use of
// the node, once a second. A change of the set of nodes reads that from the node record.
func TestNode_ProbesWriteNothing(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 1)
	s, _ := startLogged(t, nodes, "")
	allVote(t, s)
	lock(t, s, "job", "alice", 50*time.Second)
	sets := nodes[0].Calls(t, "set")
	spoke := regexp.MustCompile(`(?m)^(m\d+ .*)\n.*\n`)
	changes := func() string {
		var all strings.Builder
		for _, k := range nodes[0].Do(t, "KEYS", "*").Elems {
			switch nodes[0].Do(t, "TYPE", k.Text).Text {
			case "hash":
				for _, v := range nodes[0].Do(t, "HGETALL", k.Text).Elems {
					all.WriteString(v.Text + "\n")
				}
			default:
				all.WriteString(k.Text + "\n")
			}
		}
		_, errors, _ := strings.Cut(nodes[0].Do(t, "INFO", "errorstats").Text, "errorstat_")
		return spoke.ReplaceAllString(all.String(), "$1\n") + errors
	}
	before := changes()
	stays(t, 3, s, func() bool { return allVoting(s) })
	if after := changes(); after != before || before == "" {
		t.Errorf("changes and errors %q, before %q", after, before)
	}
	if nodes[0].Calls(t, "set") == sets {
		t.Error("it was not looked whether the node takes writes")
	}
}

// TestNode_WrongPassword: a node that answers with WRONGPASS refuses, and is not down.
func TestNode_WrongPassword(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	for _, n := range nodes {
		n.Do(t, "ACL", "SETUSER", "locks", "on", ">secret", "~lockproxy:*", "&lockproxy:*", "+@all")
	}
	s, _ := startLogged(t, nodes, "redis://locks:secret@")
	allVote(t, s)
	lock(t, s, "job", "alice", 50*time.Second)
	nodes[0].Do(t, "ACL", "SETUSER", "locks", "resetpass", ">other")
	nodes[0].Do(t, "CLIENT", "KILL", "USER", "locks")
	eventually(t, 20*time.Second, "it refuses", func() bool { return s.Nodes()[0].Brief() == "refuses (WRONGPASS)" && s.Nodes()[0].Up })
	nodes[0].Do(t, "ACL", "SETUSER", "locks", "resetpass", ">secret")
	eventually(t, 20*time.Second, "it votes again", func() bool { return allVoting(s) })
}

// TestNode_NewOneThatRefuses: a new node that refuses writes is shown as refusing, not as new,
// which would seem to pass by itself.
func TestNode_NewOneThatRefuses(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 1)
	nodes[0].Do(t, "CONFIG", "SET", "maxmemory", "1")
	s, log := startLogged(t, nodes, "")
	eventually(t, 20*time.Second, "it refuses", func() bool { return s.Nodes()[0].Brief() == "refuses (OOM)" })
	if got, lost := log.lines("no lock quorum yet"), log.lines("lock quorum lost"); len(got) != 1 || len(lost) > 0 {
		t.Errorf("%q, %q", got, lost)
	}
	stays(t, 2, s, func() bool { return s.Nodes()[0].State == locks.NodeRefusing })
	nodes[0].Do(t, "CONFIG", "SET", "maxmemory", "0")
	eventually(t, 20*time.Second, "it votes", func() bool { return allVoting(s) })
}

// TestProbe_TriesAllCommandsOfScripts: a probe finds each command of the scripts that a node refuses.
func TestProbe_TriesAllCommandsOfScripts(t *testing.T) {
	t.Parallel()
	called := regexp.MustCompile(`\b(?:redis\.p?call|try)\('([A-Z]+)'`)
	elsewhere := []string{
		"TIME", "INFO", "HMGET", // in the prologue
		"PUBSUB", "PUBLISH", // may be refused
		"HGETALL", // only to show who holds what
		"SCAN",    // only to look for locks without an end
	}
	for _, sc := range scripts.All() {
		for _, m := range called.FindAllStringSubmatch(sc.Source, -1) {
			if !slices.Contains(elsewhere, m[1]) && !strings.Contains(scripts.State.Source, "try('"+m[1]+"'") {
				t.Errorf("%s calls %s, which state does not try", sc.Name, m[1])
			}
		}
	}
}

// TestNode_Down: a node that is down is shown with the reason and since when; a lost quorum is logged once.
func TestNode_Down(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s, log := startLogged(t, nodes, "")
	allVote(t, s)
	lock(t, s, "job", "alice", 50*time.Second)
	nodes[0].Kill()
	down := func(i int) func() bool {
		return func() bool { return s.Nodes()[i].Brief() == "down (connection refused)" }
	}
	eventually(t, 20*time.Second, "one is down", down(0))
	since := s.Nodes()[0].Since
	if got := log.lines("lock quorum lost"); len(got) > 0 {
		t.Errorf("with two of three: %q", got)
	}
	nodes[1].Kill()
	eventually(t, 20*time.Second, "two are down", down(1))
	stays(t, 2, s, down(1))
	if n := s.Nodes()[0]; n.Up || n.Since != since || n.Standing() != "down (connection refused) since "+since.UTC().Format(time.RFC3339) {
		t.Errorf("%s, down since %v", n.Standing(), since)
	}
	if got := log.lines("lock quorum lost"); len(got) != 1 || !strings.Contains(got[0], "level=ERROR") ||
		!strings.Contains(got[0], "voting=1 needed=2") || !strings.Contains(got[0], nodes[0].Addr()+" down (connection refused)") {
		t.Errorf("with one of three: %q", got)
	}
	if got := log.lines("state=down"); len(got) != 2 || !strings.Contains(got[0], "connection refused") {
		t.Errorf("%q", got)
	}
}

// TestReadVote_FloorReason: a node that waits for its fence floor says what ends that, and how long it may still take: max-ttl behind
// its quarantine, or a minute if that is shorter.
func TestReadVote_FloorReason(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		since, maxTTL int
		want          string
	}{
		{0, 8000, "8s"}, {2900, 8000, "6s"}, {9000, 8000, "0s"}, {15_000, 3600_000, "45s"},
	} {
		client := answering(t, fmt.Appendf(nil, "*4\r\n:-3\r\n:%d\r\n$1\r\nq\r\n:%d\r\n", tt.since, tt.maxTTL))
		v := vote.OfResult(client.Do(t.Context(), client.B().Arbitrary("EVALSHA").Build()), vote.ParseState)
		client.Close()
		want := "waits for its fence floor until a majority votes, for " + tt.want + " at most"
		if v.Code != vote.Floorless || v.Err == nil || v.Err.Error() != want {
			t.Errorf("%d ms behind a quarantine, max-ttl %d ms: %+v, want %q", tt.since, tt.maxTTL, v, want)
		}
	}
}
