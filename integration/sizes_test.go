package integration

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// What a stranger can still read: lines of a package and of a file, without tests.
const (
	mostOfPackage = 3800
	mostOfFile    = 500
)

// tooLarge are packages and files that are larger, and how large they may be. They may only
// shrink: lower the figure with them, and take out what has become small enough.
var tooLarge = map[string]int{}

// TestSizes: no package and no file of the product is too large to be read.
func TestSizes(t *testing.T) {
	for name, n := range productLines(t) {
		most := mostOfPackage
		if path.Ext(name) != "" {
			most = mostOfFile
		}
		listed, isListed := tooLarge[name]
		switch {
		case !isListed && n > most:
			t.Errorf("%s has %d lines, %d are the most", name, n, most)
		case isListed && n > listed:
			t.Errorf("%s has grown to %d lines from %d; %d are the most", name, n, listed, most)
		case isListed && n <= most:
			t.Errorf("%s has only %d lines: take it off the list", name, n)
		}
	}
}

// productLines are the lines of every file of the product, and of its packages by directory.
func productLines(t *testing.T) map[string]int {
	t.Helper()
	lines := map[string]int{}
	root := os.DirFS("..")
	for _, dir := range []string{"cmd", "proxy", "commands", "backends", "scripts"} {
		err := fs.WalkDir(root, dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") ||
				!slices.Contains([]string{".go", ".lua", ".js", ".css", ".html"}, path.Ext(name)) {
				return err
			}
			text, err := fs.ReadFile(root, name)
			n := bytes.Count(text, []byte("\n"))
			lines[name] = n
			if path.Ext(name) == ".go" {
				lines[path.Dir(name)] += n
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range tooLarge {
		if lines[name] == 0 {
			t.Errorf("%s is listed as too large, and not there", name)
		}
	}
	return lines
}
