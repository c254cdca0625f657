package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net"
	"os"
	"os/exec"
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

// A course is all runs of one load and command against one address.
type course struct {
	rates    []float64 // commands a second, one per round
	commands int
	proxy    float64 // CPU seconds of the proxy
	redis    float64 // CPU seconds of the upstream
}

func (c *course) perMillion(cpu float64) string {
	return fmt.Sprintf("%.2f", cpu/float64(c.commands)*1e6)
}

func measureRelay(p plan, page *report) error {
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
	page.linef("\n## GET and SET\n")
	page.linef("redis-benchmark through the proxy and direct, in turns, medians of %d rounds; CPU is user and system time by /proc, in seconds per million commands.\n", p.rounds)
	page.table("load", "through the proxy /s", "direct /s", "ratio", "proxy CPU", "redis CPU behind it", "redis CPU direct")
	for _, l := range loads {
		for _, command := range []string{"set", "get"} {
			if err := l.measure(p, page, command, data, proxy); err != nil {
				return fmt.Errorf("%s %s: %w", command, l.name, err)
			}
		}
	}
	return nil
}

func (l load) measure(p plan, page *report, command string, data *redistest.Server, proxy *redistest.Proxy) error {
	var through, direct course
	for range p.rounds {
		for _, way := range []struct {
			addr string
			*course
		}{{proxy.Addr(), &through}, {data.Addr(), &direct}} {
			if err := way.run(l, int(float64(l.n)*p.scale), command, way.addr, data.PID(), proxy.PID()); err != nil {
				return err
			}
		}
	}
	a, b := median(through.rates), median(direct.rates)
	page.row(strings.ToUpper(command)+" "+l.name, fmt.Sprintf("%.0f", a), fmt.Sprintf("%.0f", b), ratio(a, b),
		through.perMillion(through.proxy), through.perMillion(through.redis), direct.perMillion(direct.redis))
	return nil
}

// run is one run of redis-benchmark.
func (c *course) run(l load, n int, command, addr string, redisPID, proxyPID int) error {
	redis, err := cpuSeconds(redisPID)
	if err != nil {
		return err
	}
	proxy, err := cpuSeconds(proxyPID)
	if err != nil {
		return err
	}
	rate, err := redisBenchmark(addr, append([]string{"-t", command, "-n", strconv.Itoa(n)}, l.args...))
	if err != nil {
		return err
	}
	redisAfter, err := cpuSeconds(redisPID)
	if err != nil {
		return err
	}
	proxyAfter, err := cpuSeconds(proxyPID)
	if err != nil {
		return err
	}
	c.rates = append(c.rates, rate)
	c.commands += n
	c.redis += redisAfter - redis
	c.proxy += proxyAfter - proxy
	return nil
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
