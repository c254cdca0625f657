package check

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends"
)

func server(t *testing.T, url string) *backends.Server {
	t.Helper()
	s, err := backends.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sound are the facts of a lock node of which nothing is to be said.
func sound(t *testing.T, addr string) *facts {
	t.Helper()
	ip, _, _ := net.SplitHostPort(addr)
	return &facts{
		target: target{server: server(t, "rediss://u:p@"+addr), node: true},
		remote: &net.TCPAddr{IP: net.ParseIP(ip)},
		info: map[string]string{
			"redis_version": "7.0.15", "redis_mode": "standalone", "role": "master", "run_id": addr,
			"maxmemory_policy": "noeviction", "master_replid": "r",
		},
		config:     map[string]string{"save": ""},
		roundTrips: trips(time.Millisecond, 2*time.Millisecond),
		clockError: time.Millisecond,
		record:     map[string]string{"id": "r", "until": "0", "sync": "1", "ttl": "60000"},
	}
}

// trips are round trips of that median and that longest.
func trips(median, longest time.Duration) []time.Duration {
	return []time.Duration{median, median, longest}
}

func set(t *testing.T, addrs ...string) ([]*facts, *Options) {
	t.Helper()
	o := &Options{MaxTTL: time.Minute, Prefix: "lockproxy:", Upstream: server(t, "10.0.0.9:6379")}
	var all []*facts
	for _, a := range addrs {
		f := sound(t, a)
		all, o.Nodes = append(all, f), append(o.Nodes, f.server)
	}
	return all, o
}

// ids are the findings, as severity and kind.
func ids(found []Finding) string {
	var out []string
	for _, f := range found {
		out = append(out, string(f.Severity)+" "+f.ID)
	}
	return strings.Join(out, ", ")
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func TestJudge(t *testing.T) {
	plain := func(url string) func(*facts, *Options) {
		return func(f *facts, _ *Options) { f.server = server(t, url) }
	}
	tests := []struct {
		name string
		but  func(*facts, *Options) // what is not sound of the first
		want string
	}{
		{"sound", func(*facts, *Options) {}, ""},
		{"no TLS, a password", plain("redis://u:p@10.0.0.1:6379"), "warning no-tls"},
		{"no TLS, no password", plain("10.0.0.1:6379"), "warning no-password, note no-tls"},
		{"old", func(f *facts, _ *Options) { f.info["redis_version"] = "5.0.14" }, "error version"},
		{"not tried", func(f *facts, _ *Options) { f.info["redis_version"] = "6.2.1" }, "warning version"},
		{"new", func(f *facts, _ *Options) { f.info["redis_version"] = "10.2.1" }, ""},
		{"a Valkey", func(f *facts, _ *Options) {
			f.info["redis_version"], f.info["valkey_version"], f.info["server_name"] = "7.2.4", "9.1.0", "valkey"
		}, ""},
		{"a Valkey Cluster", func(f *facts, _ *Options) {
			delete(f.info, "redis_mode")
			f.info["server_mode"] = "cluster"
		}, "error role"},
		{"a sentinel", func(f *facts, _ *Options) { f.info["redis_mode"] = "sentinel" }, "error role"},
		{"chosen", func(f *facts, _ *Options) { f.chosen, f.info["connected_slaves"] = true, "1" }, "warning replicas"},
		{"chosen, and bound", func(f *facts, _ *Options) {
			f.chosen, f.info["connected_slaves"], f.config["min-replicas-to-write"] = true, "1", "1"
		}, ""},
		{"acknowledged", func(f *facts, o *Options) { f.info["connected_slaves"], o.ReplicaAcks = "1", 1 }, "error replicas, error replicas"}, // of the two others,
		{"nearly full", func(f *facts, _ *Options) { f.info["maxmemory"], f.info["used_memory"] = "100", "80" }, "warning memory"},
		{"room enough", func(f *facts, _ *Options) { f.info["maxmemory"], f.info["used_memory"] = "100", "79" }, ""},
		{"connections", func(f *facts, _ *Options) { f.config["maxclients"], f.info["connected_clients"] = "100", "80" }, "warning maxclients"},
		{"connections enough", func(f *facts, _ *Options) { f.config["maxclients"], f.info["connected_clients"] = "100", "79" }, ""},
		{"fork", func(f *facts, _ *Options) { f.info["latest_fork_usec"], f.config["save"] = "60000", "3600 1" }, "note forgets, warning pauses"},
		{"fork, settings not seen", func(f *facts, _ *Options) {
			f.info["latest_fork_usec"], f.configErr = "60000", errors.New("NOPERM")
		}, "note could-not-look, warning pauses"},
		{"fork that does not come again", func(f *facts, _ *Options) { f.info["latest_fork_usec"] = "60000" }, ""},
		{"far", func(f *facts, _ *Options) { f.roundTrips = trips(30*time.Millisecond, 40*time.Millisecond) }, "warning latency"},
		{"too far", func(f *facts, _ *Options) { f.roundTrips = trips(210*time.Millisecond, time.Second) }, "error latency"},
		{"too far for the setting", func(f *facts, o *Options) {
			f.roundTrips, o.NodeTimeout = trips(21*time.Millisecond, time.Second), 20*time.Millisecond
		}, "error latency"},
		{"not for short leases", func(f *facts, _ *Options) { f.roundTrips = trips(6*time.Millisecond, 9*time.Millisecond) }, "note latency"},
		{"now and then", func(f *facts, _ *Options) { f.roundTrips = trips(time.Millisecond, 60*time.Millisecond) }, "note latency"},
		{"too far to be asked everything", func(f *facts, _ *Options) {
			f.roundTrips, f.err = trips(210*time.Millisecond, time.Second), fmt.Errorf("INFO: %w", context.DeadlineExceeded)
		}, "error unreachable, error latency"},
		{"silent", func(f *facts, _ *Options) { f.err = errors.New("i/o timeout") }, "error unreachable"},
		{"no CONFIG", func(f *facts, _ *Options) { f.config, f.configErr = nil, errors.New("ERR unknown command") }, "note could-not-look"},
		{"a key is denied", func(f *facts, _ *Options) {
			f.tries = []commandTry{{"get", errors.New("NOPERM this user has no permissions to access one of the keys used as arguments")}}
		}, "error permissions"},
		{"own certificate", func(_ *facts, o *Options) {
			o.Certificates = []Certificate{{"tls-cert", lasting(-89*24*time.Hour, 24*time.Hour)}}
		}, "warning certificate-ends"},
		{"an old certificate", func(f *facts, _ *Options) { f.cert = lasting(-time.Hour, -time.Minute) }, "error certificate-ends"},
		{"short-lived certificate", func(f *facts, _ *Options) { f.cert = lasting(-time.Hour, 23*time.Hour) }, ""},
		{"in plain text", func(_ *facts, o *Options) { o.Exposed = []string{"listen: …"} }, "warning exposed"},
		{"one machine", func(f *facts, _ *Options) { f.remote = &net.TCPAddr{IP: net.ParseIP("10.0.0.2")} }, "warning one-machine"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, o := set(t, "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379")
			tt.but(all[0], o)
			found := judge(all, o, noon)
			if got := ids(found); got != tt.want {
				t.Errorf("%s, want %s\n%v", got, tt.want, found)
			}
		})
	}
}

// lasting is a certificate that began and ends so long after noon.
func lasting(from, to time.Duration) *x509.Certificate {
	return &x509.Certificate{NotBefore: noon.Add(from), NotAfter: noon.Add(to)}
}

// Two of five at one place leave a quorum, three do not.
func TestJudgeMachines(t *testing.T) {
	for here, want := range map[int]string{1: "", 2: "note one-machine", 3: "warning one-machine"} {
		all, o := set(t, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1")
		for _, f := range all[:here] {
			f.remote = &net.TCPAddr{IP: net.ParseIP("10.0.0.1")}
		}
		if got := ids(judge(all, o, noon)); got != want {
			t.Errorf("%d of 5: %s, want %s", here, got, want)
		}
	}
}

func TestJudgeClocks(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name   string
		ahead  []time.Duration // of each node, against this machine
		within time.Duration
		want   []string // severity and the start of the problem
	}{
		{"together", []time.Duration{2 * ms, -3 * ms, 90 * ms}, ms, nil},
		{"one", []time.Duration{0, 300 * ms, 0}, ms, []string{"warning the clock of 10.0.0.2:1 is 300ms"}},
		{"one by far", []time.Duration{0, 0, -2000 * ms}, ms, []string{"error the clock of 10.0.0.3:1 is 2s"}},
		{"not proven", []time.Duration{0, 300 * ms, 0}, 150 * ms, nil},
		{"proven to be some", []time.Duration{0, 1100 * ms, 0}, 100 * ms, []string{"warning the clock of 10.0.0.2:1 is 1.1s"}},
		{"this machine", []time.Duration{3000 * ms, 3001 * ms, 3002 * ms}, ms, []string{"error this machine's clock is 3s (±1ms) behind"}},
		{"only one node", []time.Duration{-400 * ms}, ms, []string{"warning the clock of 10.0.0.1:1 is 400ms (±1ms) behind this machine's"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, _ := set(t, []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}[:len(tt.ahead)]...)
			for i, f := range all {
				f.clockAhead, f.clockError = tt.ahead[i], tt.within
			}
			out := &findings{}
			judgeClocks(out, all)
			if len(out.list) != len(tt.want) {
				t.Fatalf("%v, want %v", out.list, tt.want)
			}
			for i, f := range out.list {
				if got := string(f.Severity) + " " + f.Problem; !strings.HasPrefix(got, tt.want[i]) {
					t.Errorf("%s, want %s", got, tt.want[i])
				}
			}
		})
	}
}

