package clients

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestReadme_Examples runs the programs that the README shows, as they stand there, twice each: a lock that
// the first did not give back would not be granted to the second.
func TestReadme_Examples(t *testing.T) {
	if os.Getenv(switchVariable) == "" {
		t.Skipf("fetches client libraries; set %s=1", switchVariable)
	}
	data := redistest.Start(t)
	proxy := redistest.StartProxy(t, data, redistest.StartNodes(t, 3))
	for _, e := range []struct {
		language string
		run      func(t *testing.T, code string) []byte
	}{
		{"python", func(t *testing.T, code string) []byte {
			dir, err := pythonPrograms()
			if err != nil {
				t.Fatal(err)
			}
			return output(t, dir, nil, filepath.Join(dir, venvPython), "-c", code)
		}},
		{"java", func(t *testing.T, code string) []byte {
			dir, err := javaPrograms()
			if err != nil {
				t.Fatal(err)
			}
			source := filepath.Join(t.TempDir(), "Readme.java")
			program := "import java.util.*; import redis.clients.jedis.*;\nclass Readme { public static void main(String[] args) {\n" + code + "} }\n"
			if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
				t.Fatal(err)
			}
			return output(t, dir, nil, "java", "-cp", "lib/*", source)
		}},
	} {
		t.Run(e.language, func(t *testing.T) {
			_, port, _ := strings.Cut(proxy.Addr(), ":")
			code := strings.ReplaceAll(shownInReadme(t, e.language), "6380", port)
			for range 2 {
				if out := e.run(t, code); !regexp.MustCompile(`^mine for \d+ ms, fence \d{16}\s*$`).Match(bytes.TrimSpace(out)) {
					t.Errorf("it prints %s", out)
				}
			}
		})
	}
}

// shownInReadme is the code that the README shows in a language.
func shownInReadme(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(text), "```"+language+"\n")
	code, _, closed := strings.Cut(code, "```")
	if !found || !closed {
		t.Fatalf("the README shows no %s", language)
	}
	return code
}
