package integration

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDependenciesAreRecorded: the list of what we depend on, with licences, is that of go.mod.
func TestDependenciesAreRecorded(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/decisions/0018-what-else-we-depend-on.md")
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([\w./-]+\.[\w./-]+) \| [A-Z]\S.* \| .+ \|$`).FindAllStringSubmatch(string(page), -1) {
		recorded[m[1]] = true
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	major := regexp.MustCompile(`/v\d+$`)
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+(.*)$`).FindAllStringSubmatch(string(mod), -1) {
		if strings.Contains(m[2], "indirect") {
			continue
		}
		asked++
		path := major.ReplaceAllString(m[1], "")
		if !recorded[path] {
			t.Errorf("%s is not on the page, or has no licence or reason there", path)
		}
		delete(recorded, path)
	}
	if asked < 10 {
		t.Errorf("only %d modules were found in go.mod", asked)
	}
	for path := range recorded {
		t.Errorf("%s is on the page and not in go.mod", path)
	}
}
