package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A contest is one way to share a lock, and what all its runs came to.
type contest struct {
	by, label string
	addrs     []string
	nodes     []*redistest.Server // asked for what they did
	commands  []string            // that clients send to nodes, as INFO names them; scripts call others

	took     time.Duration
	got      []int // by contender
	waits    []time.Duration
	retries  int
	overlaps int
	left     int // still waiting, 5 s after the end
	all      int // acquisitions, those of the warming up too
	sent     int // commands to all nodes
}

// contenders is how many want the lock.
const contenders = 50

// What clients of the nodes send: those who only run scripts, redsync, and lockproxy.
var (
	scripted = []string{"eval", "evalsha"}
	setting  = append([]string{"set"}, scripted...)
	proxied  = append([]string{"subscribe", "unsubscribe", "script|load", "ping"}, scripted...)
)

// contests are all ways that are compared: on this ground, where second is another
// proxy, and on alone, which has one master for those who know no more.
func (g *ground) contests(second *redistest.Proxy, alone *ground) []*contest {
	one := []string{alone.nodes[0].Addr()}
	var masters []string
	for _, n := range g.nodes {
		masters = append(masters, n.Addr())
	}
	return []*contest{
		{by: "lockproxy", label: "lockproxy", addrs: []string{g.proxy.Addr()}, nodes: g.nodes, commands: proxied},
		{by: "lockproxy", label: "lockproxy, 2 proxies", addrs: []string{g.proxy.Addr(), second.Addr()}, nodes: g.nodes, commands: proxied},
		{by: "redsync", label: "redsync, again after 50–250 ms (default)", addrs: masters, nodes: g.nodes, commands: setting},
		{by: "redsync-tuned", label: "redsync, after 1–10 ms", addrs: masters, nodes: g.nodes, commands: setting},
		{by: "rueidislock", label: "rueidislock, default", addrs: masters, nodes: g.nodes, commands: scripted},
		{by: "rueidislock-noloop", label: "rueidislock, NoLoopTracking", addrs: masters, nodes: g.nodes, commands: scripted},
		{by: "rueidislock-lockers", label: "rueidislock, NoLoopTracking, 50 Lockers", addrs: masters, nodes: g.nodes, commands: scripted},
		{by: "lockproxy", label: "lockproxy on 1 master", addrs: []string{alone.proxy.Addr()}, nodes: alone.nodes, commands: proxied},
		{by: "redislock", label: "redislock on 1 master, after 100 ms (its example)", addrs: one, nodes: alone.nodes, commands: scripted},
		{by: "redislock-tuned", label: "redislock on 1 master, after 5 ms", addrs: one, nodes: alone.nodes, commands: scripted},
	}
}

// measureContend lets 50 contenders share one name, by lockproxy and by libraries.
func measureContend(p plan, page *report) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "contend")
	if out, err := exec.Command("go", "build", "-C", "integration/bench/contend", "-o", binary, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	g, err := openGround(5)
	if err != nil {
		return err
	}
	defer g.close()
	second, err := redistest.LaunchProxy(g.data, g.nodes, "--log-level", "error")
	if err != nil {
		return err
	}
	defer second.Kill()
	alone, err := openGround(1)
	if err != nil {
		return err
	}
	defer alone.close()
	all := g.contests(second, alone)
	for range p.rounds {
		for _, c := range all {
			if err := c.run(binary, 2*p.slice); err != nil {
				return fmt.Errorf("%s: %w", c.label, err)
			}
		}
	}
	page.linef("\n## %d contenders for one name\n", contenders)
	page.linef("Five masters, one lock, held for 1 ms each time; %d rounds of %v for each way, in turns. lockproxy is asked with LOCK … WAIT by %d clients of go-redis, each on a connection of its own; the libraries work without a proxy, all contenders in one process. redislock knows one master, as the last three rows do, and therefore survives none that fails; rueidislock has one of its five keys on each master.\n",
		p.rounds, 2*p.slice, contenders)
	page.linef("Jain's index of fairness is over the acquisitions of each contender, 1 for equal shares. Commands are those that clients send, not what scripts call, per master and acquisition: 2, one to take and one to give back, or 1 where lockproxy hands the lock to who is next. Left waiting are contenders that had not got the lock 5 s after the others had stopped to ask for it. Overlaps are two holders at once.\n")
	page.table("by", "acquisitions/s", "of lockproxy", "Jain", "mean wait ms", "longest wait ms", "longest / mean", "commands", "tried again", "left waiting", "overlaps")
	for _, c := range all {
		c.report(page, all[0].rate())
	}
	return nil
}

// run is one run of the program that contends.
func (c *contest) run(binary string, d time.Duration) error {
	before, err := c.count()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d+time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "-by", c.by, "-addrs", strings.Join(c.addrs, ","),
		"-n", fmt.Sprint(contenders), "-for", d.String()).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return err
	}
	after, err := c.count()
	if err != nil {
		return err
	}
	c.sent += after - before
	return c.add(out)
}

// add adds what a run printed.
func (c *contest) add(out []byte) error {
	var r struct {
		Took                         time.Duration
		Got                          []int
		Waits                        []time.Duration
		Retries, Overlaps, Left, All int
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return err
	}
	if c.got == nil {
		c.got = make([]int, len(r.Got))
	}
	for i, n := range r.Got {
		c.got[i] += n
	}
	c.took += r.Took
	c.waits = append(c.waits, r.Waits...)
	c.retries += r.Retries
	c.overlaps += r.Overlaps
	c.left += r.Left
	c.all += r.All
	return nil
}

// count is how many commands clients have sent to all nodes.
func (c *contest) count() (n int, err error) {
	for _, s := range c.nodes {
		calls, err := callsOf(s.Addr(), c.commands)
		if err != nil {
			return 0, err
		}
		n += calls
	}
	return n, nil
}

// callsOf is how often a server has executed these commands.
func callsOf(addr string, commands []string) (int, error) {
	conn, err := redistest.Dial(addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	v, err := conn.Try("INFO", "commandstats")
	if err != nil {
		return 0, err
	}
	return parseCalls(v.Text, commands), nil
}

// parseCalls reads lines of the form cmdstat_evalsha:calls=7,usec=…
func parseCalls(info string, commands []string) (n int) {
	for line := range strings.Lines(info) {
		for _, name := range commands {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+name+":calls="); ok {
				var calls int
				fmt.Sscanf(rest, "%d", &calls)
				n += calls
			}
		}
	}
	return n
}

func (c *contest) rate() float64 { return float64(len(c.waits)) / c.took.Seconds() }

func (c *contest) report(page *report, lockproxy float64) {
	var sum time.Duration
	for _, w := range c.waits {
		sum += w
	}
	mean := sum / time.Duration(max(1, len(c.waits)))
	longest := quantile(c.waits, 1)
	commands := float64(c.sent) / float64(len(c.nodes)) / float64(max(1, c.all))
	page.row(c.label, fmt.Sprintf("%.0f", c.rate()), ratio(c.rate(), lockproxy), fmt.Sprintf("%.3f", jain(c.got)), inMillis(mean), inMillis(longest),
		ratio(float64(longest), float64(mean)), fmt.Sprintf("%.2f", commands), fmt.Sprint(c.retries), fmt.Sprint(c.left), fmt.Sprint(c.overlaps))
}

// jain is Jain's index of fairness: 1 for equal shares, 1/n if one has everything.
func jain(shares []int) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