func TestLoopbackOnly(t *testing.T) {
	for bind, want := range map[string]bool{"127.0.0.1 -::1": true, "127.0.0.1": true, "": false, "* -::*": false, "127.0.0.1 10.0.0.1": false} {
		if loopbackOnly(bind) != want {
			t.Errorf("%q: %t", bind, !want)
		}
	}
}

// A fix names the server as its URL does, and never the password.
func TestCommandLine(t *testing.T) {
	for url, want := range map[string]string{
		"redis://10.0.0.1:7000":             "redis-cli -h 10.0.0.1 -p 7000 PING",
		"rediss://ann:secret@10.0.0.1:7000": "redis-cli -h 10.0.0.1 -p 7000 --tls --user ann --askpass PING",
		"unix:///run/redis.sock":            "redis-cli -s /run/redis.sock PING",
		"redis://:secret@[::1]:7000/3":      "redis-cli -h ::1 -p 7000 --askpass -n 3 PING",
	} {
		if got := cli(server(t, url), "PING"); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	const want = "redis-cli -h 10.0.0.1 -p 7000 --user … --askpass CONFIG SET maxmemory 10"
	if got := cli(server(t, "redis://ann:secret@10.0.0.1:7000"), "CONFIG SET maxmemory 10"); got != want {
		t.Errorf("what the proxy's user may not: %s, want %s", got, want)
	}
}

// What mends a full node makes it larger than what it holds, however much too small it was.
func TestMemoryFix(t *testing.T) {
	all, o := set(t, "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379")
	all[0].info["maxmemory"], all[0].info["used_memory"] = "1000000", "5000000"
	for _, f := range judge(all, o, noon) {
		if f.ID == "memory" && strings.HasSuffix(f.Fix, "CONFIG SET maxmemory 10000000") {
			return
		}
	}
	t.Error("no fix that helps")
}

// Proxies with different max-ttl get on; a larger one is worth knowing of.
func TestOtherMaxTTL(t *testing.T) {
	all, o := set(t, "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379")
	all[0].record["ttl"], all[1].record["ttl"] = "90000", "15000"
	found := judge(all, o, noon)
	if got := ids(found); got != "note other-max-ttl" || !strings.Contains(found[0].Problem, "max-ttl 1m30s") {
		t.Fatal(got, found)
	}
}

// TestLossOfMemory: what is said of a node that forgot depends on how many there are.
func TestLossOfMemory(t *testing.T) {
	addrs := []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379", "10.0.0.4:6379", "10.0.0.5:6379"}
	forgot := func(all []*facts, _ *Options) { all[0].info["master_replid"] = "another" }
	in := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).UnixMilli(), 10) }
	replicas := func(n int) func([]*facts, *Options) {
		return func(all []*facts, _ *Options) {
			for _, f := range all[:n] {
				f.info["repl_backlog_active"], f.config["repl-backlog-ttl"] = "1", "3600"
			}
		}
	}
	tests := []struct {
		name  string
		nodes int
		but   func([]*facts, *Options)
		want  string // a finding, and a part of what it says; empty: none of those looked for
	}{
		{"one of three", 3, forgot, "warning forgot: within seconds if a majority of the lock nodes remembers, else after max-ttl, 1m0s"},
		{"one of one", 1, forgot, "warning forgot: it sits out max-ttl, 1m0s"},
		{"one of three was emptied", 3, func(all []*facts, _ *Options) { clear(all[0].record) }, "warning forgot: within seconds"},
		{"quarantine of three", 3, func(all []*facts, _ *Options) { all[0].record["until"] = in(time.Hour) }, "warning quarantine: or until it knows what a majority of the others hold"},
		{"quarantine of two", 2, func(all []*facts, _ *Options) { all[0].record["until"] = in(time.Hour) }, "warning quarantine: has no vote for another"},
		{"in doubt", 3, func(all []*facts, _ *Options) { all[0].record["doubt"] = in(time.Hour) }, "note doubt: abstains for names that were held then"},
		{"in doubt no more", 3, func(all []*facts, _ *Options) { all[0].record["doubt"] = in(-time.Hour) }, ""},
		{"snapshots", 3, func(all []*facts, _ *Options) { all[0].config["save"] = "3600 1" }, "note forgets: it votes again within seconds"},
		{"a replica, available", 1, func(all []*facts, o *Options) { all[0].info["connected_slaves"], o.Available = "1", true }, "warning replicas, warning forgets: grants held locks again"},
		{"long leases, three nodes", 3, func(_ []*facts, o *Options) { o.MaxTTL = 24 * time.Hour }, ""},
		{"long leases, two nodes", 2, func(_ []*facts, o *Options) { o.MaxTTL = 24 * time.Hour }, "warning long-max-ttl: max-ttl is 24h0m0s"},
		{"ten minutes, two nodes", 2, func(_ []*facts, o *Options) { o.MaxTTL = 10 * time.Minute }, ""},
		{"long leases, votes at once", 1, func(_ []*facts, o *Options) { o.MaxTTL, o.Available = time.Hour, true }, "warning forgets: it votes at once"},
		{"one had replicas", 3, replicas(1), ""},
		{"two had replicas", 3, replicas(2), "warning replication-id: 10.0.0.1:6379, 10.0.0.2:6379 have replicas, or had"},
		{"two of five had replicas", 5, replicas(2), ""},
		{"they keep their id", 3, func(all []*facts, o *Options) {
			replicas(3)(all, o)
			all[0].config["repl-backlog-ttl"], all[1].config["repl-backlog-ttl"] = "0", "0"
		}, ""},
	}
	looked := []string{"forgot", "quarantine", "doubt", "forgets", "replicas", "long-max-ttl", "replication-id"}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, o := set(t, addrs[:tt.nodes]...)
			tt.but(all, o)
			got := slices.DeleteFunc(judge(all, o, noon), func(f Finding) bool { return !slices.Contains(looked, f.ID) })
			id, part, _ := strings.Cut(tt.want, ": ")
			if ids(got) != id || id != "" && !strings.Contains(got[0].Problem, part) {
				t.Errorf("%v, want %s", got, tt.want)
			}
		})
	}
}

