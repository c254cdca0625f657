package deploy

import (
	"cmp"
	"maps"
	"os"
	"regexp"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

// TestAlerts: docs/operations.md has the alerts of alerts.yml, each with the time after which it comes, and no others.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, For string }
		}
	}
	if err := sigsyaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	rules := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules[r.Alert] = cmp.Or(r.For, "at once")
		}
	}
	if len(rules) < 20 {
		t.Fatalf("only %d alerts were found", len(rules))
	}
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (Lockproxy\w+) \| .+ \| ([^|]+) \| [^|]+ \|$`).FindAllSubmatch(page, -1) {
		rows[string(m[1])] = string(m[2])
	}
	if !maps.Equal(rules, rows) {
		t.Errorf("alerts.yml has %v\ndocs/operations.md %v", rules, rows)
	}
}
