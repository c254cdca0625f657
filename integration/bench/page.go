package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A report is the Markdown that the bench makes, and the pictures that it shows.
type report struct {
	strings.Builder
	pictures map[string]string // SVG by the name of the file, which is beside the page
}

func (p *report) picture(name, svg string) {
	if p.pictures == nil {
		p.pictures = map[string]string{}
	}
	p.pictures[name] = svg
}

// write stores the page, and its pictures beside it.
func (p *report) write(file string) error {
	for name, svg := range p.pictures {
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), name), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte(p.String()), 0o644)
}

func (p *report) linef(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// table starts a table; the first column is text, the others are numbers.
func (p *report) table(columns ...string) {
	p.linef("| %s |", strings.Join(columns, " | "))
	p.linef("|---%s|", strings.Repeat("|--:", len(columns)-1))
}

func (p *report) row(cells ...string) { p.linef("| %s |", strings.Join(cells, " | ")) }

// head says how the page was made; scale is the part of the work that was done.
func (p *report) head(scale float64) {
	p.linef("# Benchmarks")
	p.linef("")
	p.linef("Made by `go run ./integration/bench -scale %g -write docs/benchmarks.md` on %s: %d cores (%s), %s, %s/%s, %s.", scale,
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), cpuModel(), runtime.Version(), runtime.GOOS, runtime.GOARCH, redisVersion())
	p.linef("Load average before: %s; above 1 or so other work has disturbed the figures.", loadAverage())
	p.linef("Clients, proxy, upstream and all lock masters share these cores, so read the ratios, which come from one run, before the figures.")
}

// cpuModel is what the kernel calls the processor.
func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// loadAverage is what else the machine was doing in the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

func redisVersion() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return "redis-server of unknown version"
	}
	f := strings.Fields(string(out)) // Redis server v=7.0.15 sha=…
	return "redis-server " + strings.TrimPrefix(f[2], "v=")
}

// median is the middle one of a few measurements, 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// quantile is the q-quantile of durations, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

// inMillis shows a duration in milliseconds.
func inMillis(d time.Duration) string {
	return fmt.Sprintf("%.2f", float64(d.Microseconds())/1000)
}

// ratio shows how many times b goes into a.
func ratio(a, b float64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", a/b)
}
