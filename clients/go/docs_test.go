package lockproxy

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestDocs: what the pages show is code of the examples, which compile.
func TestDocs(t *testing.T) {
	var examples strings.Builder
	for _, name := range []string{"lockgoredis/example_test.go", "lockrueidis/example_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		examples.Write(text)
	}
	shown := 0
	for _, page := range []string{"README.md", "../../docs/clients/go-redis.md", "../../docs/clients/rueidis.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			if shown++; !strings.Contains(examples.String(), m[1]) {
				t.Errorf("%s shows what no example has:\n%s", page, m[1])
			}
		}
	}
	if shown < 5 {
		t.Errorf("only %d pieces of code are shown", shown)
	}
}

// TestImports: whoever imports one adapter compiles no other client library, and the package itself needs none.
func TestImports(t *testing.T) {
	for pkg, module := range map[string]string{".": "", "./lockgoredis": "github.com/redis/go-redis/", "./lockrueidis": "github.com/redis/rueidis"} {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"github.com/redis/go-redis/", "github.com/redis/rueidis"} {
			if has := strings.Contains(string(out), other); has != (other == module) {
				t.Errorf("%s has %s among its packages: %v", pkg, other, has)
			}
		}
	}
}
