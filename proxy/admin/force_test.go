package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// takeAway requests the forced release of a lock.
func takeAway(t *testing.T, d *testServer, body string, header ...string) (int, forceReply) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/page/force", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, text := d.do(t, r)
	var a forceReply
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		a.Says = text
	}
	return resp.StatusCode, a
}

func request(n locks.Key, fence int64, typed string) string {
	b, _ := json.Marshal(forceRequest{ID: nameID(n), Fence: fmt.Sprint(fence), Typed: typed})
	return string(b)
}

func TestForce(t *testing.T) {
	for name, owner := range map[string]string{"lock": "alice", "adopted lock": locks.NewAdoptedString(&locks.RandSource{}, "alice")} {
		t.Run(name, func(t *testing.T) { testForce(t, owner) })
	}
}

// testForce forces a lock whose owner is shown as alice.
func testForce(t *testing.T, owner string) {
	t.Parallel()
	d, _, _ := openReal(t, Options{Force: true, Password: secret}, 3)
	who := []string{"Authorization", basic("ann", secret)}
	n := locks.Key{DB: 1, Name: "job\x00<b>"}
	g := grab(t, d, locks.LockRequest{Key: locks.Key{DB: 1, Name: n.Name}, Owner: owner})
	if code, _ := takeAway(t, d, request(n, g.Fence, `job\x00<b>`), who...); code != http.StatusNotFound {
		t.Errorf("a lock that nobody was told of: %d", code)
	}
	d.look(t, "", who...)
	eventually(t, "the lock is on the page", func() bool { _, ok := d.feed.keyOf(nameID(n)); return ok })

	tests := []struct {
		name, body string
		header     []string
		want       int
		says       string
	}{
		{"no password", request(n, g.Fence, `job\x00<b>`), nil, 401, "admin-password"},
		{"from another site", request(n, g.Fence, `job\x00<b>`), append([]string{"Sec-Fetch-Site", "cross-site"}, who...), 403, "another site"},
		{"as a form", request(n, g.Fence, `job\x00<b>`), append([]string{"Content-Type", "text/plain"}, who...), 415, "application/json"},
		{"no JSON", "{", who, 400, "not a request"},
		{"something else", `{"name":"job"}`, who, 400, "not a request"},
		{"nothing typed", request(n, g.Fence, ""), who, 422, "nothing was done"},
		{"the beginning typed", request(n, g.Fence, "job"), who, 422, "nothing was done"},
		{"the bytes typed, not what is shown", request(n, g.Fence, n.Name), who, 422, "nothing was done"},
		{"no fence", request(n, 0, `job\x00<b>`), who, 400, "not a fence"},
		{"an earlier fence", request(n, g.Fence-1, `job\x00<b>`), who, 409, "moved on: alice has it"},
		{"unknown", request(locks.Key{Name: "other"}, g.Fence, "other"), who, 404, "not on the page"},
	}
	for _, tt := range tests {
		code, a := takeAway(t, d, tt.body, tt.header...)
		if code != tt.want || a.Done || !strings.Contains(a.Says, tt.says) {
			t.Errorf("%s: %d %+v", tt.name, code, a)
		}
	}
	if v, err := d.locks.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{DB: 1, Name: n.Name}, Owner: owner, TTL: g.Validity, Fence: g.Fence}); err != nil {
		t.Fatalf("after all that was refused: %v, %v", v, err)
	}

	code, a := takeAway(t, d, request(n, g.Fence, `job\x00<b>`), who...)
	if code != http.StatusOK || !a.Done || !strings.Contains(a.Says, "taken away from alice") {
		t.Errorf("%d %+v", code, a)
	}
	if in, err := d.locks.Inspect(t.Context(), n); err != nil || in.Held {
		t.Errorf("afterwards: %+v, %v", in, err)
	}
	log := d.log.String()
	for _, want := range []string{"level=WARN", "lock forced", "user=ann", `lock="job\x00<b>"`, "client=127.0.0.1:", fmt.Sprint("fence=", g.Fence), "db=1"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	if strings.Count(log, "lock forced") != 1 || strings.Contains(log, secret) {
		t.Errorf("the log:\n%s", log)
	}
	eventually(t, "it is still known to the page, or not any more", func() bool {
		code, a := takeAway(t, d, request(n, g.Fence, `job\x00<b>`), who...)
		return !a.Done && (code == http.StatusConflict || code == http.StatusNotFound)
	})
}

// TestForce_Readers: all who read a name lose it, under whatever fences; nobody who has it alone does.
func TestForce_Readers(t *testing.T) {
	t.Parallel()
	d, _, _ := openReal(t, Options{Force: true}, 3)
	n := locks.Key{Name: "job"}
	read := func(owner string) locks.Grant {
		return grab(t, d, locks.LockRequest{Key: n, Owner: owner, Shared: true})
	}
	body := func(typed string) string {
		b, _ := json.Marshal(forceRequest{ID: nameID(n), Fence: "0", Readers: true, Typed: typed})
		return string(b)
	}
	read("alice")
	if _, err := d.locks.Unlock(t.Context(), locks.UnlockRequest{Key: n, Owner: "alice", Shared: true}); err != nil {
		t.Fatal(err)
	}
	bob, alice := read("bob"), read("alice")
	if bob.Fence == alice.Fence {
		t.Fatal("one fence of both")
	}
	d.look(t, "")
	eventually(t, "the name is on the page", func() bool { _, ok := d.feed.keyOf(nameID(n)); return ok })
	if code, a := takeAway(t, d, body("jo")); code != http.StatusUnprocessableEntity || a.Done {
		t.Errorf("another name typed: %d %+v", code, a)
	}
	code, a := takeAway(t, d, body("job"))
	if code != http.StatusOK || !a.Done || a.Says != "taken away from 2 who shared it" {
		t.Errorf("two readers: %d %+v", code, a)
	}
	if log := d.log.String(); !strings.Contains(log, "lock forced") || !strings.Contains(log, "readers=2") {
		t.Errorf("the log:\n%s", log)
	}
	if code, a := takeAway(t, d, body("job")); code != http.StatusConflict || a.Done || !strings.Contains(a.Says, "nobody has the lock any more") {
		t.Errorf("nobody reads it: %d %+v", code, a)
	}
	read("bob")
	if code, a := takeAway(t, d, body("job")); code != http.StatusOK || !strings.HasPrefix(a.Says, "taken away from bob, who shared it under fence ") {
		t.Errorf("one reader: %d %+v", code, a)
	}
	carol := grab(t, d, locks.LockRequest{Key: n, Owner: "carol"})
	if code, a := takeAway(t, d, body("job")); code != http.StatusConflict || a.Done || !strings.Contains(a.Says, "moved on: carol has it") {
		t.Errorf("a writer: %d %+v", code, a)
	}
	free(t, d, carol)
}

func TestForce_NotAllowed(t *testing.T) {
	t.Parallel()
	d, _, _ := openReal(t, Options{}, 3)
	n := locks.Key{Name: "job"}
	g := grab(t, d, locks.LockRequest{Key: locks.Key{Name: n.Name}, Owner: "alice"})
	code, a := takeAway(t, d, request(n, g.Fence, "job"))
	if code != http.StatusForbidden || a.Done || !strings.Contains(a.Says, "--admin-force") {
		t.Errorf("%d %+v", code, a)
	}
	if st := nextAs[stateView](d.look(t, ""), "state"); st.Force {
		t.Error("the page is told that it may")
	}
	free(t, d, g)
}