// TestNoQuorum: where each node is a warning at most, it is an error that together they leave no majority.
func TestNoQuorum(t *testing.T) {
	addrs := []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379", "10.0.0.4:6379", "10.0.0.5:6379"}
	quarantine := func(f *facts) { f.record["until"] = strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10) }
	forgot := func(f *facts) { f.info["master_replid"] = "another" }
	emptied := func(f *facts) { clear(f.record) }
	floor := func(f *facts) { f.record["sync"] = "0" }
	down := func(f *facts) { f.err = errors.New("connection refused") }
	full := func(f *facts) { f.refused = errors.New("OOM") }
	for _, tt := range []struct {
		name string
		but  []func(*facts) // of the first nodes, each
		want string
	}{
		{"two of five", []func(*facts){down, quarantine}, ""},
		{"three in quarantine", []func(*facts){quarantine, quarantine, quarantine}, "at most 2 of 5 vote now and 3 must"},
		{"one of each", []func(*facts){forgot, emptied, floor}, "at most 2 of 5"},
		{"down, full, quarantine", []func(*facts){down, full, quarantine}, "at most 2 of 5"},
		{"all are new", []func(*facts){emptied, emptied, emptied, emptied, emptied}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, o := set(t, addrs...)
			for i, but := range tt.but {
				but(all[i])
			}
			got := slices.DeleteFunc(judge(all, o, noon), func(f Finding) bool { return f.ID != "no-quorum" })
			if (len(got) == 1) != (tt.want != "") || tt.want != "" && !strings.HasPrefix(got[0].Problem, tt.want) {
				t.Errorf("%v, want %q", got, tt.want)
			}
		})
	}
}

