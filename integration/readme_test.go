package integration

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReadme_Chinese: the two READMEs have the same headings, commands, tables, lists and links, in the same order.
func TestReadme_Chinese(t *testing.T) {
	t.Parallel()
	read := func(name string) []string {
		text, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return skeleton(string(text))
	}
	english, chinese := read("README.md"), read("README.zh-CN.md")
	if len(english) < 80 {
		t.Errorf("only %d parts were found", len(english))
	}
	for i := range max(len(english), len(chinese)) {
		e, c := "nothing", "nothing"
		if i < len(english) {
			e = english[i]
		}
		if i < len(chinese) {
			c = chinese[i]
		}
		if e != c {
			t.Fatalf("part %d is %q in English, %q in Chinese", i+1, e, c)
		}
	}
}

// skeleton is what is the same in every language of a page: its code, and of the rest the kinds of headings and items, the
// numbers of columns, what stands in backquotes, and where links and pictures lead; these in the order of the alphabet within a
// paragraph, since languages have orders of their own.
func skeleton(page string) (parts []string) {
	inline := regexp.MustCompile("`[^`]+`" + `|\]\([^)]+\)|\bsrc(?:set)?="[^"]+"`)
	var paragraph []string
	end := func(part string) {
		slices.Sort(paragraph)
		parts = append(parts, paragraph...)
		if paragraph = nil; part != "" {
			parts = append(parts, part)
		}
	}
	code := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence || code:
			code = code != fence
			end(line)
			continue
		case strings.HasPrefix(line, "#"):
			end(line[:strings.Index(line, " ")])
		case strings.HasPrefix(line, "|"):
			end(strings.Repeat("|", strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")))
		case strings.HasPrefix(line, "- "):
			end("-")
		case line == "":
			end("")
		}
		if !strings.Contains(line, "简体中文") { // where each leads to the other
			paragraph = append(paragraph, inline.FindAllString(line, -1)...)
		}
	}
	end("")
	return parts
}

// TestReadme_SkeletonNotices: a comparison that cannot fail shows nothing.
func TestReadme_SkeletonNotices(t *testing.T) {
	t.Parallel()
	const page = "# T\n\n- a `x` [b](c.md)\n\n| a | b |\n|---|---|\n\n```\nrun me\n```\n\n<img src=\"a.png\">\n"
	for _, edit := range [][2]string{{"# T", "## T"}, {"- a", "a"}, {"`x`", "x"}, {"c.md", "d.md"}, {"a.png", "b.png"}, {"| a | b |", "| a |"}, {"run me", "run you"}, {"```\nrun", "```sh\nrun"}} {
		if slices.Equal(skeleton(page), skeleton(strings.Replace(page, edit[0], edit[1], 1))) {
			t.Errorf("%q in place of %q goes unnoticed", edit[1], edit[0])
		}
	}
}
