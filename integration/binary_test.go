package integration

import (
	"debug/elf"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestBinary_NoTemplates: nothing in the program runs text/template. It calls methods by name, so that the linker must keep every
// exported method of every type: 12 MB more, most of it rueidis' command builder (docs/decisions/0030).
func TestBinary_NoTemplates(t *testing.T) {
	t.Parallel()
	path, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.Open(path)
	if err != nil {
		t.Skip("not an ELF file: ", err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, s := range symbols {
		found = found || s.Name == "main.main"
		if strings.HasPrefix(s.Name, "text/template.(*state)") {
			t.Fatalf("the program has %s", s.Name)
		}
	}
	if !found {
		t.Error("the program has no main.main: its symbols were not found")
	}
}
