package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDependenciesAreRecorded: the lists of what we depend on, with licences, are what go.mod asks for, and what the modules of
// tests ask for on top of it.
func TestDependenciesAreRecorded(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/decisions/0018-what-else-we-depend-on.md")
	if err != nil {
		t.Fatal(err)
	}
	ours, ofTests, _ := strings.Cut(string(page), "\n## Modules of tests\n")
	product := askedFor(t, "../go.mod")
	if len(product) < 10 {
		t.Errorf("only %d modules were found in go.mod", len(product))
	}
	checkRecorded(t, "go.mod", product, ours)

	files, err := filepath.Glob("../integration/*/go.mod")
	if err != nil || len(files) < 3 {
		t.Fatalf("only %d modules of tests were found, %v", len(files), err)
	}
	more := map[string]bool{}
	for _, file := range files {
		for path := range askedFor(t, file) {
			if !product[path] && !strings.HasPrefix(path, modulePath) {
				more[path] = true
			}
		}
	}
	checkRecorded(t, "the go.mod of a module of tests", more, ofTests)
}

// askedFor is the modules that a go.mod asks for itself.
func askedFor(t *testing.T, file string) map[string]bool {
	t.Helper()
	mod, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	major := regexp.MustCompile(`/v\d+$`)
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+(.*)$`).FindAllStringSubmatch(string(mod), -1) {
		if !strings.Contains(m[2], "indirect") {
			asked[major.ReplaceAllString(m[1], "")] = true
		}
	}
	return asked
}

// checkRecorded: the table names what is asked for, with a licence and a reason, and nothing else.
func checkRecorded(t *testing.T, by string, asked map[string]bool, table string) {
	t.Helper()
	recorded := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([\w./-]+\.[\w./-]+) \| [A-Z]\S.* \| .+ \|$`).FindAllStringSubmatch(table, -1) {
		recorded[m[1]] = true
		if !asked[m[1]] {
			t.Errorf("%s is in a table, and not in %s", m[1], by)
		}
	}
	for path := range asked {
		if !recorded[path] {
			t.Errorf("%s asks for %s, which is not in its table, or has no licence or reason there", by, path)
		}
	}
}

// TestModulesAreTested: go test ./... leaves out what is a module of its own, so the Makefile lists each that has tests.
func TestModulesAreTested(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	known := append(strings.Fields(string(regexp.MustCompile(`(?m)^MODULES := .*$`).Find(makefile))),
		"..", "integration/deploy", // has a target of its own
		"integration/bench/contend", "integration/clients/adopt/go") // programs, without tests
	eachFile(t, "go.mod", func(path string, _ []byte) {
		if dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../"); !slices.Contains(known, dir) {
			t.Errorf("the Makefile does not list the module in %s", dir)
		}
	})
}
