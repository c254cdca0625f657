package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGuaranteesNameTheirTests: every test that the page of guarantees points at is in the package that it says.
func TestGuaranteesNameTheirTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	there := testsOfTheProject(t)
	named := 0
	for _, paragraph := range strings.Split(string(page), "\n\n") {
		tests, isList := strings.CutPrefix(strings.Join(strings.Fields(paragraph), " "), "**Shown by** ")
		if !isList {
			continue
		}
		for _, part := range strings.Split(tests, ";") {
			of := []string{"integration"}
			if m := regexp.MustCompile("^ ?in `./(\\S+)`(?: and `./(\\S+)`)?").FindStringSubmatch(part); m != nil {
				of = slices.DeleteFunc(m[1:], func(dir string) bool { return dir == "" })
			}
			for _, m := range regexp.MustCompile("\\b(Test[A-Z]\\w+)(?: \\(`./(\\S+)`\\))?").FindAllStringSubmatch(part, -1) {
				named++
				in := of
				if m[2] != "" {
					in = m[2:]
				}
				for _, dir := range in {
					if !there[dir][m[1]] {
						t.Errorf("there is no %s in %s", m[1], dir)
					}
				}
			}
		}
	}
	if all := len(regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(page), -1)); named < 40 || named != all {
		t.Errorf("the page names %d tests, %d of them in lists", all, named)
	}
}

// testsOfTheProject is the names of all tests, by the directory of their package.
func testsOfTheProject(t *testing.T) map[string]map[string]bool {
	t.Helper()
	there := map[string]map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	eachFile(t, "_test.go", func(path string, text []byte) {
		of, err := filepath.Rel("..", filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		if of = filepath.ToSlash(of); there[of] == nil {
			there[of] = map[string]bool{}
		}
		for _, m := range declared.FindAllSubmatch(text, -1) {
			there[of][string(m[1])] = true
		}
	})
	return there
}

// TestLinksInDocs: a link to a file of the project, a picture or a heading of a page leads there.
func TestLinksInDocs(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`(?:\]\(|\bsrc(?:set)?=")([^)"\s]+)[)"]`)
	links := 0
	eachFile(t, ".md", func(path string, text []byte) {
		for _, m := range link.FindAllSubmatch(text, -1) {
			target, heading, _ := strings.Cut(string(m[1]), "#")
			if strings.Contains(target, ":") {
				continue // not ours
			}
			links++
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %s leads nowhere", path, m[1])
			} else if heading != "" && !headings(t, file)[heading] {
				t.Errorf("%s: %s has no such heading", path, m[1])
			}
		}
	})
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

// TestPathsInDocs: a path of the project that a page names is there.
func TestPathsInDocs(t *testing.T) {
	t.Parallel()
	path := regexp.MustCompile(`(?:^|[^\w/.:@~-])(?:\./)?((?:\.ci|backends|clients|cmd|commands|deploy|docs|integration|proxy|scripts)/[\w./*-]*\w)`)
	ofOthers := map[string]bool{"commands/s": true, "integration/redis-cli": true, "integration/replication-buffer": true} // a unit; tests of Redis
	paths := 0
	eachFile(t, ".md", func(page string, text []byte) {
		for _, m := range path.FindAllSubmatch(text, -1) {
			name := string(m[1])
			if ofOthers[name] {
				continue
			}
			paths++
			// A record of a decision is named by its number.
			here, _ := filepath.Glob(filepath.Join("..", name+"*"))
			beside, _ := filepath.Glob(filepath.Join(filepath.Dir(page), name+"*"))
			if len(here)+len(beside) == 0 {
				t.Errorf("%s: there is no %s", page, name)
			}
		}
	})
	if paths < 100 {
		t.Errorf("only %d paths were found", paths)
	}
}

// TestTargetsInDocs: what a page says to make is a target of the Makefile.
func TestTargetsInDocs(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):(?:[^=]|$)`).FindAllSubmatch(makefile, -1) {
		targets[string(m[1])] = true
	}
	named := 0
	eachFile(t, ".md", func(page string, text []byte) {
		for _, m := range regexp.MustCompile("(?m)(?:`make ([a-z][a-z-]*)|^make ([a-z-]+)$)").FindAllSubmatch(text, -1) {
			target := string(m[1]) + string(m[2])
			if named++; !targets[target] {
				t.Errorf("%s: there is no make %s", page, target)
			}
		}
	})
	if named < 40 {
		t.Errorf("only %d targets were found", named)
	}
}

// headings is the anchors of a page, as its readers' programs make them of the headings.
func headings(t *testing.T, file string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	dropped := regexp.MustCompile(`[^\w\- ]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllSubmatch(text, -1) {
		anchor := strings.ToLower(string(dropped.ReplaceAll(m[1], nil)))
		anchors[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return anchors
}

// eachFile calls f for the project's files whose names end so.
func eachFile(t *testing.T, suffix string, f func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != ".." && (d.Name() == "bin" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, suffix) {
			return nil
		}
		text, err := os.ReadFile(path)
		f(path, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
