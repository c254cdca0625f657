package admin

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

func TestReadyz_NothingReachable(t *testing.T) {
	d := open(t, Options{}, nowhere, nowhere)
	if code, body := d.get(t, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	eventually(t, "the upstream was asked", func() bool {
		_, body := d.get(t, "/readyz")
		return strings.Contains(body, "connection refused")
	})
	code, body := d.get(t, "/readyz")
	for _, want := range []string{"[-] upstream: cannot reach", "[-] lock nodes: 0 of 1 vote, 1 needed; 127.0.0.1:1: unknown\n", "not ready"} {
		if !strings.Contains(body, want) {
			t.Errorf("readyz does not say %q", want)
		}
	}
	if code != 503 || strings.Contains(body, "clients") {
		t.Errorf("readyz: %d\n%s", code, body)
	}
	if code, _ := d.get(t, "/readyz", "Host", "anything.example"); code != 503 {
		t.Errorf("readyz is not for everybody: %d", code)
	}
}

func TestReadyz_EachCheckFailsAndRecovers(t *testing.T) {
	t.Parallel()
	d, up, nodes := openReal(t, Options{}, 3)
	d.run(t)
	ready := func() bool { code, _ := d.get(t, "/readyz"); return code == 200 }
	says := func(line string) func() bool {
		return func() bool {
			code, body := d.get(t, "/readyz")
			return code == 503 && strings.Contains(body, line) && strings.HasSuffix(body, "not ready\n")
		}
	}
	eventually(t, "ready", ready)
	if _, body := d.get(t, "/readyz"); body != "ready\n" {
		t.Errorf("without verbose: %q", body)
	}
	want := "[+] clients: accepting, 7 connected\n[+] upstream: answers\n[+] lock nodes: 3 of 3 vote, 2 needed\nready\n"
	if _, body := d.get(t, "/readyz?verbose"); body != want {
		t.Errorf("verbose:\n%s\nwant\n%s", body, want)
	}

	up.Pause()
	eventually(t, "a hanging upstream is noticed", says("[-] upstream: silent for"))
	up.Resume()
	eventually(t, "the upstream answers again", ready)
	up.Kill()
	eventually(t, "a dead upstream is noticed", says("[-] upstream: cannot reach the upstream"))
	if err := up.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the upstream is back", ready)

	nodes[0].Kill()
	eventually(t, "two of three vote", func() bool {
		code, body := d.get(t, "/readyz?verbose")
		return code == 200 && strings.Contains(body, "2 of 3 vote, 2 needed; "+nodes[0].Addr()+": down (connection refused) since 2")
	})
	nodes[1].Kill()
	if err := nodes[1].Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a node that forgot is waited for", says(nodes[1].Addr()+" is in quarantine for another "))

	if code, body := d.get(t, "/readyz?verbose&exclude=lock-nodes"); code != 200 || strings.Contains(body, "lock nodes") {
		t.Errorf("for who can do without locks: %d\n%s", code, body)
	}
	if code, body := d.get(t, "/readyz?exclude=locks"); code != 400 || !strings.Contains(body, "lock-nodes") {
		t.Errorf("excluding what there is not: %d %q", code, body)
	}

	d.clients.draining.Store(true)
	if code, _ := d.get(t, "/readyz?exclude=lock-nodes&exclude=upstream"); code != 503 {
		t.Errorf("draining without the others: %d", code)
	}
	if !says("[-] clients: draining, 7 left")() {
		t.Error("draining is not said at once")
	}
	if code, _ := d.get(t, "/healthz"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
}

func TestNodesCheck(t *testing.T) {
	node := func(addr string, state locks.NodeState, left time.Duration) locks.NodeStatus {
		return locks.NodeStatus{Address: addr, State: state, Left: left, Err: errors.New("why")}
	}
	v := node("v:1", locks.NodeVoting, 0)
	q := node("q:1", locks.NodeQuarantine, 12400*time.Millisecond)
	m := node("m:1", locks.NodeMismatch, 0)
	c, d := q, v
	c.Address, c.Copies, d.Address, d.Doubt = "c:1", true, "d:1", 90*time.Second
	full, gone := node("f:1", locks.NodeRefusing, 0), node("g:1", locks.NodeDown, 0)
	full.Since, gone.Since = time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC), time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	tests := []struct {
		nodes   []locks.NodeStatus
		missing bool
		says    string
	}{
		{[]locks.NodeStatus{v}, false, "1 of 1 vote, 1 needed"},
		{[]locks.NodeStatus{{Address: "u:1", State: locks.NodeUnused}}, false, "1 of 1 vote, 1 needed; u:1: unused, which it is until a lock is asked for"},
		{[]locks.NodeStatus{v, q}, true, "1 of 2 vote, 2 needed; q:1 is in quarantine for another 12s"},
		{[]locks.NodeStatus{v, v, q, v, m}, false, "3 of 5 vote, 3 needed; q:1 is in quarantine for another 12s; m:1: other list"},
		{[]locks.NodeStatus{v, v, q, m}, true, "2 of 4 vote, 3 needed; q:1 is in quarantine for another 12s; m:1: other list"},
		{[]locks.NodeStatus{v, d, c}, false, "2 of 3 vote, 2 needed; d:1 votes, but abstains for names that were held when it forgot, for another 1m30s at most; " +
			"c:1 is in quarantine for another 12s at most, and until it knows what a majority of the others hold"},
		{[]locks.NodeStatus{v, full, gone}, true, "1 of 3 vote, 2 needed; f:1: refuses (why) since 2026-03-01T02:30:00Z; g:1: down (why) since 2026-03-01T03:00:00Z"},
	}
	for _, tt := range tests {
		if got := nodesCheck(tt.nodes); got != (check{tt.missing, "lock nodes", tt.says}) {
			t.Errorf("%+v, want missing %t, %s", got, tt.missing, tt.says)
		}
	}
}

func TestUpstreamCheck(t *testing.T) {
	now := time.Now()
	fresh, old := pingState{answered: now.Add(-time.Second)}, pingState{pinging: true, answered: now.Add(-8 * time.Second)}
	failed := pingState{answered: now.Add(-time.Second), err: errors.New("refused")}
	tests := []struct {
		name    string
		masters []pingState
		missing bool
		says    string
	}{
		{"before the first answer", []pingState{{pinging: true}}, true, "not asked yet"},
		{"answers", []pingState{fresh}, false, "answers"},
		{"hangs", []pingState{old}, true, "silent for 8s"},
		{"failed after it had answered", []pingState{failed}, true, "refused"},
		{"no master is known", nil, true, "not asked yet"},
		{"some of a Cluster", []pingState{fresh, failed, old}, false, "1 of 3 masters answer"},
		{"none of a Cluster", []pingState{failed, failed}, true, "refused"},
	}
	for _, tt := range tests {
		w := newPinger(nil, slog.New(slog.DiscardHandler))
		w.now = func() time.Time { return now }
		for _, p := range tt.masters {
			w.masters[upstream.NewPool(upstream.PoolOptions{})] = &p
		}
		if got := w.check(); got != (check{tt.missing, "upstream", tt.says}) {
			t.Errorf("%s: %+v, want missing %t, %q", tt.name, got, tt.missing, tt.says)
		}
	}
}

// TestLogSilence: the log says once that the upstream is silent, and once that it answers again. That it cannot be reached its pool says.
func TestLogSilence(t *testing.T) {
	var log bytes.Buffer
	w := newPinger(nil, slog.New(slog.NewTextHandler(&log, nil)))
	now := time.Now()
	w.now = func() time.Time { return now }
	at := &pingState{answered: now}
	w.masters[upstream.NewPool(upstream.PoolOptions{})] = at
	step := func(change func()) {
		change()
		for range 5 {
			now = now.Add(time.Second)
			w.logSilence()
		}
	}
	step(func() { at.pinging = true })
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, `level=WARN msg="upstream is silent"`) || !strings.Contains(said, "for=3s") {
		t.Errorf("of one that hangs:\n%s", said)
	}
	log.Reset()
	step(func() { at.pinging, at.answered = false, now })
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, `level=INFO msg="upstream is silent no more"`) {
		t.Errorf("of one that answers again:\n%s", said)
	}
	log.Reset()
	step(func() { at.pinging, at.err = false, errors.New("refused") })
	if log.Len() > 0 {
		t.Errorf("of one that cannot be reached:\n%s", &log)
	}
}
