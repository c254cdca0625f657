package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A bystander is a proxy, and what ordinary commands through it cost in each round.
type bystander struct {
	proxy     *redistest.Proxy
	cpu, tail []float64 // s a million commands, and p99 in ms
}

// measureUnmatched compares ordinary commands through a proxy without patterns and one with two, neither of which matches.
func measureUnmatched(p plan, page *report) error {
	data, err := redistest.Launch()
	if err != nil {
		return err
	}
	defer data.Close()
	nodes, err := redistest.LaunchNodes(2)
	defer func() {
		for _, n := range nodes {
			n.Close()
		}
	}()
	if err != nil {
		return err
	}
	var off, on bystander
	for i, b := range []*bystander{&off, &on} {
		args := [][]string{nil, {"--adopt", "lock:*", "--adopt", "keys:*"}}[i]
		if b.proxy, err = redistest.LaunchProxy(data, nodes[i:i+1], append(args, "--log-level", "error")...); err != nil {
			return err
		}
		defer b.proxy.Kill()
	}
	page.linef("\n## Ordinary commands beside patterns\n")
	page.linef("GET and SET (redis-benchmark, keys like `key:000000000123`) through a proxy without patterns, and one with `lock:*` and `keys:*`, in turns, %d rounds after one that warms up. CPU is the proxy's, in seconds per million commands.\n", 8*p.rounds)
	page.table("load", "CPU without", "CPU with", "with / without", "p99 without ms", "p99 with", "with / without")
	for _, l := range []load{loads[0], loads[2]} {
		for _, command := range []string{"set", "get"} {
			if err := l.besides(p, page, command, &off, &on); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l load) besides(p plan, page *report, command string, off, on *bystander) error {
	for _, b := range []*bystander{off, on} {
		b.cpu, b.tail = nil, nil
	}
	n := int(float64(l.n) * p.scale / 2)
	for round := range 8*p.rounds + 1 {
		order := []*bystander{off, on}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, b := range order {
			before, err := runSeconds(b.proxy.PID())
			if err != nil {
				return err
			}
			tail, err := tailOf(b.proxy.Addr(), append([]string{"-t", command, "-n", strconv.Itoa(n)}, l.args...))
			if err != nil {
				return err
			}
			after, err := runSeconds(b.proxy.PID())
			if err != nil {
				return err
			}
			if round > 0 {
				b.cpu, b.tail = append(b.cpu, 1e6*(after-before)/float64(n)), append(b.tail, tail)
			}
		}
	}
	page.row(command+" "+l.name, fmt.Sprintf("%.3f", median(off.cpu)), fmt.Sprintf("%.3f", median(on.cpu)), spread(on.cpu, off.cpu),
		fmt.Sprintf("%.2f", median(off.tail)), fmt.Sprintf("%.2f", median(on.tail)), spread(on.tail, off.tail))
	return nil
}

// tailOf is the 99th percentile in ms that one run of redis-benchmark reports.
func tailOf(addr string, args []string) (float64, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	out, err := exec.Command("redis-benchmark", append([]string{"-h", host, "-p", port, "-r", "1000", "--csv"}, args...)...).Output()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w", err)
	}
	return parseTail(out)
}

// parseTail reads the column p99_latency_ms of redis-benchmark --csv.
func parseTail(out []byte) (float64, error) {
	records, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil {
		return 0, err
	}
	if len(records) == 2 {
		if at := slices.Index(records[0], "p99_latency_ms"); at >= 0 {
			return strconv.ParseFloat(records[1][at], 64)
		}
	}
	return 0, fmt.Errorf("redis-benchmark said %q", out)
}

// runSeconds is cpuSeconds to the microsecond, which counts the threads that there are: those of Go's runtime stay.
func runSeconds(pid int) (float64, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 { // the kernel does not count so
		return cpuSeconds(pid)
	}
	total := 0.0
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		ran, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseFloat(ran, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		total += ns / 1e9
	}
	return total, nil
}
