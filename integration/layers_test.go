package integration

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/lockproxy/lockproxy"

// A room is one package of the drawing in CONTRIBUTING.md: which of our
// packages it may import, and which modules of others. Siblings never meet.
type room struct {
	pkg    string   // below the module's root; a trailing /... covers the packages below it too
	ours   []string // in the same form
	theirs []string // module paths
	apart  bool     // a module of its own
}

var drawing = []room{
	{pkg: "cmd/lockproxy",
		ours:   []string{"cmd/lockproxy/child", "cmd/lockproxy/client", "cmd/lockproxy/embedded", "cmd/lockproxy/exit", "cmd/lockproxy/inspect", "cmd/lockproxy/store", "proxy", "proxy/admin", "commands", "commands/lockcmd", "commands/stats", "commands/adopt", "commands/adopt/explain", "commands/adopt/idiom", "commands/adopt/migrate", "commands/adopt/observe", "commands/adopt/pattern", "commands/adopt/peers", "backends", "backends/topology", "backends/upstream", "backends/locks", "backends/locks/membership", "backends/locks/voters", "backends/loglimit", "backends/check", "backends/resp", "backends/metrics"},
		theirs: []string{"github.com/urfave/cli/v2", "go.yaml.in/yaml/v3", "github.com/coreos/go-systemd/v22", "golang.org/x/sys"}},
	{pkg: "cmd/lockproxy/child"},
	{pkg: "cmd/lockproxy/client",
		ours: []string{"cmd/lockproxy/exit", "backends", "backends/resp"}},
	{pkg: "cmd/lockproxy/embedded",
		ours:   []string{"commands/spec", "backends/resp"},
		theirs: []string{"github.com/alicebob/miniredis/v2"}},
	{pkg: "cmd/lockproxy/exit"},
	{pkg: "cmd/lockproxy/inspect",
		ours: []string{"cmd/lockproxy/client", "backends/resp"}},
	{pkg: "cmd/lockproxy/store",
		ours: []string{"backends", "backends/check", "backends/locks", "backends/locks/etcd", "backends/locks/quorum", "backends/locks/voters"}},
	{pkg: "proxy/admin",
		ours:   []string{"proxy", "commands", "commands/lockcmd", "commands/adopt/observe", "backends/loglimit", "backends/upstream", "backends/locks", "backends/metrics"},
		theirs: []string{"github.com/prometheus/client_golang", "github.com/hashicorp/golang-lru/v2"}},
	{pkg: "proxy",
		ours:   []string{"proxy/request", "commands", "backends/netio", "backends/workers", "backends/metrics"},
		theirs: []string{"github.com/tidwall/redcon"}},
	{pkg: "proxy/request",
		ours:   []string{"backends/resp"},
		theirs: []string{"github.com/tidwall/redcon"}},
	{pkg: "commands",
		ours: []string{"commands/spec", "commands/relay", "commands/cluster", "commands/tx", "commands/table", "commands/lockcmd", "commands/adopt", "commands/adopt/observe", "commands/adopt/pattern", "commands/acl", "commands/stats", "commands/clients", "commands/pubsub", "backends/upstream", "backends/resp", "backends/metrics"}},
	{pkg: "commands/table",
		ours: []string{"commands/spec", "commands/cluster", "commands/tx", "commands/stats", "backends/upstream"}},
	{pkg: "commands/spec",
		ours: []string{"backends/resp"}},
	{pkg: "commands/relay",
		ours: []string{"commands/spec", "backends/upstream", "backends/resp", "backends/metrics"}},
	{pkg: "commands/cluster",
		ours: []string{"commands/spec", "commands/relay", "backends/upstream", "backends/resp"}},
	{pkg: "commands/tx",
		ours: []string{"commands/relay", "commands/clients", "backends/upstream", "backends/resp"}},
	{pkg: "commands/pubsub",
		ours: []string{"commands/spec", "commands/relay", "backends/upstream", "backends/resp"}},
	{pkg: "commands/clients",
		ours: []string{"backends/upstream", "backends/resp"}},
	{pkg: "commands/acl",
		ours:   []string{"backends/upstream", "backends/resp"},
		theirs: []string{"github.com/hashicorp/golang-lru/v2"}},
	{pkg: "commands/stats",
		ours: []string{"commands/spec", "backends/upstream", "backends/locks", "backends/resp", "backends/metrics"}},
	{pkg: "commands/lockcmd",
		ours: []string{"commands/adopt/migrate", "commands/adopt/observe", "backends/locks", "backends/resp"}},
	{pkg: "commands/adopt",
		ours:   []string{"commands/adopt/idiom", "commands/adopt/peers", "backends/glob", "commands/adopt/turns", "commands/adopt/join", "commands/adopt/pattern", "commands/adopt/readers", "backends/locks", "backends/resp", "backends/loglimit", "backends/metrics"},
		theirs: []string{"github.com/hashicorp/golang-lru/v2"}},
	{pkg: "commands/adopt/turns"},
	{pkg: "commands/adopt/pattern",
		ours: []string{"commands/adopt/idiom", "commands/adopt/peers", "backends/glob"}},
	{pkg: "commands/adopt/join",
		ours: []string{"backends/resp"}},
	{pkg: "commands/adopt/readers",
		ours: []string{"commands/adopt/idiom", "backends/locks"}},
	{pkg: "commands/adopt/explain",
		ours: []string{"commands/adopt/idiom"}},
	{pkg: "commands/adopt/observe",
		ours:   []string{"commands/adopt/idiom", "backends/glob", "backends/resp"},
		theirs: []string{"github.com/hashicorp/golang-lru/v2"}},
	{pkg: "commands/adopt/migrate",
		ours: []string{"commands/relay", "commands/adopt/pattern", "commands/adopt/peers", "backends/glob", "backends", "backends/upstream", "backends/locks", "backends/resp"}},
	{pkg: "commands/adopt/peers",
		ours: []string{"backends/glob", "backends/locks", "backends/metrics"}},
	{pkg: "commands/adopt/idiom",
		ours:   []string{"commands/adopt/idiom/lua", "backends/resp"},
		theirs: []string{"github.com/hashicorp/golang-lru/v2"}},
	{pkg: "commands/adopt/idiom/lua",
		theirs: []string{"github.com/yuin/gopher-lua"}},
	{pkg: "backends/upstream",
		ours:   []string{"backends", "backends/topology", "backends/resp", "backends/netio", "backends/loglimit", "backends/metrics"},
		theirs: []string{"github.com/hashicorp/golang-lru/v2"}},
	{pkg: "backends/netio",
		theirs: []string{"golang.org/x/sys"}},
	{pkg: "backends/glob"},
	{pkg: "backends/loglimit"},
	{pkg: "backends/workers"},
	{pkg: "backends/locks",
		ours:   []string{"backends/locks/waitq", "backends/metrics"},
		theirs: []string{"golang.org/x/sys"}},
	{pkg: "backends/locks/waitq"},
	{pkg: "backends/locks/chores"},
	{pkg: "backends/locks/nodekeys",
		ours: []string{"backends/locks"}},
	{pkg: "backends/locks/memstore",
		ours: []string{"backends/locks"}},
	{pkg: "backends/locks/etcd",
		ours:   []string{"backends/glob", "backends/locks", "backends/locks/chores", "backends/locks/inflight", "backends/locks/seats", "backends/loglimit", "backends/metrics"},
		theirs: []string{"github.com/hashicorp/golang-lru/v2"}},
	{pkg: "backends/locks/quorum",
		ours:   []string{"backends/locks", "backends/locks/vote", "backends/locks/voters", "backends/locks/copying", "backends/locks/hints", "backends/locks/holdid", "backends/locks/inflight", "backends/locks/nodekeys", "backends/locks/seats", "backends/locks/tally", "backends/metrics", "scripts"},
		theirs: []string{"github.com/redis/rueidis", "github.com/hashicorp/golang-lru/v2"}},
	{pkg: "backends/locks/membership",
		ours:   []string{"backends", "backends/locks/nodekeys", "backends/locks/vote", "backends/locks/voters", "scripts"},
		theirs: []string{"github.com/redis/rueidis"}},
	{pkg: "backends/locks/copying",
		ours:   []string{"backends/locks/nodekeys", "backends/locks/vote", "backends/locks/voters", "backends/loglimit", "scripts"},
		theirs: []string{"github.com/redis/rueidis"}},
	{pkg: "backends/locks/hints",
		ours:   []string{"backends/locks", "backends/locks/nodekeys", "backends/locks/vote", "backends/locks/vote", "backends/locks/voters", "scripts"},
		theirs: []string{"github.com/redis/rueidis"}},
	{pkg: "backends/locks/holdid",
		ours: []string{"backends/locks"}},
	{pkg: "backends/locks/inflight",
		ours: []string{"backends/locks"}},
	{pkg: "backends/locks/tally",
		ours: []string{"backends/locks", "backends/locks/holdid", "backends/locks/seats", "backends/locks/vote"}},
	{pkg: "backends/locks/seats",
		ours:   []string{"backends/locks"},
		theirs: []string{"github.com/hashicorp/golang-lru/v2"}},
	{pkg: "backends/locks/vote",
		ours:   []string{"backends", "backends/locks", "backends/locks/nodekeys"},
		theirs: []string{"github.com/redis/rueidis"}},
	{pkg: "backends/locks/voters",
		ours:   []string{"backends", "backends/topology", "backends/locks", "backends/locks/nodekeys", "backends/locks/vote", "backends/workers", "backends/loglimit", "backends/metrics", "scripts"},
		theirs: []string{"github.com/redis/rueidis"}},
	{pkg: "backends/check",
		ours:   []string{"backends", "backends/topology"},
		theirs: []string{"github.com/redis/rueidis"}},
	{pkg: "backends/topology",
		ours:   []string{"backends", "backends/loglimit"},
		theirs: []string{"github.com/redis/rueidis"}},
	{pkg: "backends",
		ours:   []string{"backends/resp"},
		theirs: []string{"github.com/redis/rueidis"}},
	{pkg: "backends/resp"},
	{pkg: "backends/metrics"},
	{pkg: "scripts"},
	{pkg: "docs/recipes", apart: true,
		theirs: []string{"github.com/redis/go-redis/v9"}},
	{pkg: "integration/model/explore"},
	{pkg: "integration/model/...",
		ours: []string{"integration/model/explore"}},
	{pkg: "integration/browser", apart: true,
		theirs: []string{"github.com/chromedp/chromedp", "github.com/chromedp/cdproto"}},
	{pkg: "integration/clients/...", apart: true,
		ours:   []string{"integration/redistest", "integration/clients/visits", "docs/recipes"},
		theirs: []string{"golang.org/x/sync", "github.com/redis/go-redis/v9", "modernc.org/sqlite"}},
	{pkg: "integration/faults", apart: true,
		ours:   []string{"integration/redistest", "integration/mutants", "scripts"}, // faults are aimed at scripts, by their SHA
		theirs: []string{"golang.org/x/sys", "github.com/Shopify/toxiproxy/v2", "github.com/rs/zerolog", "github.com/anishathalye/porcupine"}},
	{pkg: "integration/mutants",
		ours: []string{"scripts"}}, // of which a mutant has its own
	{pkg: "integration/bench",
		ours:   []string{"integration/redistest", "scripts"}, // whose calls it looks for in SLOWLOG
		theirs: []string{"golang.org/x/sync", "golang.org/x/sys"}},
	{pkg: "integration/...",
		ours:   []string{"integration/..."},
		theirs: []string{"golang.org/x/sync", "golang.org/x/sys"}},
}

