package main

import (
	"fmt"
	"os/exec"
	"strings"
)

// packages are those with Go benchmarks of what every command goes through.
var packages = []string{"./backends/resp", "./backends/upstream", "./commands", "./commands/adopt", "./proxy"}

// measureAllocs runs the Go benchmarks and keeps their result lines.
func measureAllocs(p plan, page *report) error {
	page.linef("\n## Time and allocations of the parts\n")
	page.linef("`go test -run '^$' -bench . -benchmem %s`\n", strings.Join(packages, " "))
	return goBenchmarks(p, page, ".", packages...)
}

func goBenchmarks(p plan, page *report, names string, packages ...string) error {
	args := []string{"test", "-run", "^$", "-bench", names, "-benchmem", "-benchtime", fmt.Sprintf("%.0fms", 100*p.scale)}
	out, err := exec.Command("go", append(args, packages...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go test: %w\n%s", err, out)
	}
	page.linef("```")
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Benchmark") && strings.Contains(line, "allocs/op") {
			page.linef("%s", strings.TrimSuffix(line, "\n"))
		}
	}
	page.linef("```")
	return nil
}
