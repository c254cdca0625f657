package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestLockNodes_OutOfMemory: three of five nodes are full. Everybody who is asked says so, and
// that it is over when it is.
func TestLockNodes_OutOfMemory(t *testing.T) {
	t.Parallel()
	up, nodes, admin := redistest.Start(t), redistest.StartNodes(t, 5), freeAddr(t)
	p := redistest.StartProxy(t, up, nodes, "--admin", admin, "--node-timeout", "2s")
	c := redistest.Open(t, p.Addr())
	readyz := func(want int, says string) func() bool {
		return func() bool {
			code, body := adminGet(t, "http://"+admin+"/readyz?verbose")
			return code == want && regexp.MustCompile(says).MatchString(body)
		}
	}
	eventually(t, 20*time.Second, "ready", readyz(200, `5 of 5 vote`))
	if v := c.Do(t, "LOCK", "held", "50s", "OWNER", "alice", "SESSION"); v.IsError() {
		t.Fatalf("LOCK: %v", v)
	}
	r := &rig{nodes: nodes}
	eventually(t, 20*time.Second, "every node has the lock", func() bool { return r.lockKeys(t) == 5 })

	for _, n := range nodes[:3] {
		n.Do(t, "CONFIG", "SET", "maxmemory", "1")
	}
	first := regexp.QuoteMeta(nodes[0].Addr())
	const full = `refuses \(OOM\) since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`
	eventually(t, 20*time.Second, "not ready", readyz(503, `\[-\] lock nodes: 2 of 5 vote, 3 needed; `+first+`: `+full+`; .*; .*OOM.*\nnot ready`))
	for i := range nodes {
		want := map[bool]string{true: "refuses (OOM)", false: "voting"}[i < 3]
		eventually(t, 20*time.Second, "NODES says "+want+", and for how long", func() bool {
			f := nodeFields(t, c, i)
			return f["state"] == want && f["up"] == "yes" && f["state-ms"] != "0"
		})
	}
	if v := c.Do(t, "LOCK", "free", "1s", "OWNER", "bob"); !strings.HasPrefix(v.Raw, "-NOQUORUM 2 of 5 answered, 3 needed: ") {
		t.Errorf("LOCK: %v", v)
	}
	says := func(name, want string) {
		t.Helper()
		var lines []string
		for _, e := range c.Do(t, "LOCKCTL", "WHY", name).Elems {
			lines = append(lines, e.Text)
		}
		if got := strings.Join(lines, "\n"); !regexp.MustCompile(`(?s)` + want).MatchString(got) {
			t.Errorf("WHY %s:\n%s\nwant %s", name, got, want)
		}
	}
	says("free", `^free is free\n2 of 5 nodes vote, 3 must agree:\n  `+first+`: `+full+`\n.*\nnext: NOQUORUM until 1 more node votes$`)
	says("held", `^held is held by .*; 5 nodes agree\n2 of 5 nodes vote.*`+first+`: `+full+`; there held by .*\nnext: free in at most .* NOQUORUM until 1 more node votes$`)
	for line, want := range map[string]string{
		`lockproxy_ready`:             "0",
		`lockproxy_lock_nodes_voting`: "2",
		`lockproxy_lock_node_up{node="` + nodes[0].Addr() + `"}`:                      "1",
		`lockproxy_lock_node_state{node="` + nodes[0].Addr() + `",state="refuses"}`:   "1",
		`lockproxy_lock_node_state{node="` + nodes[0].Addr() + `",state="voting"}`:    "0",
		`lockproxy_lock_node_refuses{error="OOM",node="` + nodes[0].Addr() + `"}`:     "1",
		`lockproxy_lock_node_refuses{error="MISCONF",node="` + nodes[0].Addr() + `"}`: "0",
		`lockproxy_lock_node_refuses{error="OOM",node="` + nodes[4].Addr() + `"}`:     "0",
	} {
		if _, body := adminGet(t, "http://"+admin+"/metrics"); !strings.Contains(body, "\n"+line+" "+want+"\n") {
			t.Errorf("/metrics: %s is not %s", line, want)
		}
	}
	page := pageState(t, admin)
	if n := page.Nodes[0]; n.State != "refuses (OOM)" || n.Votes || !n.Up || n.Since <= 0 || page.Health[2].OK {
		t.Errorf("the page: %+v", page)
	}

	for _, n := range nodes[:3] {
		n.Do(t, "CONFIG", "SET", "maxmemory", "0")
	}
	eventually(t, 20*time.Second, "ready again", readyz(200, `5 of 5 vote`))
	if v := c.Do(t, "LOCK", "free", "1s", "OWNER", "bob"); v.IsError() {
		t.Errorf("LOCK: %v", v)
	}
	says("free", `5 of 5 nodes vote`)
	log := p.Log()
	for _, want := range []string{
		`level=ERROR msg="lock quorum lost: no lock can be taken or renewed" voting=2 needed=3 nodes=".*` + first + ` refuses \(OOM\)`,
		`level=INFO msg="lock quorum is back" voting=\d needed=3 .*lost_for=`,
	} {
		if found := regexp.MustCompile(want).FindAllString(log, -1); len(found) != 1 {
			t.Errorf("%q, want one %s in\n%s", found, want, log)
		}
	}
	if !regexp.MustCompile(`level=WARN msg="lock node" node=` + first + ` state=refuses reason="` + first + ` OOM"`).MatchString(log) {
		t.Errorf("no line about the first node in\n%s", log)
	}
}

// A pageEvent is what a test reads of the page's event "state".
type pageEvent struct {
	Health []struct {
		Of, Says string
		OK       bool
	}
	Nodes []struct {
		State     string
		Up, Votes bool
		Since     int64 `json:"since_ms"`
	}
}

// pageState is the first state that the page is told.
func pageState(t *testing.T, admin string) (e pageEvent) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/page/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	for state := false; sc.Scan(); {
		if data, ok := strings.CutPrefix(sc.Text(), "data: "); ok && state {
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatal(err)
			}
			return e
		}
		state = sc.Text() == "event: state"
	}
	t.Fatalf("no state: %v", sc.Err())
	return e
}