// inTests is what the tests of any room may import on top of what the room may.
var inTests = room{
	ours:   []string{"integration/redistest", "commands/spec", "commands/lockcmd", "commands/adopt", "commands/adopt/pattern", "commands/adopt/peers", "backends", "backends/topology", "backends/upstream", "backends/locks", "backends/locks/waitq", "backends/locks/memstore", "backends/locks/etcd", "backends/locks/membership", "backends/locks/quorum", "backends/locks/voters"},
	theirs: []string{"github.com/alicebob/miniredis/v2", "github.com/yuin/gopher-lua", "github.com/redis/rueidis"},
}

// A listed package is what go list says of one of ours.
type listed struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func TestLayers(t *testing.T) {
	seen := map[string]bool{}
	checkLayers(t, ".", seen)
	for _, r := range drawing {
		if r.apart {
			checkLayers(t, strings.TrimSuffix(r.pkg, "/..."), seen)
		}
		if !seen[r.pkg] {
			t.Errorf("%s is drawn, but there is no such package", r.pkg)
		}
	}
}

// checkLayers looks at all packages of the module in dir, and notes whose rooms it has seen.
func checkLayers(t *testing.T, dir string, seen map[string]bool) {
	t.Helper()
	modules := modulesOf(t, dir)
	for _, p := range list[listed](t, dir, "-json=ImportPath,Imports,TestImports,XTestImports", "./...") {
		name := strings.TrimPrefix(p.ImportPath, modulePath+"/")
		i := slices.IndexFunc(drawing, func(r room) bool { return covers(r.pkg, name) })
		if i < 0 {
			t.Errorf("%s is not in the drawing", name)
			continue
		}
		r := drawing[i]
		seen[r.pkg] = true
		for _, arrow := range undrawn(p.Imports, r, modules) {
			t.Errorf("%s imports %s: that arrow is not drawn", name, arrow)
		}
		r.ours = slices.Concat(r.ours, inTests.ours, []string{name})
		r.theirs = slices.Concat(r.theirs, inTests.theirs)
		for _, arrow := range undrawn(slices.Concat(p.TestImports, p.XTestImports), r, modules) {
			t.Errorf("a test of %s imports %s: that arrow is not drawn", name, arrow)
		}
	}
}

