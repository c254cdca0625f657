package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// A point is what a cause of this size, x, costs, y. Both are above 0 where a picture shows it.
type point struct{ x, y float64 }

// A curve is one cost, as the size of its cause grows.
type curve struct {
	label  string
	points []point
}

// slope is the exponent with which a cost grows between the ends of a curve: y is as x to the power of it. NaN if
// there are no two sizes, or one costs nothing.
func slope(points []point) float64 {
	if len(points) < 2 {
		return math.NaN()
	}
	a, b := points[0], points[len(points)-1]
	if min(a.x, a.y, b.x, b.y) <= 0 || a.x == b.x {
		return math.NaN()
	}
	return math.Log(b.y/a.y) / math.Log(b.x/a.x)
}

// upperHalf are the points from the middle one on.
func upperHalf(points []point) []point { return points[(len(points)-1)/2:] }

// A panel is one diagram of a picture, with curves of one unit, as many as there are colours at most.
type panel struct {
	unit   string
	curves []curve
}

// colours is how many plotHead has.
const colours = 4

// Sizes in a picture, in its own unit.
const (
	panelWidth, panelHeight = 430, 290
	plotLeft, plotRight     = 58, 300 // the labels of curves are to the right
	plotTop, plotBottom     = 34, 240
	labelStep               = 15
)

// The picture has a ground of its own, so that it can be read on a page of any colour.
const plotHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;fill:#57606a}.unit{font-weight:600;fill:#1c2128}
.ground{fill:#fff}.grid{stroke:#e3e8ed}.curve{fill:none;stroke-width:2}.c0{stroke:#0757ba}.c1{stroke:#a4480a}.c2{stroke:#116329}.c3{stroke:#7a35b0}
.f0{fill:#0757ba}.f1{fill:#a4480a}.f2{fill:#116329}.f3{fill:#7a35b0}
@media(prefers-color-scheme:dark){text{fill:#9aa5b1}.unit{fill:#e4e9ee}.ground{fill:#14181d}.grid{stroke:#2a3138}
.c0{stroke:#74b3ff}.c1{stroke:#f0a35e}.c2{stroke:#6cd182}.c3{stroke:#cf9bf5}.f0{fill:#74b3ff}.f1{fill:#f0a35e}.f2{fill:#6cd182}.f3{fill:#cf9bf5}}
</style>
<rect class="ground" width="100%%" height="100%%" rx="6"/>
`

// plot is a picture, as SVG, of panels side by side with logarithmic axes; cause is what the axes to the right are.
func plot(title, cause string, panels []panel) string {
	var b strings.Builder
	fmt.Fprintf(&b, plotHead, panelWidth*len(panels), panelHeight, html.EscapeString(title))
	for i, p := range panels {
		fmt.Fprintf(&b, "<g transform=\"translate(%d)\">\n", i*panelWidth)
		p.draw(&b, cause)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p panel) draw(b *strings.Builder, cause string) {
	var xs, ys []float64
	for _, c := range p.curves {
		for _, at := range c.points {
			xs, ys = append(xs, at.x), append(ys, at.y)
		}
	}
	x, y := newAxis(xs, 2, plotLeft, plotRight), newAxis(ys, 10, plotBottom, plotTop) // less than a decade would make a slope of what is none
	for _, v := range x.ticks() {
		fmt.Fprintf(b, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x.at(v), plotTop, plotBottom, x.at(v), plotBottom+17, count(v))
	}
	for _, v := range y.ticks() {
		fmt.Fprintf(b, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", plotLeft, y.at(v), plotRight, plotLeft-6, y.at(v)+4, count(v))
	}
	fmt.Fprintf(b, "<text class=\"unit\" x=\"%d\" y=\"20\">%s</text><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
		plotLeft, html.EscapeString(p.unit), (plotLeft+plotRight)/2, plotBottom+38, html.EscapeString(cause))
	labels := make([]float64, len(p.curves))
	for i, c := range p.curves {
		var line []string
		for _, at := range c.points {
			line = append(line, fmt.Sprintf("%.1f,%.1f", x.at(at.x), y.at(at.y)))
			fmt.Fprintf(b, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", i, x.at(at.x), y.at(at.y))
		}
		labels[i] = y.at(c.points[len(c.points)-1].y)
		fmt.Fprintf(b, "<polyline class=\"curve c%d\" points=\"%s\"/>\n", i, strings.Join(line, " "))
	}
	for i, at := range apartBy(labels, labelStep) {
		fmt.Fprintf(b, "<text class=\"f%d\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", i, x.at(slices.Max(xs))+8, at+4, html.EscapeString(p.curves[i].label))
	}
}

// apartBy moves positions down where they are nearer to one another than step; their order stays.
func apartBy(at []float64, step float64) []float64 {
	order := make([]int, len(at))
	for i := range at {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(at[i], at[j]) })
	moved := slices.Clone(at)
	for k := 1; k < len(order); k++ {
		moved[order[k]] = max(moved[order[k]], moved[order[k-1]]+step)
	}
	return moved
}

// An axis shows values from least to most, logarithmically, from one place of the picture to another.
type axis struct{ least, most, from, to float64 }

// newAxis is an axis for these values, which it shows from a 1, 2 or 5 to another, so many times as much at least.
func newAxis(values []float64, times, from, to float64) axis {
	a := axis{least: round125(slices.Min(values)*1.0001, false), most: round125(slices.Max(values)*0.9999, true), from: from, to: to}
	for up := true; a.most/a.least < times*0.999; up = !up {
		if up {
			a.most = round125(a.most*1.001, true)
		} else {
			a.least = round125(a.least*0.999, false)
		}
	}
	return a
}

func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*math.Log(v/a.least)/math.Log(a.most/a.least)
}

// ticks are the powers of ten within the axis; where it has not three of them, each 1, 2 and 5 of a decade.
func (a axis) ticks() (ticks []float64) {
	all := math.Log10(a.most/a.least) < 2.5
	for v := a.least; v <= a.most*1.001; v = round125(v*1.001, true) {
		if power := math.Log10(v); all || math.Abs(power-math.Round(power)) < 0.001 {
			ticks = append(ticks, v)
		}
	}
	return ticks
}

// round125 is the next 1, 2 or 5 of a decade from v on, upwards or downwards.
func round125(v float64, up bool) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	steps := []float64{1, 2, 5, 10}
	for i, s := range steps {
		if up && v <= s*decade {
			return s * decade
		}
		if !up && v < steps[min(i+1, 3)]*decade {
			return s * decade
		}
	}
	return 10 * decade
}

// count shows a value of an axis.
func count(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.3gk", v/1e3)
	}
	return fmt.Sprintf("%.3g", v)
}
