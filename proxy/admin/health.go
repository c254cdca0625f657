package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// healthz says that the process serves, whatever it is in front of.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

// readyz says whether clients are better sent here than elsewhere: the proxy takes
// clients, the upstream has answered of late, and a quorum of the lock nodes votes. What
// the query excludes does not count.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	checks, err := exclude(s.readiness(), query["exclude"])
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	ready := isReady(checks)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	for _, c := range checks {
		if c.missing || query.Has("verbose") {
			fmt.Fprintln(w, c)
		}
	}
	if ready {
		fmt.Fprintln(w, "ready")
		return
	}
	fmt.Fprintln(w, "not ready")
}

// exclude is checks without those of these names, in which "-" stands for a space.
func exclude(checks []check, names []string) ([]check, error) {
	for _, name := range names {
		i := slices.IndexFunc(checks, func(c check) bool { return strings.ReplaceAll(c.of, " ", "-") == name })
		if i < 0 {
			return nil, fmt.Errorf("exclude=%.40q: is not one of clients, upstream, lock-nodes", name)
		}
		checks = slices.Delete(checks, i, i+1)
	}
	return checks, nil
}

// A check is one line of what /readyz says.
type check struct {
	missing bool // the proxy is not ready because of it
	of      string
	says    string
}

func (c check) String() string {
	sign := "[+]"
	if c.missing {
		sign = "[-]"
	}
	return sign + " " + c.of + ": " + c.says
}

func isReady(checks []check) bool {
	return !slices.ContainsFunc(checks, func(c check) bool { return c.missing })
}

func (s *Server) readiness() []check {
	return []check{s.clientsCheck(), s.watch.check(), nodesCheck(s.opt.Locks.Nodes())}
}

func (s *Server) clientsCheck() check {
	if s.opt.Proxy.Draining() {
		return check{true, "clients", fmt.Sprintf("draining, %d left", s.opt.Proxy.Clients())}
	}
	return check{false, "clients", fmt.Sprintf("accepting, %d connected", s.opt.Proxy.Clients())}
}

// nodesCheck says whether a quorum votes, or would if it were asked, and of the other
// nodes why they do not.
func nodesCheck(nodes []locks.NodeStatus) check {
	voting, quorum := 0, len(nodes)/2+1
	var others []string
	for _, n := range nodes {
		switch n.State {
		case locks.NodeVoting:
			voting++
		case locks.NodeUnused:
			voting++
			others = append(others, n.Address+": unused, which it is until a lock is asked for")
		case locks.NodeQuarantine:
			others = append(others, fmt.Sprintf("%s is in quarantine for another %s", n.Address, n.Left.Round(time.Second)))
		default:
			others = append(others, n.Address+": "+n.Standing())
		}
	}
	says := fmt.Sprintf("%d of %d vote, %d needed", voting, len(nodes), quorum)
	return check{voting < quorum, "lock nodes", strings.Join(append([]string{says}, others...), "; ")}
}

const (
	pingEvery = time.Second
	// recently is how old the upstream's last answer may be. A command that takes it
	// long is no reason to leave.
	recently = 3 * time.Second
)

// A watch asks the upstream's masters whether they are there. It is safe for concurrent
// use.
type watch struct {
	up  *upstream.Upstream
	now func() time.Time

	mu    sync.Mutex
	nodes map[*upstream.Pool]*pulse
}

// A pulse is what is known of one master.
type pulse struct {
	asking   bool // its answer is waited for
	answered time.Time
	took     time.Duration // to answer, the last time
	err      error         // of the last answer
}

func newWatch(up *upstream.Upstream) *watch {
	return &watch{up: up, now: time.Now, nodes: map[*upstream.Pool]*pulse{}}
}

// run asks until ctx ends.
func (w *watch) run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		for _, p := range w.due() {
			asking.Go(func() { w.ask(ctx, p) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// due are the masters to ask now. Those that are none any more are forgotten.
func (w *watch) due() (pools []*upstream.Pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.nodes
	w.nodes = map[*upstream.Pool]*pulse{}
	for _, p := range w.up.View().Masters() {
		at := before[p]
		if at == nil {
			at = &pulse{}
		}
		if w.nodes[p] = at; !at.asking {
			at.asking = true
			pools = append(pools, p)
		}
	}
	return pools
}

func (w *watch) ask(ctx context.Context, p *upstream.Pool) {
	began := w.now()
	err := p.Ping(ctx, w.up.DefaultIdentity())
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.nodes[p]
	if at == nil {
		return
	}
	at.asking, at.err = false, err
	if err == nil {
		at.answered = w.now()
		at.took = at.answered.Sub(began)
	}
}

// check says whether a master has answered of late. One of a Cluster is enough: the
// others would be missing elsewhere, too.
func (w *watch) check() check {
	up, all, why := 0, 0, "not asked yet"
	for _, b := range w.beats() {
		all++
		if b.up {
			up++
		} else if b.err != nil {
			why = b.err.Error()
		} else if !b.answered.IsZero() {
			why = "silent for " + w.now().Sub(b.answered).Round(time.Second).String()
		}
	}
	switch {
	case up == 0:
		return check{true, "upstream", why}
	case all == 1:
		return check{false, "upstream", "answers"}
	}
	return check{false, "upstream", fmt.Sprintf("%d of %d masters answer", up, all)}
}

// A beat is a pulse at one time.
type beat struct {
	pulse
	addr string
	up   bool
}

func (w *watch) beats() (all []beat) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, at := range w.nodes {
		all = append(all, beat{*at, p.Addr(), at.err == nil && w.now().Sub(at.answered) < recently})
	}
	slices.SortFunc(all, func(a, b beat) int { return strings.Compare(a.addr, b.addr) })
	return all
}