// undrawn are the imports that r does not allow. modules maps the packages of others
// to their modules; the standard library, which has none, is always allowed.
func undrawn(imports []string, r room, modules map[string]string) (arrows []string) {
	for _, path := range imports {
		name, isOurs := strings.CutPrefix(path, modulePath+"/")
		switch module := modules[path]; {
		case isOurs && !slices.ContainsFunc(r.ours, func(o string) bool { return covers(o, name) }):
			arrows = append(arrows, name)
		case !isOurs && module != "" && !slices.Contains(r.theirs, module):
			arrows = append(arrows, module)
		}
	}
	return arrows
}

// covers reports whether pattern, as in a room, names the package.
func covers(pattern, name string) bool {
	base, below := strings.CutSuffix(pattern, "/...")
	return name == base || below && strings.HasPrefix(name, base+"/")
}

// modulesOf maps every package that those of the module in dir need, in tests too, to its
// module. The standard library's have none.
func modulesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	type pkg struct {
		ImportPath string
		Module     struct{ Path string }
	}
	modules := map[string]string{}
	for _, p := range list[pkg](t, dir, "-deps", "-test", "-json=ImportPath,Module", "./...") {
		modules[p.ImportPath] = p.Module.Path
	}
	return modules
}

// list runs go list in a directory, named below the root, and decodes what it prints.
func list[T any](t *testing.T, dir string, args ...string) (out []T) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = filepath.Join("..", filepath.FromSlash(dir))
	text, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %s", cmd, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(text))); ; {
		var v T
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
}

func TestLayers_Undrawn(t *testing.T) {
	r := room{ours: []string{"a", "b/..."}, theirs: []string{"example.org/x/v2"}}
	modules := map[string]string{"example.org/x/v2/y": "example.org/x/v2", "example.org/x/y": "example.org/x"}
	tests := []struct {
		imports, want string
	}{
		{"fmt net/http", ""},
		{modulePath + "/a " + modulePath + "/b " + modulePath + "/b/c", ""},
		{modulePath + "/a/b " + modulePath + "/bc", "a/b bc"},
		{"example.org/x/v2/y", ""},
		{"example.org/x/y", "example.org/x"},
	}
	for _, tt := range tests {
		if got := strings.Join(undrawn(strings.Fields(tt.imports), r, modules), " "); got != tt.want {
			t.Errorf("%s: undrawn %q, want %q", tt.imports, got, tt.want)
		}
	}
}
