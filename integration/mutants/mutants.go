// Package mutants breaks lockproxy on purpose, one rule of the algorithm at a time.
//
// A mutant is a few edits of the source, applied by `go build -overlay`: the tree itself
// is never touched. Whoever claims to check the rules, the simulation and the fault
// harness, must notice each of them; `make mutants` shows in how many seconds they do.
package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/scripts"
)

// module is whose source is edited.
const module = "github.com/lockproxy/lockproxy"

// A Mutant is one rule less.
type Mutant struct {
	Name    string // as Build takes it
	Breaks  string // the rule that is gone, and what is to be expected without it
	Profile string // of the simulation, in which it shows soonest; empty: any
	Rare    bool   // the simulation shows it in none of the runs that are made by default, or in too few
	Units   Units  // that notice it; zero: none is named here
	Edits   []Edit
}

// Units are tests of one package, and take seconds.
type Units struct {
	Package string // below the module's root
	Run     string // as for -run
}

// hard reports whether the simulation notices the mutant late, and tests that take seconds at once.
func (m Mutant) hard() bool { return !m.Rare && m.Units != (Units{}) && m.Profile != "" }

// An Edit replaces a text that a file has exactly once.
type Edit struct {
	File     string // below the module's root
	Old, New string
}

// every mutant there is.
var every = slices.Concat(All, Migration, Kept, Settling, Decisions, Handing, Lining, Several, Etcd, Reading, Seating, Copying)

// Find returns the mutant with this name.
func Find(name string) (Mutant, error) {
	var names []string
	for _, m := range every {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return Mutant{}, fmt.Errorf("no mutant %q, only %s", name, strings.Join(names, ", "))
}

// Overlay writes the edited files and the description that `go build -overlay` wants into
// dir and returns the path of the latter. It is an error if a text to be replaced is not
// there exactly once: then the source has changed and the mutant must follow.
func (m Mutant) Overlay(dir string) (string, error) { return m.overlay(dir, nil) }

// overlay is Overlay, without these files, which are paths.
func (m Mutant) overlay(dir string, without []string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for _, path := range without {
		overlay.Replace[path] = ""
	}
	for _, e := range m.Edits {
		from := filepath.Join(root, filepath.FromSlash(e.File))
		to := filepath.Join(dir, strings.ReplaceAll(e.File, "/", "_"))
		source := from
		if overlay.Replace[from] != "" {
			source = to // edited before
		}
		if err := e.apply(source, to); err != nil {
			return "", fmt.Errorf("%s: %s: %w", m.Name, e.File, err)
		}
		overlay.Replace[from] = to
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

func (e Edit) apply(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	edited, err := e.in(string(text))
	if err != nil {
		return err
	}
	return os.WriteFile(to, []byte(edited), 0o600)
}

func (e Edit) in(text string) (string, error) {
	if n := strings.Count(text, e.Old); n != 1 {
		return "", fmt.Errorf("found %d times, not once: %q", n, e.Old)
	}
	return strings.Replace(text, e.Old, e.New, 1), nil
}

// SHA1 is that of the source of a script, as EVALSHA takes it.
func (m Mutant) SHA1(script string) (sha string, err error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	source := scripts.Compose(script, func(name string) string {
		text, readErr := m.file(root, "scripts/"+name+".lua")
		err = errors.Join(err, readErr)
		return text
	})
	return scripts.SHA1(source), err
}

// file is a file of the module with this root, edited.
func (m Mutant) file(root, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	edited := string(text)
	for _, e := range m.Edits {
		if err == nil && e.File == name {
			edited, err = e.in(edited)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", m.Name, name, err)
	}
	return edited, nil
}

var moduleRoot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	return strings.TrimSpace(string(out)), err
})

// Build builds the program with the mutant and returns its path. The file goes with the test.
func Build(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "lockproxy")
	compile(tb, find(tb, name), nil, "build", "-o", path, module+"/cmd/lockproxy")
	return path
}

// TestBinary builds the tests of a package, named below the module's root, with the
// mutant, and returns the path of the binary. The file goes with the test. A test that
// reads files of its package must be run in that package's directory.
func TestBinary(tb testing.TB, name, pkg string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "mutant.test")
	compile(tb, find(tb, name), nil, "test", "-c", "-vet=off", "-o", path, module+"/"+pkg)
	return path
}

func find(tb testing.TB, name string) Mutant {
	tb.Helper()
	m, err := Find(name)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func compile(tb testing.TB, m Mutant, without []string, command string, args ...string) {
	tb.Helper()
	root, err := moduleRoot()
	if err != nil {
		tb.Fatal(err)
	}
	overlay, err := m.overlay(tb.TempDir(), without)
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command("go", append([]string{command, "-overlay", overlay}, args...)...)
	cmd.Dir = root // also for the tests of another module that replaces it by a path
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", m.Name, err, out)
	}
}
