package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// gather runs load as a command line, an environment and files would have it.
// Files are written to a directory that replaces DIR wherever it is written.
func gather(t *testing.T, args []string, env, files map[string]string) (config, faults) {
	t.Helper()
	dir := t.TempDir()
	in := func(s string) string { return strings.ReplaceAll(s, "DIR", dir) }
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(in(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return in(v), ok }

	line := []string{"lockproxy"}
	for _, a := range args {
		line = append(line, in(a))
	}
	var (
		got config
		bad faults
	)
	app := &cli.App{
		DisableSliceFlagSeparator: true,
		Flags:                     append(flags(new(options).settings()), configFlag()),
		Action: func(c *cli.Context) error {
			got, bad = load(c, lookup, new(options).settings())
			return nil
		},
	}
	if err := app.Run(line); err != nil {
		t.Fatal(err)
	}
	return got, bad
}

func TestPrecedence(t *testing.T) {
	type m = map[string]string
	tests := []struct {
		name       string
		args       []string
		env, files m
		want       map[string][]string
	}{
		{"nothing", nil, nil, nil, map[string][]string{}},
		{"a flag", []string{"--max-ttl", "1s"}, nil, nil, map[string][]string{"max-ttl": {"1s"}}},
		{"the environment", nil, m{"LOCKPROXY_MAX_TTL": "2s"}, nil, map[string][]string{"max-ttl": {"2s"}}},
		{"the file", []string{"--config", "DIR/f"}, nil, m{"f": "max-ttl: 3s"}, map[string][]string{"max-ttl": {"3s"}}},
		{"the file, by environment", nil, m{"LOCKPROXY_CONFIG": "DIR/f"}, m{"f": "max-clients: 7"}, map[string][]string{"max-clients": {"7"}}},
		{"a flag before the environment", []string{"--max-ttl", "1s"}, m{"LOCKPROXY_MAX_TTL": "2s"}, nil, map[string][]string{"max-ttl": {"1s"}}},
		{"the environment before the file", []string{"--config", "DIR/f"}, m{"LOCKPROXY_MAX_TTL": "2s"}, m{"f": "max-ttl: 3s"}, map[string][]string{"max-ttl": {"2s"}}},
		{"a bare toggle", []string{"--require-owner"}, nil, nil, map[string][]string{"require-owner": {"true"}}},
		{"a toggle turned off again", []string{"--require-owner=false"}, m{"LOCKPROXY_REQUIRE_OWNER": "true"}, nil, map[string][]string{"require-owner": {"false"}}},
		{"a list of flags", []string{"--lock-node", "a:1", "--lock-node", "b:1,2"}, nil, nil, map[string][]string{"lock-node": {"a:1", "b:1,2"}}},
		{"a list in the environment", nil, m{"LOCKPROXY_LOCK_NODE": "a:1 b:1\nc:1"}, nil, map[string][]string{"lock-node": {"a:1", "b:1", "c:1"}}},
		{"a list of values with spaces in the environment", nil, m{"LOCKPROXY_ADOPT": "a:* as=strict; b:*\nc:*"}, nil, map[string][]string{"adopt": {"a:* as=strict", "b:*", "c:*"}}},
		{"a spaced list of flags", []string{"--adopt", "lock:[a,b]* as=strict", "--adopt", "job:*"}, nil, nil, map[string][]string{"adopt": {"lock:[a,b]* as=strict", "job:*"}}},
		{"a spaced list in the environment", nil, m{"LOCKPROXY_ADOPT": "lock:* as=strict ; job:* db=1\n\n  b:* ;\n"}, nil, map[string][]string{"adopt": {"lock:* as=strict", "job:* db=1", "b:*"}}},
		{"a spaced list in the file", []string{"--config", "DIR/f"}, nil, m{"f": "adopt:\n- lock:* as=strict\n- '{job}:*'"}, map[string][]string{"adopt": {"lock:* as=strict", "{job}:*"}}},
		{"one for a spaced list in the file", []string{"--config", "DIR/f"}, nil, m{"f": "adopt: lock:* as=strict ; x"}, map[string][]string{"adopt": {"lock:* as=strict ; x"}}},
		{"a list in the file", []string{"--config", "DIR/f"}, nil, m{"f": "lock-node:\n- a:1\n- b:1"}, map[string][]string{"lock-node": {"a:1", "b:1"}}},
		{"one for a list in the file", []string{"--config", "DIR/f"}, nil, m{"f": "lock-node: a:1"}, map[string][]string{"lock-node": {"a:1"}}},
		{"a list is replaced whole", []string{"--lock-node", "a:1"}, m{"LOCKPROXY_LOCK_NODE": "b:1 c:1"}, nil, map[string][]string{"lock-node": {"a:1"}}},
		{"a secret file", []string{"--upstream-file", "DIR/s"}, nil, m{"s": "\n# ours\n redis://u:1 \n"}, map[string][]string{"upstream": {"redis://u:1"}}},
		{"a secret file of several", nil, m{"LOCKPROXY_LOCK_NODE_FILE": "DIR/s"}, m{"s": "a:1\nb:1\n"}, map[string][]string{"lock-node": {"a:1", "b:1"}}},
		{"a flag before a secret file", []string{"--upstream", "u:1"}, m{"LOCKPROXY_UPSTREAM_FILE": "DIR/none"}, nil, map[string][]string{"upstream": {"u:1"}}},
		{"a secret file named by the file", []string{"--config", "DIR/f"}, nil, m{"f": "upstream-file: DIR/s", "s": "u:1"}, map[string][]string{"upstream": {"u:1"}}},
		{"empty file", []string{"--config", "DIR/f"}, nil, m{"f": "# nothing yet\n"}, map[string][]string{}},
		{"empty variable", nil, m{"LOCKPROXY_MAX_TTL": ""}, nil, map[string][]string{}},
		{"somebody else's variable", nil, m{"LOCKPROXY_PORT": "tcp://10.0.0.1:6380"}, nil, map[string][]string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, bad := gather(t, tt.args, tt.env, tt.files)
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			got := map[string][]string{}
			for name, g := range c {
				got[name] = g.values
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSourceFaults(t *testing.T) {
	type m = map[string]string
	tests := []struct {
		name       string
		args       []string
		env, files m
		want       string // in the only fault
	}{
		{"no such file", []string{"--config", "DIR/none"}, nil, nil, "no such file"},
		{"not YAML", []string{"--config", "DIR/f"}, nil, m{"f": "a: ["}, "is not YAML"},
		{"not a mapping", []string{"--config", "DIR/f"}, nil, m{"f": "- a"}, "is not a list of settings"},
		{"two documents", []string{"--config", "DIR/f"}, nil, m{"f": "max-ttl: 1s\n---\nmax-ttl: 2s\n"}, "more than one document"},
		{"unknown key", []string{"--config", "DIR/f"}, nil, m{"f": "max-ttl: 1s\nmax_ttl: 1s"}, "/f:2): no such setting; did you mean max-ttl?"},
		{"unknown key like none", []string{"--config", "DIR/f"}, nil, m{"f": "colour: red"}, "/f:1): no such setting; there are admin, "},
		{"key twice", []string{"--config", "DIR/f"}, nil, m{"f": "max-ttl: 1s\n\nmax-ttl: 1s"}, "/f:3): was set before, at "},
		{"no value", []string{"--config", "DIR/f"}, nil, m{"f": "max-ttl:"}, "must be one value"},
		{"a list for one", []string{"--config", "DIR/f"}, nil, m{"f": "max-ttl: [1s, 2s]"}, "must be one value"},
		{"a mapping for a list", []string{"--config", "DIR/f"}, nil, m{"f": "lock-node: {a: 1}"}, "must be a value or a list of values"},
		{"no such secret file", []string{"--upstream-file", "DIR/none"}, nil, nil, "upstream (--upstream-file): open "},
		{"empty secret file", []string{"--lock-node-file", "DIR/s"}, nil, m{"s": "#\n"}, "holds 0 values, want a value or a list of values"},
		{"two secrets for one", nil, m{"LOCKPROXY_UPSTREAM_FILE": "DIR/s"}, m{"s": "a:1\nb:1"}, "holds 2 values, want one value"},
		{"plain and file", []string{"--upstream", "a:1", "--upstream-file", "DIR/s"}, nil, m{"s": "a:1"}, "upstream: given twice, by --upstream and --upstream-file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, bad := gather(t, tt.args, tt.env, tt.files)
			if len(bad) != 1 || !strings.Contains(bad[0].Error(), tt.want) {
				t.Errorf("faults %v, want one that says %q", bad, tt.want)
			}
		})
	}
}
