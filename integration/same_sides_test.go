package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
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
	s := &side{cluster: cluster, proxy: redistest.StartBinary(t, binary, upstream, lockNodes, append([]string{"--log-level", "error", "--node-timeout", "2s"}, args...)...)}
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
