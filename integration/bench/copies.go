package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// copiedSizes are how many names are held when a node forgets.
var copiedSizes = []int{0, 1000, 10_000, 100_000}

const (
	forgetfulNode = 0
	copyLimit     = 5 * time.Minute
	nodeRecord    = "lockproxy:node"
)

// measureCopies measures how long a node that forgot its locks is out, and what its copy costs the nodes.
func measureCopies(p plan, page *report) error {
	page.linef("\n## A lock node that forgot\n")
	page.linef("Three lock nodes, one proxy, leases of an hour. One node is emptied by FLUSHALL, and then once more by kill -9 and a start with nothing; times in s from then, that of a start included, until it votes about names that nobody holds. A copy begins 3.07 s after the loss was seen. Slowest call is the longest script of the copy by the node's own SLOWLOG, which is how long nobody else is served: on the others what shows a page of their locks, on the node what takes one. CPU is that of the proxy, and of all nodes together, from FLUSHALL on; a few hundredths of it are for asking the node whether it votes. Memory is what the node has in use for each name it is in doubt about, what it remembers of requests included. Load average before: %s.\n", loadAverage())
	page.table("held names", "FLUSHALL, s", "kill -9, s", "proxy CPU s", "nodes CPU s", "slowest call on the others ms", "slowest call on the node ms", "bytes a doubt")
	if err := forCopiedSizes(3, p, func(c *copied, n int) error { return c.measure(page, n) }); err != nil {
		return err
	}
	page.linef("\nFive lock nodes, of which two are emptied at once; until both vote.\n")
	page.table("held names", "FLUSHALL of two, s")
	return forCopiedSizes(5, p, func(c *copied, n int) error { return c.measureTwo(page, n) })
}

// forCopiedSizes measures with more and more names held on nodes.
func forCopiedSizes(nodes int, p plan, measure func(c *copied, n int) error) error {
	g, err := openGround(nodes, "--max-ttl", "1h", "--fence-retention", "2h")
	if err != nil {
		return err
	}
	defer g.close()
	c := &copied{&field{g, []*redistest.Proxy{g.proxy}}}
	h := holding{watched: &watched{field: c.field}}
	for i, n := range append(copiedSizes[:1:1], scaled(copiedSizes[1:], p.scale)...) {
		if err := h.forAll(h.n, n, (*locker).takeForAnHour); err != nil {
			return err
		}
		h.n = n
		if err := measure(c, n); err != nil {
			return fmt.Errorf("size %d: %w", i, err)
		}
	}
	return nil
}

// A copied is a ground on which one node forgets.
type copied struct{ *field }

// measure adds the row of n held names.
func (c *copied) measure(page *report, n int) error {
	node := c.nodes[forgetfulNode]
	if err := c.everywhere([]string{"CONFIG", "SET", "slowlog-log-slower-than", "50", "slowlog-max-len", "10000"}, []string{"SLOWLOG", "RESET"}); err != nil {
		return err
	}
	before, err := c.work(0)
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := ask(node, "FLUSHALL"); err != nil {
		return err
	}
	empty, err := inUseBy(node)
	if err != nil {
		return err
	}
	flushed, err := c.untilVotes(node, began)
	if err != nil {
		return err
	}
	after, err := c.work(1)
	if err != nil {
		return err
	}
	others, its, err := c.slowest()
	if err != nil {
		return err
	}
	if _, err := ask(node, "SLOWLOG", "RESET"); err != nil { // else it is in the memory
		return err
	}
	full, err := inUseBy(node)
	if err != nil {
		return err
	}
	if doubts, err := ask(node, "EVAL", "return #redis.call('KEYS', 'lockproxy:doubt:*')", "0"); err != nil || doubts.Int() != int64(n) {
		return fmt.Errorf("the node is in doubt about %v names, and not %d: %w", doubts, n, err)
	}
	spent := after.since(before)
	began = time.Now()
	node.Kill()
	if err := node.Restart(); err != nil {
		return err
	}
	killed, err := c.untilVotes(node, began)
	if err != nil {
		return err
	}
	bytes := "–"
	if n > 0 {
		bytes = fmt.Sprintf("%.0f", (full-empty)/float64(n))
	}
	page.row(fmt.Sprint(n), fmt.Sprintf("%.2f", flushed.Seconds()), fmt.Sprintf("%.2f", killed.Seconds()), fmt.Sprintf("%.2f", spent.proxies/1e6), fmt.Sprintf("%.2f", spent.nodes/1e6), inMillis(others), inMillis(its), bytes)
	return nil
}

// measureTwo adds the row of n held names where two nodes forget.
func (c *copied) measureTwo(page *report, n int) error {
	began := time.Now()
	two := c.nodes[:2]
	for _, node := range two {
		if _, err := ask(node, "FLUSHALL"); err != nil {
			return err
		}
	}
	for _, node := range two {
		if _, err := c.untilVotes(node, began); err != nil {
			return err
		}
	}
	page.row(fmt.Sprint(n), fmt.Sprintf("%.2f", time.Since(began).Seconds()))
	return nil
}

func (c *copied) everywhere(commands ...[]string) error {
	for _, n := range c.nodes {
		for _, command := range commands {
			if _, err := ask(n, command...); err != nil {
				return err
			}
		}
	}
	return nil
}

// untilVotes is how long after a time the node votes, by a copy.
func (c *copied) untilVotes(node *redistest.Server, began time.Time) (time.Duration, error) {
	for time.Since(began) < copyLimit {
		v, err := ask(node, "HMGET", nodeRecord, "sync", "copied")
		if err != nil {
			return 0, err
		}
		if v.Elems[0].Text == "1" && !v.Elems[1].Null {
			return time.Since(began), nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0, errors.New("the node does not vote")
}

// slowest is how long the slowest script of a copy took: on the nodes that are read, and on the other one.
func (c *copied) slowest() (others, its time.Duration, err error) {
	for i, n := range c.nodes {
		v, err := ask(n, "SLOWLOG", "GET", "-1")
		if err != nil {
			return 0, 0, err
		}
		for _, e := range v.Elems { // id, when, µs, command
			took, command := time.Duration(e.Elems[2].Int())*time.Microsecond, e.Elems[3].Elems
			switch {
			case len(command) < 2:
			case i == forgetfulNode && runs(command[1].Text, scripts.Copy):
				its = max(its, took)
			case i != forgetfulNode && runs(command[1].Text, scripts.Held):
				others = max(others, took)
			}
		}
	}
	return others, its, nil
}

// runs reports whether an EVALSHA or EVAL with this argument, of which SLOWLOG shows the beginning, runs the script.
func runs(arg string, s *scripts.Script) bool {
	text, _, _ := strings.Cut(arg, "... (")
	return arg == s.SHA1 || len(text) > len(s.SHA1) && strings.HasPrefix(s.Source, text)
}

func inUseBy(n *redistest.Server) (float64, error) {
	v, err := ask(n, "INFO", "memory")
	return numberAfter(v.Text, "used_memory:"), err
}

// ask sends one command to a node.
func ask(n *redistest.Server, args ...string) (redistest.Value, error) {
	conn, err := redistest.Dial(n.Addr())
	if err != nil {
		return redistest.Value{}, err
	}
	defer conn.Close()
	v, err := conn.Try(args...)
	if err == nil && v.IsError() {
		err = errors.New(v.Text)
	}
	return v, err
}
