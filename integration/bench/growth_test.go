package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestScaled(t *testing.T) {
	sizes := []int{1, 10, 100, 1000}
	for scale, want := range map[float64]int{1: 4, 0.5: 3, 0.1: 3, 0.01: 2, 0.0001: 2, 5: 4} {
		if got := scaled(sizes, scale); len(got) != want || got[0] != 1 {
			t.Errorf("%v: %v, want %d of them", scale, got, want)
		}
	}
}

func TestExponent(t *testing.T) {
	for _, tt := range []struct {
		is, most float64
		want     string
	}{{0.02, 0, "0.02"}, {0.3, 0, "**0.30**"}, {0.9, 1, "0.90"}, {2, 1, "**2.00**"}, {3, anything, "3.00"}, {math.NaN(), 0, "–"}, {anything, anything, "–"}} {
		if got := exponent(tt.is, tt.most); got != tt.want {
			t.Errorf("%v of %v: %s, want %s", tt.is, tt.most, got, tt.want)
		}
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{1234.5: "1234", 99.94: "99.9", 0.01234: "0.0123", 0: "0"} {
		if got := figures(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	if got := figures(unknown); got != "–" {
		t.Errorf("what is unknown: %s", got)
	}
}

func TestPace(t *testing.T) {
	began := time.Now()
	before := work{began, 100, 1, 5}
	got := work{began.Add(2 * time.Second), 300, 1.1, 6}.since(before)
	if got.rate != 100 || math.Abs(got.proxies-500) > 1e-6 || math.Abs(got.nodes-5000) > 1e-6 {
		t.Errorf("%+v", got)
	}
	if got := middle([]pace{{1, 9, 5}, {2, 7, 6}, {3, 8, 4}}); got != (pace{2, 8, 5}) {
		t.Errorf("of three: %+v", got)
	}
}

// TestReport: the section has a row for each size, the exponents, and a picture that the page and its file name alike.
func TestReport(t *testing.T) {
	g := growth{
		name: "things", title: "More things", cause: "things", sizes: []int{1, 10, 100}, from: 10,
		costs: []cost{{"a", "µs", "a", 0}, {"b", "µs", "b", 0}, {"c", "KB", "c", 1}, {"d", "", "", anything}},
		measure: func(_ plan, sizes []int, add func(int, ...float64)) error {
			for _, n := range sizes {
				x := float64(n)
				if n == 1 {
					add(n, 900, 5, unknown, 1)
				} else {
					add(n, 7, x*x, x, x)
				}
			}
			return nil
		},
	}
	page := &report{}
	if err := g.report(plan{scale: 1}, page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| 1 | 900 | 5 | – | 1 |\n", "| 100 | 7 | 10000 | 100 | 100 |\n", "| growth | 0.00 | **2.00** | 1.00 | 1.00 |\n", "| right up to | 0.00 | 0.00 | 1.00 | – |\n", "](growth-things.svg)"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, page)
		}
	}
	file := filepath.Join(t.TempDir(), "page.md")
	if err := page.write(file); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(filepath.Dir(file), "growth-things.svg"))
	if text := string(svg); err != nil || strings.Count(text, "<polyline") != 3 || strings.Count(text, "<g ") != 2 {
		t.Errorf("not three curves in two panels: %v\n%s", err, text)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != page.String() {
		t.Errorf("the page: %v", err)
	}
}

// TestGrowths: each has two sizes at least, a name of its own, and colours for its curves.
func TestGrowths(t *testing.T) {
	var seen []string
	for _, g := range growths {
		if len(g.sizes) < 2 || !slices.IsSorted(g.sizes) || slices.Contains(seen, g.name) {
			t.Errorf("%s: sizes %v, among %v", g.name, g.sizes, seen)
		}
		seen = append(seen, g.name)
		curves := map[string]int{}
		for _, c := range g.costs {
			if curves[c.unit]++; c.unit != "" && curves[c.unit] > colours {
				t.Errorf("%s: more than %d curves in %s", g.name, colours, c.unit)
			}
		}
	}
}

func TestNumberAfter(t *testing.T) {
	text := "# HELP go_memstats x\r\ngo_memstats_stack_inuse_bytes 1.5e+06\r\nused_memory:12\r\nused_memory_rss:99\r\n"
	for prefix, want := range map[string]float64{"go_memstats_stack_inuse_bytes ": 1.5e6, "used_memory:": 12, "none:": 0} {
		if got := numberAfter(text, prefix); got != want {
			t.Errorf("%s: %v, want %v", prefix, got, want)
		}
	}
}
