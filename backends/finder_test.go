package backends

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A finding is a running Finder and what it has seen.
type finding struct {
	*Finder
	mu   sync.Mutex
	last *Topology
	n    int
}

// find runs a Finder until the test ends.
func find(t *testing.T, url string, opt FinderOptions) *finding {
	t.Helper()
	opt.Log = slog.New(slog.DiscardHandler)
	f, err := NewFinder(parse(t, url), opt)
	if err != nil {
		t.Fatal(err)
	}
	is := &finding{Finder: f, last: f.First()}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, func(top *Topology) {
			is.mu.Lock()
			defer is.mu.Unlock()
			is.last = top
			is.n++
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-f.Looked()
	return is
}

func (f *finding) seen() (*Topology, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.n
}

// await waits until what the Finder sees is as wanted, in the form of describe.
func (f *finding) await(t *testing.T, what, want string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		top, _ := f.seen()
		got := describe(top)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: sees\n%s\nwant\n%s", what, got, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// describe shows each shard's ranges of slots, master and replicas on a line.
func describe(t *Topology) string {
	var lines []string
	for i, s := range t.Shards {
		replicas := []string{}
		for _, r := range s.Replicas {
			replicas = append(replicas, r.String())
		}
		slices.Sort(replicas)
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s%s %s", ranges(t.Slots, i), nameOf(s.Master), strings.Join(replicas, " "))))
	}
	return strings.Join(lines, "\n")
}

func ranges(slots []uint16, shard int) (out string) {
	for i := 0; i < len(slots); i++ {
		first := i
		for i < len(slots) && int(slots[i]) == shard {
			i++
		}
		if i > first {
			out += fmt.Sprintf("%d-%d ", first, i-1)
		}
	}
	return out
}

func nameOf(s *Server) string {
	if s == nil {
		return "nobody"
	}
	return s.String()
}

func group(master *redistest.Server, replicas ...*redistest.Server) string {
	var names []string
	for _, r := range replicas {
		names = append(names, r.Addr())
	}
	slices.Sort(names)
	return strings.TrimSpace(master.Addr() + " " + strings.Join(names, " "))
}

func TestFindStandalone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := find(t, s.URL(), FinderOptions{})
	if top, n := f.seen(); n != 0 || describe(top) != s.Addr() {
		t.Errorf("seen %d times: %s", n, describe(top))
	}
	c := redistest.Open(t, s.Addr())
	deadline := time.Now().Add(20 * time.Second)
	for list := c.Do(t, "CLIENT", "LIST").Text; strings.Count(list, "\n") != 1; list = c.Do(t, "CLIENT", "LIST").Text {
		if time.Now().After(deadline) {
			t.Fatalf("a connection stays:\n%s", list)
		}
	}
	asked := s.Calls(t, "info")
	time.Sleep(probePause + probePause/2)
	if now := s.Calls(t, "info"); now != asked+1 {
		t.Errorf("asked %d times without being in a hurry", now-asked-1)
	}
	began := time.Now()
	for time.Since(began) < 3*probePause/2 {
		f.Hurry()
		time.Sleep(5 * time.Millisecond)
	}
	most := asked + 2 + int(time.Since(began)/probePause) + 1 // two of them were our own
	if now := s.Calls(t, "info"); now < asked+3 || now > most {
		t.Errorf("asked %d times when in a hurry for %v", now-asked-2, time.Since(began))
	}
}

// A server that will not say what it is gets no second thought.
func TestFindWithoutLeave(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "secret")
	var said bytes.Buffer
	f, err := NewFinder(parse(t, s.URL()), FinderOptions{Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for range 2 {
		if top, err := f.look(t.Context()); top != nil || err != nil || f.mode != ModeStandalone || !f.sure {
			t.Errorf("sees %v, %v: %s, sure %v", top, err, f.mode, f.sure)
		}
	}
	if n := strings.Count(said.String(), "NOAUTH"); n != 1 {
		t.Errorf("said %d times:\n%s", n, said.String())
	}
}

// Two masters are worth a line in the log, not one a second.
func TestTwoMastersAreSaidOnce(t *testing.T) {
	t.Parallel()
	s := redistest.StartNodes(t, 2)
	var said bytes.Buffer
	f, err := NewFinder(parse(t, s[0].URL()+"?addr="+s[1].Addr()), FinderOptions{Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for range 3 {
		if _, err := f.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(said.String(), "more than one server"); n != 1 {
		t.Errorf("said %d times:\n%s", n, said.String())
	}
}

// What is down at first may turn out to be a Cluster.
func TestFindOutLater(t *testing.T) {
	t.Parallel()
	s := redistest.Reserve(t, "--cluster-enabled", "yes", "--cluster-port", "0")
	addr, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	f := find(t, s.URL(), FinderOptions{})
	if top, _ := f.seen(); describe(top) != s.Addr() || top.Slots != nil {
		t.Errorf("while it is down: %s", describe(top))
	}
	_, port, _ := strings.Cut(addr, ":")
	if err := s.Restart("--cluster-port", port); err != nil {
		t.Fatal(err)
	}
	s.Do(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	f.await(t, "started", "0-16383 "+s.Addr())
}

func TestFindReplicasOfOne(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 2)
	f := find(t, r.Servers[0].URL(), FinderOptions{Replicas: true})
	f.await(t, "both", group(r.Servers[0], r.Servers[1:]...))
	r.Servers[1].Kill()
	f.await(t, "one", group(r.Servers[0], r.Servers[2]))
}

func TestFindReplicated(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 2)
	a, b, c := r.Servers[0], r.Servers[1], r.Servers[2]
	url := "redis://" + c.Addr() + "?addr=" + a.Addr() + "&addr=" + b.Addr()
	f := find(t, url, FinderOptions{})
	f.await(t, "at first", group(a, b, c))

	a.Kill()
	time.Sleep(askAgain + askPause)
	if top, _ := f.seen(); nameOf(top.Shards[0].Master) != a.Addr() {
		t.Errorf("while nobody else is the master: %s", describe(top))
	}
	b.Follow(t, nil)
	c.Follow(t, b)
	f.await(t, "another was promoted", group(b, c))

	if err := a.Restart(); err != nil { // as a master, which nobody follows
		t.Fatal(err)
	}
	time.Sleep(askAgain + askPause)
	if top, _ := f.seen(); nameOf(top.Shards[0].Master) != b.Addr() {
		t.Errorf("the old master is back: %s", describe(top))
	}
	a.Follow(t, b)
	f.await(t, "it follows", group(b, a, c))

	b.Follow(t, c)
	deadline := time.Now().Add(20 * time.Second)
	for top, _ := f.seen(); top.Shards[0].Master != nil; top, _ = f.seen() {
		if time.Now().After(deadline) {
			t.Fatalf("nobody is the master, and it sees %s", describe(top))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A server that is busy has not changed.
func TestBusyMasterStays(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1, "--busy-reply-threshold", "20")
	f := find(t, r.URL(), FinderOptions{})
	f.await(t, "at first", group(r.Servers[0], r.Servers[1]))
	looping := redistest.Open(t, r.Servers[0].Addr())
	looping.Send(t, redistest.Command("EVAL", "while true do end", "0"))
	_, before := f.seen()
	for top, n := f.seen(); n < before+3; top, n = f.seen() {
		if nameOf(top.Shards[0].Master) != r.Servers[0].Addr() {
			t.Fatalf("sees %s", describe(top))
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.Servers[0].Do(t, "SCRIPT", "KILL")
}

func TestFindSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 2, 3)
	for _, w := range s.Sentinels {
		w.Do(t, "ACL", "SETUSER", "watcher", "on", ">secret", "allcommands", "allchannels")
		w.Do(t, "ACL", "SETUSER", "default", "off") // the others are in by now
	}
	if f, _ := NewFinder(parse(t, s.URL()), FinderOptions{Log: slog.New(slog.DiscardHandler)}); f != nil {
		if top, err := f.look(t.Context()); top != nil || err == nil || !strings.Contains(err.Error(), "NOAUTH") {
			t.Errorf("without a password: %v, %v", top, err)
		}
		f.close()
	}
	// One sentinel is enough to learn of the others.
	url := "redis://" + s.Sentinels[0].Addr() + "?master_set=" + redistest.MasterSet
	f := find(t, url, FinderOptions{Replicas: true, SentinelUser: "watcher", SentinelPassword: "secret"})
	f.await(t, "at first", group(s.Servers[0], s.Servers[1:]...))
	for _, w := range s.Sentinels[1:] {
		awaitListener(t, w)
	}
	s.Sentinels[0].Kill()
	_, before := f.seen()
	f.awaitLooks(t, before+2)
}

// awaitListener waits until somebody who is no sentinel is subscribed at w, and stays.
func awaitListener(t *testing.T, w *redistest.Server) {
	t.Helper()
	c := redistest.Open(t, w.Addr())
	c.Do(t, "AUTH", "watcher", "secret")
	deadline := time.Now().Add(20 * time.Second)
	for {
		list := c.Do(t, "CLIENT", "LIST").Text
		for line := range strings.Lines(list) {
			var age int
			if at := strings.Index(line, " age="); at >= 0 {
				fmt.Sscanf(line[at:], " age=%d", &age)
			}
			if strings.Contains(line, "name=lockproxy") && strings.Contains(line, " sub=1") && age > 2 {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody listens for long:\n%s", list)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (f *finding) awaitLooks(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, now := f.seen(); now >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("stopped looking")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 2, 3)
	f := find(t, s.URL(), FinderOptions{Replicas: true})
	f.await(t, "at first", group(s.Servers[0], s.Servers[1:]...))
	old := s.Servers[0]
	old.Kill()
	now := s.AwaitFailover(t, old)
	var rest []*redistest.Server
	for _, r := range s.Servers[1:] {
		if r != now {
			rest = append(rest, r)
		}
	}
	f.await(t, "after the failover", group(now, rest...))
	if err := old.Restart(); err != nil {
		t.Fatal(err)
	}
	f.await(t, "the old master follows", group(now, append(rest, old)...))
}

func TestFindCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	n := c.Nodes
	f := find(t, n[4].URL(), FinderOptions{Replicas: true})
	whole := "0-5460 " + group(n[0], n[3]) + "\n5461-10921 " + group(n[1], n[4]) + "\n10922-16383 " + group(n[2], n[5])
	f.await(t, "at first", whole)

	c.MoveSlot(t, 100, n[2])
	f.Hurry()
	moved := "0-99 101-5460 " + group(n[0], n[3]) + "\n100-100 10922-16383 " + group(n[2], n[5]) + "\n5461-10921 " + group(n[1], n[4])
	f.await(t, "a slot has moved", moved)

	n[1].Kill()
	f.await(t, "after a failover", strings.Replace(moved, group(n[1], n[4]), n[4].Addr(), 1))
	if err := n[1].Restart(); err != nil {
		t.Fatal(err)
	}
	f.await(t, "the old master follows", strings.Replace(moved, group(n[1], n[4]), group(n[4], n[1]), 1))
}

// TestOfCluster: a Redis and a Valkey tell it in fields of different names.
func TestOfCluster(t *testing.T) {
	for info, want := range map[string]bool{
		"# Server\r\nredis_version:7.0.15\r\nredis_mode:cluster\r\n":                            true,
		"# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.0.0\r\nserver_mode:cluster\r\n":    true,
		"# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.0.0\r\nserver_mode:standalone\r\n": false,
		"# Server\r\nredis_version:7.0.15\r\nredis_mode:sentinel\r\n":                           false,
		"": false,
	} {
		if got := ofCluster(info); got != want {
			t.Errorf("%q: %v", info, got)
		}
	}
}

func TestCheckMode(t *testing.T) {
	tests := []struct{ url, mode, want string }{
		{"redis://h:1", ModeAuto, ""},
		{"redis://h:1?addr=h:2", ModeAuto, ""},
		{"redis://h:1?master_set=m", ModeAuto, ""},
		{"redis://h:1", ModeSentinel, "master set"},
		{"redis://h:1?master_set=m", ModeCluster, "only sentinels have"},
		{"redis://h:1?addr=h:2", ModeStandalone, "several addresses"},
		{"redis://h:1", ModeReplicated, "addresses of all servers"},
		{"redis://h:1", ModeCluster, ""},
	}
	for _, tt := range tests {
		err := CheckMode(parse(t, tt.url), tt.mode)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s as %s: %v", tt.url, tt.mode, err)
		}
	}
}

func TestChooseMaster(t *testing.T) {
	m := func(replicas int, offset int64) role {
		return role{kind: "master", offset: offset, replicas: make([]string, replicas)}
	}
	slave, silent := role{kind: "slave"}, role{}
	addrs := []string{"a", "b", "c"}
	tests := []struct {
		name   string
		roles  []role
		before string
		want   int
		more   bool
	}{
		{"the one", []role{slave, m(0, 1), slave}, "a", 1, false},
		{"more replicas", []role{m(0, 9), m(1, 1), slave}, "a", 1, true},
		{"written more", []role{m(1, 1), m(1, 9), slave}, "a", 1, true},
		{"equal: the one before", []role{m(1, 1), m(1, 1), slave}, "b", 1, true},
		{"equal, nobody before", []role{m(1, 1), m(1, 1), slave}, "", 0, true},
		{"the one before is silent", []role{slave, silent, slave}, "b", 1, false},
		{"another is silent", []role{slave, silent, slave}, "a", -1, false},
		{"silent, and replaced", []role{silent, m(0, 0), slave}, "a", 1, false},
		{"none", []role{slave, slave, slave}, "a", -1, false},
	}
	for _, tt := range tests {
		if got, more := chooseMaster(tt.roles, addrs, tt.before); got != tt.want || more != tt.more {
			t.Errorf("%s: %d, more %v", tt.name, got, more)
		}
	}
}

func TestBelieveSentinels(t *testing.T) {
	master, slave, silent := role{kind: "master"}, role{kind: "slave"}, role{}
	old, now := vote{master: "a", epoch: 1}, vote{master: "b", epoch: 2}
	tests := []struct {
		name  string
		votes []vote
		roles map[string]role
		want  string
	}{
		{"all agree", []vote{old, old, {}}, map[string]role{"a": master}, "a"},
		{"the later failover", []vote{old, old, now}, map[string]role{"a": master, "b": master}, "b"},
		{"the later one is silent", []vote{old, old, now}, map[string]role{"a": master, "b": silent}, "b"},
		{"the later one is no master", []vote{old, now}, map[string]role{"a": master, "b": slave}, "a"},
		{"demoted", []vote{old, old}, map[string]role{"a": slave}, ""},
		{"same epoch, more votes", []vote{{master: "b", epoch: 1}, old, old}, map[string]role{"a": master, "b": master}, "a"},
	}
	for _, tt := range tests {
		named := candidates(tt.votes)
		var roles []role
		for _, n := range named {
			roles = append(roles, tt.roles[n])
		}
		if got := believe(named, roles); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Nodes are a, b, c; a sight is who serves slots 0-9 and with what epoch.
func TestMerge(t *testing.T) {
	see := func(self, owner string, epoch uint64) *sight {
		return &sight{self: self, epochs: map[string]uint64{owner: epoch},
			parts: []part{{first: 0, last: 9, master: node{owner, owner + ":1"}, replicas: []string{self + "r"}}}}
	}
	blank := &sight{self: "a", idle: []node{{"z", "z:1"}}}
	tests := []struct {
		name   string
		sights []*sight
		want   string // the master of slots 0-9, and its replicas
	}{
		{"one", []*sight{see("b", "a", 1)}, "a:1 br"},
		{"its own word on replicas", []*sight{see("b", "a", 1), see("a", "a", 1)}, "a:1 ar"},
		{"the higher epoch", []*sight{see("a", "a", 1), see("c", "a", 1), see("b", "b", 2)}, "b:1 br"},
		{"it says it does not", []*sight{see("c", "a", 3), see("a", "b", 2)}, "b:1 ar"},
		{"no epochs: more of them", []*sight{see("", "b", 0), see("", "a", 0), see("", "a", 0)}, "a:1 r"},
		{"nobody", []*sight{blank}, ""},
	}
	for _, tt := range tests {
		l := merge(tt.sights)
		got := ""
		if i := l.slots[0]; i != NoShard {
			got = l.shards[i].master.addr + " " + strings.Join(l.shards[i].replicas, " ")
		}
		if got != tt.want || l.slots[10] != NoShard {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if l := merge([]*sight{blank}); len(l.shards) != 1 || l.shards[0].master.addr != "z:1" {
		t.Errorf("a master without slots: %v", l.shards)
	}
}

func TestReadNodes(t *testing.T) {
	const text = `aa 10.0.0.1:7000@17000,one.example,shard-id=1 myself,master - 0 0 3 connected 0-5 7 [8->-bb]
bb 10.0.0.2:7000@17000,two.example master - 0 1 4 connected [8-<-aa]
cc :7001@17001 slave aa 0 1 3 connected
dd 10.0.0.4:7000@17000 master,fail - 0 1 9 disconnected
ee ::1:7000@17000 master,fail? - 0 1 2 connected
`
	s := &sight{epochs: map[string]uint64{}, parts: []part{{first: 0, last: 5, master: node{"aa", "one.example:7000"}}}}
	s.readNodes(text, "h:1")
	if s.self != "aa" || s.epochs["aa"] != 3 || s.epochs["bb"] != 4 {
		t.Errorf("self %s, epochs %v", s.self, s.epochs)
	}
	if got := fmt.Sprint(s.idle); got != "[{bb two.example:7000} {ee [::1]:7000}]" {
		t.Error(got)
	}
}

// The TLS of the URL holds for all nodes, each under its own name.
func TestFindOverTLS(t *testing.T) {
	t.Parallel()
	ours := redistest.NewAuthority(t)
	a, b := startSecure(t, ours), startSecure(t, ours)
	host := func(url string) string { return strings.TrimPrefix(url, "rediss://") }
	url := a + "?addr=" + strings.Replace(host(b), "127.0.0.1", "localhost", 1)
	seed := parse(t, url).WithTLS(&TLS{KeyPair: keyPair(t, ours, "finder"), CA: authorities(t, ours)})
	f, err := NewFinder(seed, FinderOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	top, err := f.look(t.Context())
	if err != nil || describe(top) != host(a) { // two masters: the first
		t.Errorf("sees %v, %v", top, err)
	}
	if roles := f.roles; len(roles) != 2 {
		t.Errorf("heard of %v", roles)
	}
}