// TestLossOfMemory_RefusesWrites: a node that forgot and is full does not come back by itself.
func TestLossOfMemory_RefusesWrites(t *testing.T) {
	for name, forget := range map[string]func(*facts){
		"restarted":  func(f *facts) { f.info["master_replid"] = "another" },
		"emptied":    func(f *facts) { clear(f.record) },
		"quarantine": func(f *facts) { f.record["until"] = strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10) },
		"no fences":  func(f *facts) { f.record["sync"] = "0" },
	} {
		all, o := set(t, "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379")
		forget(all[0])
		all[0].info["maxmemory"], all[0].info["used_memory"] = "1000000", "1000000"
		all[0].tries = []commandTry{{"set", errors.New("OOM command not allowed when used memory > 'maxmemory'.")}}
		found := judge(all, o, noon)
		last := found[len(found)-1]
		if !strings.HasSuffix(last.Problem, "not before it takes writes again: 10.0.0.1:6379") || !strings.HasPrefix(last.Fix, "let it take writes (see refuses-writes); then ") {
			t.Errorf("%s: %+v", name, last)
		}
		i := slices.IndexFunc(found, func(f Finding) bool { return f.ID == "refuses-writes" })
		if i < 0 || !strings.HasSuffix(found[i].Fix, "CONFIG SET maxmemory 2000000") {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestReport_NamesValkey: the report and its advice call a Valkey server Valkey.
func TestReport_NamesValkey(t *testing.T) {
	all, o := set(t, "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379")
	for _, f := range all[:2] {
		f.info["maxmemory_policy"] = "allkeys-lru"
	}
	all[0].info["redis_version"], all[0].info["valkey_version"] = "7.2.4", "6.2.1" // there is none that old
	if l := all[0].measurement(); l.Software != "Valkey" || l.Version != "6.2.1" {
		t.Errorf("looked at %s %s", l.Software, l.Version)
	}
	if l := all[1].measurement(); l.Software != "Redis" || l.Version != "7.0.15" {
		t.Errorf("looked at %s %s", l.Software, l.Version)
	}
	for _, f := range judge(all, o, noon) {
		switch {
		case f.ID == "version":
			if !strings.HasPrefix(f.Problem, "Valkey 6.2.1 ") {
				t.Errorf("%s: %s", f.Where, f.Problem)
			}
		case strings.HasPrefix(f.Fix, "redis-cli") == (f.Where == all[0].where()), strings.HasPrefix(f.Fix, "valkey-cli") != (f.Where == all[0].where()):
			t.Errorf("%s: %s", f.Where, f.Fix)
		}
	}
}
