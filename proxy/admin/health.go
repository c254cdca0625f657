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

// readyz responds 200 if the proxy is ready for clients: it accepts them, a master of the
// upstream has answered recently, and a quorum of the lock nodes votes. Checks that the query
// excludes do not count.
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
		if c.failed || query.Has("verbose") {
			fmt.Fprintln(w, c)
		}
	}
	if ready {
		fmt.Fprintln(w, "ready")
		return
	}
	fmt.Fprintln(w, "not ready")
}

// exclude is checks without those of the names, in which "-" stands for a space.
func exclude(checks []check, names []string) ([]check, error) {
	for _, name := range names {
		i := slices.IndexFunc(checks, func(c check) bool { return strings.ReplaceAll(c.name, " ", "-") == name })
		if i < 0 {
			return nil, fmt.Errorf("exclude=%.40q: is not one of clients, upstream, lock-nodes", name)
		}
		checks = slices.Delete(checks, i, i+1)
	}
	return checks, nil
}

// A check is one line of /readyz.
type check struct {
	failed bool // the proxy is not ready
	name   string
	detail string
}

func (c check) String() string {
	sign := "[+]"
	if c.failed {
		sign = "[-]"
	}
	return sign + " " + c.name + ": " + c.detail
}

func isReady(checks []check) bool {
	return !slices.ContainsFunc(checks, func(c check) bool { return c.failed })
}

func (s *Server) readiness() []check {
	return []check{s.clientsCheck(), s.pinger.check(), nodesCheck(s.opt.Locks.Nodes())}
}

func (s *Server) clientsCheck() check {
	if s.opt.Proxy.Draining() {
		return check{true, "clients", fmt.Sprintf("draining, %d left", s.opt.Proxy.Clients())}
	}
	return check{false, "clients", fmt.Sprintf("accepting, %d connected", s.opt.Proxy.Clients())}
}

// nodesCheck checks that a quorum votes, or would if it were asked. Its detail has the state
// of the other nodes.
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
	// pingValid is how old a master's last answer may be. It is several pings: a slow command
	// is no reason to be unready.
	pingValid = 3 * time.Second
)

// A pinger sends a PING to each master of the upstream every pingEvery. It is safe for
// concurrent use.
type pinger struct {
	up  *upstream.Upstream
	now func() time.Time

	mu      sync.Mutex
	masters map[*upstream.Pool]*pingState
}

// A pulse is what is known of one master.
type pingState struct {
	pinging  bool // a PING is not answered yet
	answered time.Time
	took     time.Duration // by the last answer
	err      error         // of the last PING
}

func newPinger(up *upstream.Upstream) *pinger {
	return &pinger{up: up, now: time.Now, masters: map[*upstream.Pool]*pingState{}}
}

// run pings until ctx ends.
func (w *pinger) run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		for _, p := range w.due() {
			asking.Go(func() { w.ping(ctx, p) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// due are the masters to ping now. Former masters are forgotten.
func (w *pinger) due() (pools []*upstream.Pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.masters
	w.masters = map[*upstream.Pool]*pingState{}
	for _, p := range w.up.View().Masters() {
		at := before[p]
		if at == nil {
			at = &pingState{}
		}
		if w.masters[p] = at; !at.pinging {
			at.pinging = true
			pools = append(pools, p)
		}
	}
	return pools
}

func (w *pinger) ping(ctx context.Context, p *upstream.Pool) {
	began := w.now()
	err := p.Ping(ctx, w.up.DefaultIdentity())
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.masters[p]
	if at == nil {
		return
	}
	at.pinging, at.err = false, err
	if err == nil {
		at.answered = w.now()
		at.took = at.answered.Sub(began)
	}
}

// check checks that a master has answered recently. One of a Cluster is enough: the others
// would be missing at other proxies, too.
func (w *pinger) check() check {
	up, all, why := 0, 0, "not asked yet"
	for _, b := range w.statuses() {
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
type pingStatus struct {
	pingState
	addr string
	up   bool
}

func (w *pinger) statuses() (all []pingStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, at := range w.masters {
		all = append(all, pingStatus{*at, p.Addr(), at.err == nil && w.now().Sub(at.answered) < pingValid})
	}
	slices.SortFunc(all, func(a, b pingStatus) int { return strings.Compare(a.addr, b.addr) })
	return all
}
