package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// healthz responds 200 as long as the process serves, whatever the state of its servers.
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
		http.Error(w, err.Error(), http.StatusBadRequest)
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
			if n.Doubt > 0 {
				others = append(others, fmt.Sprintf("%s votes, but abstains for names that were held when it forgot, for another %s at most", n.Address, n.Doubt.Round(time.Second)))
			}
		case locks.NodeUnused:
			voting++
			others = append(others, n.Address+": unused, which it is until a lock is asked for")
		case locks.NodeQuarantine:
			says := fmt.Sprintf("%s is in quarantine for another %s", n.Address, n.Left.Round(time.Second))
			if n.Copies {
				says += " at most, and until it knows what a majority of the others hold"
			}
			others = append(others, says)
		default:
			others = append(others, n.Address+": "+n.Standing())
		}
	}
	says := fmt.Sprintf("%d of %d vote, %d needed", voting, len(nodes), quorum)
	return check{voting < quorum, "lock nodes", strings.Join(append([]string{says}, others...), "; ")}
}
