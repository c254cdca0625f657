package redistest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/module.c
var module []byte

// Module is the path of a loadable module with the commands that testdata/module.c
// lists. The test is skipped where there is no C compiler.
func Module(tb testing.TB) string {
	tb.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		tb.Skip("no C compiler")
	}
	source, object := filepath.Join(tb.TempDir(), "module.c"), filepath.Join(tb.TempDir(), "module.so")
	if err := os.WriteFile(source, module, 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-Wall", "-Wextra", "-o", object, source).CombinedOutput(); err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
	return object
}
