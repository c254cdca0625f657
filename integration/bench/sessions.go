package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// kept is how many SESSION locks one proxy holds, at full scale.
const kept = 10_000

// measureSessions holds idle SESSION locks on few connections and on many.
func measureSessions(p plan, page *report) error {
	n := max(100, int(kept*p.scale))
	lease := max(3*time.Second, time.Duration(p.scale*float64(30*time.Second)))
	page.linef("\n## %d idle SESSION locks\n", n)
	page.linef("Five masters, one proxy, leases of %v. Commands are those a master got in one lease, for each lock; memory is that of the proxy's process (VmRSS), at the start and when all had been held for two leases, and the most it ever was (VmHWM). CPU is the proxy's, of one core.\n", lease)
	page.table("connections", "all granted in s", "held in the end", "commands per lease and master", "memory before MB", "memory MB", "most MB", "CPU")
	for _, conns := range []int{max(1, n/100), n} {
		if err := holdIdle(page, n, conns, lease); err != nil {
			return fmt.Errorf("%d connections: %w", conns, err)
		}
	}
	return nil
}

// holdIdle holds n locks on so many connections for two leases.
func holdIdle(page *report, n, conns int, lease time.Duration) error {
	g, err := openGround(5, "--max-clients", "20000")
	if err != nil {
		return err
	}
	defer g.close()
	before, _, err := memoryOf(g.proxy.PID())
	if err != nil {
		return err
	}
	start := time.Now()
	clients, err := keepAll(g.proxy.Addr(), n, conns, lease)
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	if err != nil {
		return err
	}
	granted := time.Since(start)
	time.Sleep(lease) // until renewing is all there is
	calls, cpu, err := g.spent()
	if err != nil {
		return err
	}
	window := time.Now()
	time.Sleep(lease)
	callsAfter, cpuAfter, err := g.spent()
	if err != nil {
		return err
	}
	leases := time.Since(window).Seconds() / lease.Seconds()
	now, most, err := memoryOf(g.proxy.PID())
	if err != nil {
		return err
	}
	held, err := g.held()
	if err != nil {
		return err
	}
	page.row(fmt.Sprint(conns), fmt.Sprintf("%.1f", granted.Seconds()), fmt.Sprintf("%d of %d", held, n),
		fmt.Sprintf("%.2f", float64(callsAfter-calls)/float64(len(g.nodes)*n)/leases),
		megabytes(before), megabytes(now), megabytes(most), ratio(cpuAfter-cpu, leases*lease.Seconds()))
	return nil
}

// keepAll takes n locks on so many connections, some hundreds at a time.
func keepAll(addr string, n, conns int, lease time.Duration) (all []*redistest.Conn, err error) {
	for range conns {
		c, err := redistest.Dial(addr)
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	var g errgroup.Group
	g.SetLimit(200)
	for i, c := range all {
		g.Go(func() error {
			for k := i; k < n; k += conns {
				if err := keepOne(c, fmt.Sprint("kept:", k), lease); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all, g.Wait()
}

func keepOne(c *redistest.Conn, name string, lease time.Duration) error {
	var v redistest.Value
	for range maxUndecided {
		var err error
		if v, err = c.Try("LOCK", name, fmt.Sprint(lease.Milliseconds()), "SESSION"); err != nil {
			return err
		}
		if !strings.HasPrefix(v.Text, "NOQUORUM ") {
			break
		}
	}
	if len(v.Elems) != 4 {
		return fmt.Errorf("LOCK SESSION: %v", v)
	}
	return nil
}

// spent is how many commands the nodes have had, and the proxy's CPU seconds.
func (g *ground) spent() (calls int, cpu float64, err error) {
	for _, s := range g.nodes {
		n, err := callsOf(s.Addr(), proxied)
		if err != nil {
			return 0, 0, err
		}
		calls += n
	}
	cpu, err = cpuSeconds(g.proxy.PID())
	return calls, cpu, err
}

// held is on how many names the node with the fewest has a lock.
func (g *ground) held() (int, error) {
	least := -1
	for _, s := range g.nodes {
		c, err := redistest.Dial(s.Addr())
		if err != nil {
			return 0, err
		}
		v, err := c.Try("KEYS", "lockproxy:lock:*")
		_ = c.Close()
		if err != nil {
			return 0, err
		}
		if n := len(v.Elems); least < 0 || n < least {
			least = n
		}
	}
	return least, nil
}

// memoryOf is what a process has in memory, and the most it ever had, in bytes.
func memoryOf(pid int) (now, most int, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return 0, 0, err
	}
	return parseMemory(string(text))
}

// parseMemory reads proc_pid_status(5), which counts in units of 1024 bytes.
func parseMemory(status string) (now, most int, err error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			fmt.Sscan(rest, &now)
		}
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			fmt.Sscan(rest, &most)
		}
	}
	if now == 0 || most == 0 {
		return 0, 0, errors.New("no memory in the status of the process")
	}
	return now << 10, most << 10, nil
}

func megabytes(bytes int) string { return fmt.Sprintf("%.0f", float64(bytes)/1e6) }
