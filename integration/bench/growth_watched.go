package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A watched field tells what its proxy and its nodes have in memory.
type watched struct {
	*field
	admin string // the proxy's address for operators
}

func openWatched(nodes int, args ...string) (*watched, error) {
	admin, err := redistest.FreeAddr()
	if err != nil {
		return nil, err
	}
	f, err := openField(nodes, 1, append([]string{"--admin", admin, "--admin-pprof"}, args...)...)
	return &watched{f, admin}, err
}

// inUse is how many bytes of heap and stacks the proxy has in use, right after two collections: pools are kept over one.
func (w *watched) inUse() (float64, error) {
	for range 2 {
		if _, err := w.get("/debug/pprof/heap?gc=1"); err != nil {
			return 0, err
		}
	}
	metrics, err := w.get("/metrics")
	if err != nil {
		return 0, err
	}
	return numberAfter(metrics, "go_memstats_heap_alloc_bytes ") + numberAfter(metrics, "go_memstats_stack_inuse_bytes "), nil
}

// scrapes is of how many GETs of /metrics the CPU is taken, of which the first may have more to do than the others.
const scrapes = 20

// scrape is the proxy's CPU µs for a GET of /metrics.
func (w *watched) scrape() (float64, error) {
	before, err := w.work(0)
	if err != nil {
		return 0, err
	}
	for range scrapes {
		if _, err := w.get("/metrics"); err != nil {
			return 0, err
		}
	}
	after, err := w.work(scrapes)
	return after.since(before).proxies, err
}

func (w *watched) get(path string) (string, error) {
	r, err := http.Get("http://" + w.admin + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, r.Status)
	}
	return string(text), err
}

// numberAfter is the number behind a prefix of a line; 0 if there is none.
func numberAfter(text, prefix string) (v float64) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			v, _ = strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return v
}

// dataSet is how many bytes a node has in use; the one with the most.
func (w *watched) dataSet() (most float64, err error) {
	for _, n := range w.nodes {
		c, err := redistest.Dial(n.Addr())
		if err != nil {
			return 0, err
		}
		v, err := c.Try("INFO", "memory")
		_ = c.Close()
		if err != nil {
			return 0, err
		}
		most = max(most, numberAfter(v.Text, "used_memory:"))
	}
	return most, nil
}
