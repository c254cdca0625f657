package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOverlays: every edit still finds its text.
func TestOverlays(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range every {
		if seen[m.Name] || m.Breaks == "" || len(m.Edits) == 0 {
			t.Errorf("%q is there twice, or does not say what it breaks", m.Name)
		}
		seen[m.Name] = true
		if _, err := m.Overlay(t.TempDir()); err != nil {
			t.Error(err)
		}
	}
}

// TestEditsMustBeFoundOnce: a text that is not there, or twice, is an error.
func TestEditsMustBeFoundOnce(t *testing.T) {
	for _, e := range []Edit{
		{"scripts/settle.lua", "there is no such text", ""},
		{"scripts/settle.lua", "local", ""},
		{"scripts/no-such-file.lua", "local", ""},
	} {
		if _, err := (Mutant{Name: "m", Edits: []Edit{e}}).Overlay(t.TempDir()); err == nil {
			t.Errorf("%+v was applied", e)
		}
	}
}

// TestBuild: the program that is built has the edits, also those of embedded scripts.
func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the program")
	}
	path := Build(t, "no-quarantine")
	if out, err := exec.Command(path, "version").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "kept_id ~= replid and lenient") {
		t.Error("the script is as it was")
	}
}
