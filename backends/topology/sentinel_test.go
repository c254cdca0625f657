package topology

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestWatcher_SentinelDiscovery(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 2, 3)
	for _, sentinel := range s.Sentinels {
		sentinel.Do(t, "ACL", "SETUSER", "watcher", "on", ">secret", "allcommands", "allchannels")
		sentinel.Do(t, "ACL", "SETUSER", "default", "off") // the other sentinels are connected by now
	}
	if w, _ := New(parse(t, s.URL()), Options{Log: slog.New(slog.DiscardHandler)}); w != nil {
		if top, err := w.probe(t.Context()); top != nil || err == nil || !strings.Contains(err.Error(), "NOAUTH") {
			t.Errorf("without a password: %v, %v", top, err)
		}
		w.close()
	}
	// One sentinel names the others.
	url := "redis://" + s.Sentinels[0].Addr() + "?master_set=" + redistest.MasterSet
	w := startWatcher(t, url, Options{Replicas: true, SentinelUser: "watcher", SentinelPassword: "secret"})
	w.await(t, "at first", group(s.Servers[0], s.Servers[1:]...))
	for _, sentinel := range s.Sentinels[1:] {
		awaitSubscriber(t, sentinel)
	}
	s.Sentinels[0].Kill()
	_, before := w.observed()
	w.awaitProbes(t, before+2)
}

// awaitSubscriber waits until a client of lockproxy has been subscribed for 3 s.
func awaitSubscriber(t *testing.T, sentinel *redistest.Server) {
	t.Helper()
	c := redistest.Open(t, sentinel.Addr())
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
			t.Fatalf("no lasting subscription:\n%s", list)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestWatcher_SentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 2, 3)
	w := startWatcher(t, s.URL(), Options{Replicas: true})
	w.await(t, "at first", group(s.Servers[0], s.Servers[1:]...))
	old := s.Servers[0]
	old.Kill()
	now := s.AwaitFailover(t, old)
	var rest []*redistest.Server
	for _, r := range s.Servers[1:] {
		if r != now {
			rest = append(rest, r)
		}
	}
	w.await(t, "after the failover", group(now, rest...))
	if err := old.Restart(); err != nil {
		t.Fatal(err)
	}
	w.await(t, "the old master follows", group(now, append(rest, old)...))
}

func TestConfirmedMaster(t *testing.T) {
	master, slave, silent := role{kind: "master"}, role{kind: "slave"}, role{}
	old, now := sentinelReport{master: "a", epoch: 1}, sentinelReport{master: "b", epoch: 2}
	tests := []struct {
		name    string
		reports []sentinelReport
		roles   map[string]role
		want    string
	}{
		{"all agree", []sentinelReport{old, old, {}}, map[string]role{"a": master}, "a"},
		{"the later failover", []sentinelReport{old, old, now}, map[string]role{"a": master, "b": master}, "b"},
		{"the later one is silent", []sentinelReport{old, old, now}, map[string]role{"a": master, "b": silent}, "b"},
		{"the later one is no master", []sentinelReport{old, now}, map[string]role{"a": master, "b": slave}, "a"},
		{"demoted", []sentinelReport{old, old}, map[string]role{"a": slave}, ""},
		{"same epoch, more votes", []sentinelReport{{master: "b", epoch: 1}, old, old}, map[string]role{"a": master, "b": master}, "a"},
	}
	for _, tt := range tests {
		named := candidates(tt.reports)
		var roles []role
		for _, n := range named {
			roles = append(roles, tt.roles[n])
		}
		if got := confirmedMaster(named, roles); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
