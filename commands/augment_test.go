package commands

import (
	"testing"

	"github.com/lockproxy/lockproxy/commands/table"
)

// Only replies that would tell of the proxy are changed.
func TestAugmented(t *testing.T) {
	for _, tt := range []struct {
		line string
		want bool
	}{
		{"INFO", true}, {"INFO lockproxy", true}, {"COMMAND", true}, {"COMMAND DOCS", true},
		{"INFO server", false}, {"INFO server clients", false}, {"COMMAND HELP", false},
	} {
		args := words(tt.line)
		if got := (request{row: table.New(allRows()).Lookup(args), args: args}).augmented(); got != tt.want {
			t.Errorf("%s: %v", tt.line, got)
		}
	}
}
