package main

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// fromFlagsOf is a config as if each setting came from the command line; the values of a
// list are separated by spaces.
func fromFlagsOf(pairs ...string) config {
	c := config{}
	for i := 0; i < len(pairs); i += 2 {
		name, text := pairs[i], pairs[i+1]
		g := given{values: []string{text}, from: "--" + name}
		switch name {
		case "lock-node":
			g.values = strings.Fields(text)
		case "adopt":
			g.values = spacedValues(text)
		}
		c[name] = g
	}
	return c
}

// validated is the options of c, or its faults.
func validated(c config, bad faults) (options, faults) {
	var o options
	bad = c.validate(&o, bad)
	return o, bad
}

func TestDefaults(t *testing.T) {
	o, bad := validated(fromFlagsOf("upstream", "redis://127.0.0.1:6379"), nil)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	if len(o.nodes) != 1 || o.nodes[0] != o.upstream {
		t.Errorf("lock nodes = %v, want the upstream alone", o.nodes)
	}
	o.upstream, o.nodes = nil, nil
	want := options{
		listen: "127.0.0.1:6380", upstreamVotes: true, mode: "auto", readFrom: "master",
		minTTL: 100 * time.Millisecond, maxTTL: time.Minute, fenceRetention: 10 * time.Minute,
		bootstrap: "auto", restartGrace: "available", prefix: "lockproxy:",
		maxWait: 10 * time.Minute, maxWaiters: 100000, maxHold: time.Hour, onLoss: "close",
		maxClients: 10000, maxBulk: 512 << 20, maxOutput: 256 << 20, engine: "loop",
		drainTimeout: 10 * time.Second, upstreamConns: 1, maxIdentities: 1024, logLimit: 20,
	}
	if got, want := dump(o), dump(want); got != want {
		t.Errorf("defaults:\n got %s\nwant %s", got, want)
	}
}

func dump(o options) string {
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})).Info("", "options", o)
	return b.String()
}

