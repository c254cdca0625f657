package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A load is one way to run redis-benchmark.
type load struct {
	name string
	args []string
	n    int // commands a run
}

var loads = []load{
	{"-c 50 -P 1", []string{"-c", "50", "-P", "1"}, 80_000},
	{"-c 500 -P 1", []string{"-c", "500", "-P", "1"}, 80_000},
	{"-c 50 -P 16", []string{"-c", "50", "-P", "16"}, 600_000},
	{"-c 50 -P 1 -d 16384", []string{"-c", "50", "-P", "1", "-d", "16384"}, 40_000},
}

// A way to the upstream, and all runs of one load and command on it.
type way struct {
	name  string
	addr  string
	proxy int // process between, 0 if none

	rates    []float64 // commands a second, one per round
	commands int
	between  float64 // CPU seconds of the process between
	redis    float64 // CPU seconds of the upstream
}

func (w *way) perMillion(cpu float64) string {
	return fmt.Sprintf("%.2f", cpu/float64(w.commands)*1e6)
}

func measureRelay(p plan, page *report) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	data, err := redistest.Launch()
	if err != nil {
		return err
	}
	defer data.Close()
	proxy, err := redistest.LaunchProxy(data, nil, "--log-level", "error")
	if err != nil {
		return err
	}
	defer proxy.Kill()
	others, stop, err := startRivals(dir, data.Addr())
	if err != nil {
		return err
	}
	defer stop()

	ways := []way{{name: "direct", addr: data.Addr()}, {name: "lockproxy", addr: proxy.Addr(), proxy: proxy.PID()}}
	for _, r := range others {
		ways = append(ways, way{name: r.name, addr: r.addr, proxy: r.cmd.Process.Pid})
	}
	page.linef("\n## GET and SET\n")
	page.linef("redis-benchmark direct, through lockproxy, and through other proxies where they are installed (`apt-get install nutcracker haproxy`) or, predixy, built from the source in the directory PREDIXY, in turns, medians of %d rounds. CPU is user and system time by /proc, in seconds per million commands; the first is redis-server's own when asked directly.\n", p.rounds)
	heads := []string{"load", "direct /s", "redis CPU"}
	for _, w := range ways[1:] {
		heads = append(heads, w.name+" /s", "of direct", "CPU")
	}
	page.table(heads...)
	for _, l := range loads {
		for _, command := range []string{"set", "get"} {
			if err := l.measure(p, page, command, data, ways); err != nil {
				return fmt.Errorf("%s %s: %w", command, l.name, err)
			}
		}
	}
	return nil
}

func (l load) measure(p plan, page *report, command string, data *redistest.Server, ways []way) error {
	ways = slices.Clone(ways)
	for range p.rounds {
		for i := range ways {
			if err := ways[i].run(l, int(float64(l.n)*p.scale), command, data.PID()); err != nil {
				return err
			}
		}
	}
	direct := median(ways[0].rates)
	cells := []string{strings.ToUpper(command) + " " + l.name, fmt.Sprintf("%.0f", direct), ways[0].perMillion(ways[0].redis)}
	for _, w := range ways[1:] {
		rate := median(w.rates)
		cells = append(cells, fmt.Sprintf("%.0f", rate), ratio(rate, direct), w.perMillion(w.between))
	}
	page.row(cells...)
	return nil
}

// run is one run of redis-benchmark.
func (w *way) run(l load, n int, command string, redis int) error {
	before, err := cpuOf(redis, w.proxy)
	if err != nil {
		return err
	}
	rate, err := redisBenchmark(w.addr, append([]string{"-t", command, "-n", strconv.Itoa(n)}, l.args...))
	if err != nil {
		return err
	}
	after, err := cpuOf(redis, w.proxy)
	if err != nil {
		return err
	}
	w.rates = append(w.rates, rate)
	w.commands += n
	w.redis += after[0] - before[0]
	w.between += after[1] - before[1]
	return nil
}

// cpuOf is the CPU seconds of processes; that of none, 0, is 0.
func cpuOf(pids ...int) ([]float64, error) {
	out := make([]float64, len(pids))
	for i, pid := range pids {
		if pid == 0 {
			continue
		}
		var err error
		if out[i], err = cpuSeconds(pid); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// redisBenchmark returns the commands a second that one run of it reports.
func redisBenchmark(addr string, args []string) (float64, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	out, err := exec.Command("redis-benchmark", append([]string{"-h", host, "-p", port, "-r", "1000", "--csv"}, args...)...).Output()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w", err)
	}
	return parseRate(out)
}

// parseRate reads redis-benchmark --csv: a heading, then one line a test whose
// second field is commands a second.
func parseRate(out []byte) (float64, error) {
	r := csv.NewReader(bytes.NewReader(out))
	r.FieldsPerRecord = -1
	records, err := r.ReadAll()
	if err != nil {
		return 0, err
	}
	if len(records) != 2 || len(records[1]) < 2 {
		return 0, fmt.Errorf("redis-benchmark said %q", out)
	}
	return strconv.ParseFloat(records[1][1], 64)
}

// ticks is how many clock ticks the kernel counts a second in /proc; Linux has
// fixed the number that user space sees.
const ticks = 100

// cpuSeconds is the user and system time a process has used.
func cpuSeconds(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(string(stat))
}

// parseStat reads utime and stime, fields 14 and 15 of proc_pid_stat(5). The
// second field, the name, is in parentheses and may hold anything.
func parseStat(stat string) (float64, error) {
	rest := stat[strings.LastIndexByte(stat, ')')+1:]
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("not a stat line: %q", stat)
	}
	user, err := strconv.ParseUint(f[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseUint(f[12], 10, 64)
	return float64(user+system) / ticks, err
}
