package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestSlope(t *testing.T) {
	for _, tt := range []struct {
		name   string
		points []point
		want   float64
	}{
		{"the same for each", []point{{1, 7}, {10, 9}, {1000, 7}}, 0},
		{"as its cause", []point{{1, 2}, {10, 20}, {100, 200}}, 1},
		{"as the square", []point{{3, 9}, {30, 900}}, 2},
		{"less", []point{{10, 100}, {1000, 1}}, -1},
		{"half a decade in one", []point{{1, 1}, {10, math.Sqrt(10)}}, 0.5},
		{"one size", []point{{1, 2}}, math.NaN()},
		{"none", nil, math.NaN()},
		{"the same size twice", []point{{5, 1}, {5, 2}}, math.NaN()},
		{"costs nothing", []point{{1, 0}, {10, 2}}, math.NaN()},
	} {
		if got := slope(tt.points); math.Abs(got-tt.want) > 1e-9 || math.IsNaN(got) != math.IsNaN(tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestUpperHalf(t *testing.T) {
	five := []point{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}}
	for n, from := range map[int]float64{5: 3, 4: 2, 3: 2, 2: 1, 1: 1} {
		if got := upperHalf(five[:n]); got[0].x != from || got[len(got)-1].x != float64(n) {
			t.Errorf("of %d: %v", n, got)
		}
	}
}

func TestAxis(t *testing.T) {
	for _, tt := range []struct {
		values, ticks []float64
	}{
		{[]float64{1, 9}, []float64{1, 2, 5, 10}},
		{[]float64{130, 480}, []float64{100, 200, 500, 1000}},
		{[]float64{60, 400}, []float64{50, 100, 200, 500}},
		{[]float64{1, 10_000}, []float64{1, 10, 100, 1000, 10_000}},
		{[]float64{20, 30_000}, []float64{100, 1000, 10_000}},
		{[]float64{5, 5}, []float64{2, 5, 10, 20}},
	} {
		a := newAxis(tt.values, 10, 0, 100)
		same := func(a, b float64) bool { return math.Abs(a-b) < b*1e-6 }
		if got := a.ticks(); !slices.EqualFunc(got, tt.ticks, same) {
			t.Errorf("%v: ticks %v, want %v", tt.values, got, tt.ticks)
		}
		if a.at(a.least) != 0 || a.at(a.most) != 100 || math.Abs(a.at(math.Sqrt(a.least*a.most))-50) > 1e-6 {
			t.Errorf("%v: from %v to %v at %v and %v", tt.values, a.least, a.most, a.at(a.least), a.at(a.most))
		}
		for _, v := range tt.values {
			if v < a.least || v > a.most {
				t.Errorf("%v is not between %v and %v", v, a.least, a.most)
			}
		}
	}
}

func TestAxis_Narrow(t *testing.T) {
	if a := newAxis([]float64{1, 4}, 2, 0, 100); a.least != 1 || a.most != 5 {
		t.Errorf("from %v to %v", a.least, a.most)
	}
	if a := newAxis([]float64{4, 4}, 2, 0, 100); a.least != 2 || a.most != 5 {
		t.Errorf("of one value from %v to %v", a.least, a.most)
	}
}

func TestApartBy(t *testing.T) {
	if got := apartBy([]float64{50, 10, 12, 14}, 15); !slices.Equal(got, []float64{55, 10, 25, 40}) {
		t.Error(got)
	}
}

// TestPlot: the picture is well-formed, shows what it is given, and has a ground for dark pages.
func TestPlot(t *testing.T) {
	got := plot("what <it> costs", "names & more", []panel{
		{"µs a cycle", []curve{{"proxy", []point{{1, 100}, {10, 100}, {100, 1000}}}, {"nodes", []point{{1, 200}, {100, 200}}}}},
		{"cycles/s", []curve{{"all", []point{{1, 5000}, {100, 5000}}}}},
	})
	var text []string
	circles := 0
	for d := xml.NewDecoder(strings.NewReader(got)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch at := token.(type) {
		case xml.StartElement:
			if at.Name.Local == "circle" {
				circles++
			}
		case xml.CharData:
			text = append(text, string(at))
		}
	}
	for _, want := range []string{"µs a cycle", "cycles/s", "proxy", "nodes", "all", "names & more", "100", "1k"} {
		if !slices.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if circles != 7 {
		t.Errorf("%d points are drawn, not 7", circles)
	}
	if !strings.Contains(got, "prefers-color-scheme:dark") || !strings.Contains(got, `class="ground"`) {
		t.Error("there is no dark ground")
	}
	if strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
		t.Error("a point is nowhere")
	}
}