func TestValidateFaults(t *testing.T) {
	const up = "redis://127.0.0.1:6379"
	tests := []struct {
		name string
		said config
		want []string // one part of each fault, in order
	}{
		{"nothing said", fromFlagsOf(), []string{"upstream: not set"}},
		{"empty upstream", fromFlagsOf("upstream", ""), []string{"upstream: is empty"}},
		{"not a URL", fromFlagsOf("upstream", "ftp://h:1"), []string{"upstream: not a Redis URL"}},
		{"no port", fromFlagsOf("upstream", up, "listen", "localhost"), []string{`listen: "localhost" is neither`}},
		{"port out of range", fromFlagsOf("upstream", up, "listen", ":70000"), []string{`listen: ":70000": the port`}},
		{"a name for a port", fromFlagsOf("upstream", up, "listen", ":redis"), []string{`listen: ":redis": the port`}},
		{"no unit", fromFlagsOf("upstream", up, "max-ttl", "30"), []string{`max-ttl: "30" has no unit; write 30ms, 30s or 30m`}},
		{"no duration", fromFlagsOf("upstream", up, "max-ttl", "soon"), []string{`max-ttl: "soon" is not a duration`}},
		{"negative", fromFlagsOf("upstream", up, "idle-timeout", "-1s"), []string{"idle-timeout: -1s is under the minimum of 0s"}},
		{"too fine", fromFlagsOf("upstream", up, "min-ttl", "1500us"), []string{"min-ttl: 1.5ms is finer than a millisecond"}},
		{"no lease is so short", fromFlagsOf("upstream", up, "max-hold", "99ms"), []string{"max-hold: 99ms is under min-ttl, 100ms"}},
		{"ttl limits crossed", fromFlagsOf("upstream", up, "min-ttl", "2s", "max-ttl", "1s"), []string{"min-ttl: 2s is over max-ttl, 1s"}},
		{"node timeout of a lease", fromFlagsOf("upstream", up, "node-timeout", "60s"), []string{"node-timeout: 1m0s is not shorter"}},
		{"short retention", fromFlagsOf("upstream", up, "fence-retention", "9m"), []string{"fence-retention: 9m0s is under the minimum of 10m0s"}},
		{"admin nowhere", fromFlagsOf("upstream", up, "admin", "6381"), []string{`admin: "6381" is neither host:port`}},
		{"admin settings without admin", fromFlagsOf("upstream", up, "admin-force", "true"), []string{"admin is not set"}},
		{"an admin password without admin", fromFlagsOf("upstream", up, "admin-password", "long enough"), []string{"admin is not set"}},
		{"admin-tls without a certificate", fromFlagsOf("upstream", up, "admin", ":6381", "admin-tls", "true"), []string{"admin-tls: needs tls-cert"}},
		{"a short password", fromFlagsOf("upstream", up, "admin", ":6381", "admin-password", "hunter2"), []string{"admin-password: is shorter than 8"}},
		{"profiles for nobody", fromFlagsOf("upstream", up, "admin", ":6381", "admin-pprof", "true"), []string{"need admin-password, since other machines reach :6381"}},
		{"force for nobody", fromFlagsOf("upstream", up, "admin", "10.0.0.1:6381", "admin-force", "true"), []string{"need admin-password"}},
		{"no prefix", fromFlagsOf("upstream", up, "key-prefix", ""), []string{"key-prefix: is empty"}},
		{"unknown word", fromFlagsOf("upstream", up, "bootstrap", "yes"), []string{`bootstrap: "yes" is not one of auto, strict`}},
		{"unknown level", fromFlagsOf("upstream", up, "log-level", "loud"), []string{`log-level: "loud" is not one of`}},
		{"unknown format", fromFlagsOf("upstream", up, "log-format", "xml"), []string{`log-format: "xml" is not one of text, json`}},
		{"no clients", fromFlagsOf("upstream", up, "max-clients", "0"), []string{`max-clients: "0" is not a whole number from 1`}},
		{"too many clients", fromFlagsOf("upstream", up, "max-clients", "2147483648"), []string{`max-clients: "2147483648" is not`}},
		{"size zero", fromFlagsOf("upstream", up, "max-bulk", "0"), []string{`max-bulk: "0" is not a size`}},
		{"size overflows", fromFlagsOf("upstream", up, "max-output", "9007199254740992gb"), []string{"max-output: "}},
		{"size in other units", fromFlagsOf("upstream", up, "max-output", "1tb"), []string{`max-output: "1tb" is not a size`}},
		{"not one of two words", fromFlagsOf("upstream", up, "on-loss", "cry"), []string{"on-loss: "}},
		{"neither true nor false", fromFlagsOf("upstream", up, "require-owner", "maybe"), []string{"require-owner: "}},
		{"node twice", fromFlagsOf("upstream", up, "lock-node", "redis://a:1 redis://b:1 a:1/2"), []string{"lock-node: a:1 is named twice"}},
		{"lock node of several", fromFlagsOf("upstream", up, "lock-node", "redis://a:1?addr=b:1"), []string{"lock-node: names several addresses"}},
		{"unknown mode", fromFlagsOf("upstream", up, "upstream-mode", "ring"), []string{`upstream-mode: "ring" is not one of auto, standalone`}},
		{"unknown place to read", fromFlagsOf("upstream", up, "read-from", "slave"), []string{`read-from: "slave" is not one of`}},
		{"mode against the URL", fromFlagsOf("upstream", up, "upstream-mode", "sentinel", "lock-node", "a:1"), []string{"upstream-mode: sentinel needs a master set"}},
		{"Cluster without lock nodes", fromFlagsOf("upstream", up, "upstream-mode", "cluster"), []string{"lock-node: not set; a Cluster"}},
		{"Sentinel without lock nodes", fromFlagsOf("upstream", up+"?master_set=m"), []string{"lock-node: not set; a Cluster"}},
		{"replicated without lock nodes", fromFlagsOf("upstream", up+"?addr=h:2"), []string{"lock-node: not set; a Cluster"}},
		{"no sentinels", fromFlagsOf("upstream", up, "sentinel-password", "x"), []string{"sentinel-user, sentinel-password: neither the upstream's URL nor a lock node's names sentinels"}},
		{"faults of a pattern", fromFlagsOf("upstream", up, "adopt", "lock:* as=some mode=maybe db=-1 guard=1 no-expiry=keep colour=red ; job:[ ; "),
			[]string{`adopt: "lock:* as=some mode=maybe db=-1 guard=1 no-expiry=keep colour=red": as=some: is none of strict, usual, full; mode=maybe: `, `adopt: "job:[": a [ without ]`}},
		{"a word twice", fromFlagsOf("upstream", up, "adopt", "lock:* as=strict as=usual"), []string{"as=usual: is given twice"}},
		{"a pattern that another hides", fromFlagsOf("upstream", up, "adopt", "lock:a:* ; lock:* ; lock:b* ; lock:[cd]:* db=3"), []string{`adopt: "lock:b*" is never used: all its keys match "lock:*"`, `adopt: "lock:[cd]:*" is never used`}},
		{"keys of our own", fromFlagsOf("upstream", up, "adopt", "lock* ; lockproxy:a", "max-ttl", "1m"), []string{`adopt: "lock*" matches keys of the proxy's own`, `adopt: "lockproxy:a" matches keys`, `"lockproxy:a" is never used`}},
		{"a lease over max-ttl", fromFlagsOf("upstream", up, "adopt", "a* no-expiry=lease:61s ; b* no-expiry=lease:99ms"), []string{`adopt: "a*": no-expiry=lease:1m1s is over max-ttl, 1m0s`, `adopt: "b*": no-expiry=lease:99ms is under min-ttl, 100ms`}},
		{"all at once", fromFlagsOf("min-ttl", "30", "max-ttl", "1s", "node-timeout", "2s", "log-level", "x"),
			[]string{"min-ttl: ", "log-level: ", "upstream: not set", "node-timeout: 2s is not shorter"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, bad := validated(tt.said, nil)
			if len(bad) != len(tt.want) {
				t.Fatalf("%d faults, want %d: %v", len(bad), len(tt.want), bad)
			}
			for i, want := range tt.want {
				if !strings.Contains(bad[i].Error(), want) {
					t.Errorf("fault %d: %q does not say %q", i, bad[i], want)
				}
			}
		})
	}
}

