package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/configuration.md lists every setting as --help does.
func TestConfigurationDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := settingsTable(); !strings.Contains(string(text), want) {
		t.Errorf("docs/configuration.md does not have this table:\n\n%s", want)
	}
}

func settingsTable() string {
	var b strings.Builder
	b.WriteString("| setting | default | |\n|---|---|---|\n")
	for _, s := range withFiles(new(options).settings()) {
		value := ""
		if s.value != "" {
			value = "`" + s.value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.name, value, strings.ReplaceAll(s.usage, "`", ""))
	}
	return b.String()
}
