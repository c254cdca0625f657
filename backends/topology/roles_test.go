package topology

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestWatcher_SeveralMastersAreLoggedOnce(t *testing.T) {
	t.Parallel()
	s := redistest.StartNodes(t, 2)
	var logged bytes.Buffer
	w, err := New(parse(t, s[0].URL()+"?addr="+s[1].Addr()), Options{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for range 3 {
		if _, err := w.probe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(logged.String(), "several servers claim"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, logged.String())
	}
}

func TestWatcher_ReplicatedFailover(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 2)
	a, b, c := r.Servers[0], r.Servers[1], r.Servers[2]
	url := "redis://" + c.Addr() + "?addr=" + a.Addr() + "&addr=" + b.Addr()
	w := startWatcher(t, url, Options{})
	w.await(t, "at first", group(a, b, c))

	a.Kill()
	time.Sleep(maxAge + minPause)
	if top, _ := w.observed(); nameOf(top.Shards[0].Master) != a.Addr() {
		t.Errorf("before another is promoted: %s", describe(top))
	}
	b.SetReplicaOf(t, nil)
	c.SetReplicaOf(t, b)
	w.await(t, "another was promoted", group(b, c))

	if err := a.Restart(); err != nil { // as a master without replicas
		t.Fatal(err)
	}
	time.Sleep(maxAge + minPause)
	if top, _ := w.observed(); nameOf(top.Shards[0].Master) != b.Addr() {
		t.Errorf("the old master is back: %s", describe(top))
	}
	a.SetReplicaOf(t, b)
	w.await(t, "it follows", group(b, a, c))

	b.SetReplicaOf(t, c)
	deadline := time.Now().Add(20 * time.Second)
	for top, _ := w.observed(); top.Shards[0].Master != nil; top, _ = w.observed() {
		if time.Now().After(deadline) {
			t.Fatalf("all are replicas, topology %s", describe(top))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestWatcher_BusyMasterStays(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1, "--busy-reply-threshold", "20")
	w := startWatcher(t, r.URL(), Options{})
	w.await(t, "at first", group(r.Servers[0], r.Servers[1]))
	looping := redistest.Open(t, r.Servers[0].Addr())
	looping.Send(t, redistest.Command("EVAL", "while true do end", "0"))
	_, before := w.observed()
	for top, n := w.observed(); n < before+3; top, n = w.observed() {
		if nameOf(top.Shards[0].Master) != r.Servers[0].Addr() {
			t.Fatalf("topology %s", describe(top))
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.Servers[0].Do(t, "SCRIPT", "KILL")
}

func TestChooseMaster(t *testing.T) {
	m := func(replicas int, offset int64) role {
		return role{kind: "master", offset: offset, replicas: make([]string, replicas)}
	}
	slave, silent := role{kind: "slave"}, role{}
	addrs := []string{"a", "b", "c"}
	tests := []struct {
		name    string
		roles   []role
		before  string
		want    int
		several bool
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
		if got, several := chooseMaster(tt.roles, addrs, tt.before); got != tt.want || several != tt.several {
			t.Errorf("%s: %d, several %v", tt.name, got, several)
		}
	}
}