func TestValidateReads(t *testing.T) {
	tests := []struct {
		name, text string
		got        func(options) any
		want       any
	}{
		{"listen", "/run/lockproxy.sock", func(o options) any { return o.listen }, "/run/lockproxy.sock"},
		{"listen", "[::1]:0", func(o options) any { return o.listen }, "[::1]:0"},
		{"min-ttl", "1m30s", func(o options) any { return o.minTTL }, 90 * time.Second},
		{"node-timeout", "20ms", func(o options) any { return o.nodeTimeout }, 20 * time.Millisecond},
		{"max-bulk", "65536", func(o options) any { return o.maxBulk }, int64(65536)},
		{"max-bulk", "64KB", func(o options) any { return o.maxBulk }, int64(64 << 10)},
		{"max-output", "1gb", func(o options) any { return o.maxOutput }, int64(1 << 30)},
		{"max-wait", "30s", func(o options) any { return o.maxWait }, 30 * time.Second},
		{"max-waiters", "7", func(o options) any { return o.maxWaiters }, 7},
		{"max-hold", "5m", func(o options) any { return o.maxHold }, 5 * time.Minute},
		{"session-grace", "2s", func(o options) any { return o.sessionGrace }, 2 * time.Second},
		{"on-loss", "keep", func(o options) any { return o.onLoss }, "keep"},
		{"require-owner", "true", func(o options) any { return o.requireOwner }, true},
		{"restart-grace", "safe", func(o options) any { return o.restartGrace }, "safe"},
		{"log-level", "WARN", func(o options) any { return o.logLevel }, slog.LevelWarn},
		{"log-limit", "7", func(o options) any { return o.logLimit }, 7},
		{"log-format", "json", func(o options) any { return o.logJSON }, true},
		{"upstream", "unix:///run/redis.sock", func(o options) any { return o.upstream.String() }, "/run/redis.sock"},
		{"upstream-mode", "standalone", func(o options) any { return o.mode }, "standalone"},
		{"read-from", "any", func(o options) any { return o.readFrom }, "any"},
		{"lock-store", "etcd://me:x@a,b/y", func(o options) any { return o.store.String() + addresses(o.nodes) }, "etcd: a:2379 b:2379"},
		{"lock-node", "redis://a:1 b:2 rediss://c:3", func(o options) any { return addresses(o.nodes) }, "a:1 b:2 c:3"},
	}
	for _, tt := range tests {
		t.Run(tt.name+"="+tt.text, func(t *testing.T) {
			c := fromFlagsOf("upstream", "redis://127.0.0.1:6379", "max-ttl", "2m", tt.name, tt.text)
			o, bad := validated(c, nil)
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			if got := tt.got(o); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestValidate_WarnsOfLockNodes(t *testing.T) {
	tests := []struct {
		nodes string
		want  string // of the warning; empty: none
	}{
		{"a:1", ""},
		{"a:1 b:1", "2 lock nodes survive the loss of 0, as 1 would"},
		{"a:1 b:1 c:1", ""},
		{"a:1 b:1 redis://c:1?master_set=m", "m of c:1: a lock node whose master sentinels choose is weaker"},
		{"a:1 b:1 c:1 d:1", "4 lock nodes survive the loss of 1, as 3 would"},
	}
	for _, tt := range tests {
		o, bad := validated(fromFlagsOf("upstream", "u:1", "lock-node", tt.nodes), nil)
		if len(bad) > 0 {
			t.Fatal(bad)
		}
		if got := strings.Join(o.warnings, "\n"); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: warnings %q, want %q", tt.nodes, got, tt.want)
		}
	}
}

func TestFaults_HideSecrets(t *testing.T) {
	for _, url := range []string{
		"redis://:hunter2@h:port",
		"redis://:hun/hunter2@h:1",
		"redis://:hunter2#x@h:1",
		"redis://u:%zzhunter2@h:1",
		"redis://u:hunter2@h:1/x",
		"redis://u:hunter2@h:1?db=hunter2",
		"redis://h:1?password=hunter2&db=hunter2",
		"http://u:hunter2@h:1",
		"redis://u:hunter2@h:1?addr=hunter2:1",
	} {
		for _, name := range []string{"upstream", "lock-node"} {
			c := fromFlagsOf("upstream", "u:1", name, url)
			if _, bad := validated(c, nil); len(bad) != 1 || strings.Contains(bad.Error(), "hunter2") {
				t.Errorf("%s=%s: %s", name, url, bad)
			}
		}
	}
}

func TestSettingNamesAreUnique(t *testing.T) {
	var names []string
	for _, s := range withFiles(new(options).settings()) {
		names = append(names, s.name)
	}
	slices.Sort(names)
	if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
		t.Errorf("%d names for %d settings: %v", n, len(names), names)
	}
}
