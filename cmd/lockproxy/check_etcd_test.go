package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/check"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// tellEtcd sends a member a message of the gateway, and returns the answer.
func tellEtcd(t *testing.T, m *redistest.Etcd, path, body string) string {
	t.Helper()
	resp, err := http.Post("http://"+m.Addr()+"/v3/"+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// findsInEtcd is what check finds, the worst first, with an upstream without a fault and this store.
func findsInEtcd(t *testing.T, store string) string {
	t.Helper()
	r, code := runCheck(t, "--upstream", redistest.Start(t).URL(), "--node-timeout", "10s", "--lock-store", store)
	if want := codeOf(r); code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
	var all []string
	for _, f := range r.Findings {
		if f.ID != "exposed" { // a password on the command line
			all = append(all, string(f.Severity)+" "+f.ID)
		}
	}
	return strings.Join(all, ", ")
}

func TestCheckEtcd(t *testing.T) {
	m := redistest.StartEtcd(t, 1)[0]
	url := redistest.EtcdURL([]*redistest.Etcd{m}, "test")
	revision := regexp.MustCompile(`"revision":"\d+"`)
	before := revision.FindString(tellEtcd(t, m, "kv/range", `{"key":"eA=="}`))
	code, stdout, stderr := execute(t, nil, "check", "--upstream", redistest.Start(t).URL(), "--node-timeout", "10s", "--lock-store", url)
	looked := regexp.MustCompile(`(?m)^looked at etcd member ` + m.Addr() + `: etcd \d+\.\d+\.\d+, round trip \d+\.\d\dms, longest \d+\.\d\dms$`)
	if code != exit.OK || !looked.MatchString(stdout) || !strings.Contains(stdout, "note: etcd: one member is named") || strings.Contains(stdout, "lock nodes") || stderr != "" {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
	if after := revision.FindString(tellEtcd(t, m, "kv/range", `{"key":"eA=="}`)); after != before || before == "" {
		t.Errorf("it changed etcd: %s is %s", before, after)
	}
	twice := strings.Replace(url, m.Addr(), m.Addr()+","+strings.Replace(m.Addr(), "127.0.0.1", "localhost", 1), 1)
	if got := findsInEtcd(t, twice); got != "error same-server, warning number" {
		t.Error(got)
	}
	other := redistest.StartEtcd(t, 1)[0]
	if got := findsInEtcd(t, redistest.EtcdURL([]*redistest.Etcd{m, other}, "test")); !strings.HasPrefix(got, "error other-cluster, warning number") {
		t.Error(got)
	}
}

// TestCheckEtcd_MembersFail: one of three that is down is told of, and then that nobody gets a lock.
func TestCheckEtcd_MembersFail(t *testing.T) {
	members := redistest.StartEtcd(t, 3)
	url := redistest.EtcdURL(members, "test")
	if got := findsInEtcd(t, url); got != "warning one-machine" {
		t.Error(got)
	}
	members[1].Kill()
	redistest.Eventually(t, time.Minute, "the others have a leader", func() bool { return findsInEtcd(t, url) == "error unreachable, warning one-machine" })
	members[2].Kill()
	redistest.Eventually(t, time.Minute, "the last one knows of no leader", func() bool {
		return findsInEtcd(t, url) == "error unreachable, error unreachable, error no-leader, error quorum, warning one-machine" ||
			findsInEtcd(t, url) == "error no-leader, error unreachable, error unreachable, error quorum, warning one-machine"
	})
}

func TestCheckEtcd_Users(t *testing.T) {
	m := redistest.StartEtcd(t, 1)[0]
	for _, call := range [][2]string{
		{"auth/user/add", `{"name":"root","password":"rootsecret"}`}, {"auth/role/add", `{"name":"root"}`}, {"auth/user/grant", `{"user":"root","role":"root"}`},
		{"auth/role/add", `{"name":"locks"}`}, {"auth/user/add", `{"name":"proxy","password":"x"}`}, {"auth/user/add", `{"name":"reader","password":"x"}`},
		{"auth/role/grant", `{"name":"locks","perm":{"permType":"READWRITE","key":"dGVzdC8=","range_end":"dGVzdDA="}}`}, // test/ to test0
		{"auth/role/add", `{"name":"look"}`}, {"auth/role/grant", `{"name":"look","perm":{"permType":"READ","key":"dGVzdC8=","range_end":"dGVzdDA="}}`},
		{"auth/user/grant", `{"user":"proxy","role":"locks"}`}, {"auth/user/grant", `{"user":"reader","role":"look"}`}, {"auth/enable", `{}`},
	} {
		tellEtcd(t, m, call[0], call[1])
	}
	for user, want := range map[string]string{"proxy:x@": "note number", "proxy:wrong@": "error auth, note number", "reader:x@": "error auth, note number", "": "error auth, note number"} {
		if got := findsInEtcd(t, "etcd://"+user+m.Addr()+"/test"); got != want {
			t.Errorf("%s: %s, want %s", user, got, want)
		}
	}
}

// TestCheckEtcd_Damaged: a key of a lock that cannot be read is named, whatever it is of the lock, and wherever among the others; keys of other programs are not.
func TestCheckEtcd_Damaged(t *testing.T) {
	m := redistest.StartEtcd(t, 1)[0]
	url := redistest.EtcdURL([]*redistest.Etcd{m}, "test")
	data := redistest.Start(t)
	c := redistest.Open(t, redistest.StartProxy(t, data, nil, "--lock-store", url, "--node-timeout", "10s", "--max-ttl", "1h").Addr())
	c.Do(t, "LOCK", "job", "10m", "OWNER", "a", "REQ", "r")
	c.Do(t, "LOCK", "other", "10m", "OWNER", "a", "REQ", "r")
	c.Do(t, "UNLOCK", "other", "a", "REQ", "r")
	c.Do(t, "LOCK", "read", "10m", "OWNER", "a", "PERMITS", "2")
	text := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	put := func(key, value string) {
		t.Helper()
		if said := tellEtcd(t, m, "kv/put", fmt.Sprintf(`{"key":%q,"value":%q}`, text(key), text(value))); !strings.Contains(said, "revision") {
			t.Fatal(said)
		}
	}
	for i := range 1100 {
		put(fmt.Sprint("test/lock/", i), "theirs")
	}
	put("test/theirs", "theirs")
	if got := findsInEtcd(t, url); got != "note number" {
		t.Error(got)
	}
	var all struct{ Kvs []struct{ Key, Value []byte } }
	if err := json.Unmarshal([]byte(tellEtcd(t, m, "kv/range", fmt.Sprintf(`{"key":%q,"range_end":%q}`, text("test/"), text("test0")))), &all); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, kv := range all.Kvs {
		key := string(kv.Key)
		kind := strings.Split(key, "/")[1]
		if len(kv.Value) == 0 || kv.Value[0] != '{' || kind == "owner" || kind == "cut" || kind == "notice" {
			continue
		}
		kinds[kind] = true
		put(key, "theirs")
		r, _ := runCheck(t, "--upstream", data.URL(), "--node-timeout", "10s", "--lock-store", url)
		if i := slices.IndexFunc(r.Findings, func(f check.Finding) bool { return f.ID == "damaged" }); i < 0 || !strings.Contains(r.Findings[i].Problem, key) {
			t.Errorf("%s: %+v", key, r.Findings)
		}
		put(key, string(kv.Value))
	}
	if len(kinds) != 4 {
		t.Errorf("keys of %v", kinds)
	}
}

func TestCheckEtcd_Space(t *testing.T) {
	m := redistest.StartEtcd(t, 1, "--quota-backend-bytes", "200000")[0]
	redistest.Eventually(t, time.Minute, "it is full", func() bool {
		return strings.Contains(tellEtcd(t, m, "kv/put", `{"key":"eA==","value":"`+strings.Repeat("eHh4", 4000)+`"}`), "space")
	})
	redistest.Eventually(t, time.Minute, "it says so", func() bool {
		return findsInEtcd(t, redistest.EtcdURL([]*redistest.Etcd{m}, "test")) == "error space, note number"
	})
}
