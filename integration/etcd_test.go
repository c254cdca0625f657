package integration

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// startEtcdRig is proxies that share an etcd of so many members.
func startEtcdRig(t *testing.T, members, proxies int, args ...string) (*rig, []*redistest.Etcd) {
	t.Helper()
	cluster := redistest.StartEtcd(t, members)
	r := &rig{data: redistest.Start(t)}
	args = append([]string{"--lock-store", redistest.EtcdURL(cluster, "rig")}, args...)
	for range proxies {
		r.proxies = append(r.proxies, redistest.StartProxy(t, r.data, nil, args...))
	}
	return r, cluster
}

// TestEtcd_Verbs: what is said of the verbs holds for locks in etcd, too.
func TestEtcd_Verbs(t *testing.T) {
	t.Parallel()
	r, _ := startEtcdRig(t, 1, 2, "--node-timeout", "5s")
	for _, sc := range verbScripts {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, sc)
		})
	}
	if n := r.data.Do(t, "DBSIZE").Text; n != "0" {
		t.Errorf("%s keys were written to the upstream", n)
	}
}

// TestEtcd_Shared: what is said of readers, writers, permits and several names holds for locks in etcd, too, but that readers do not share a fence.
func TestEtcd_Shared(t *testing.T) {
	t.Parallel()
	r, _ := startEtcdRig(t, 1, 2, "--node-timeout", "5s")
	for _, sc := range slices.Concat(sharedScripts, permitScripts, lockAllScripts) {
		sc = fencesApart(sc)
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, sc)
		})
	}
}

// fencesApart is a script of readers in which each grant has a fence of its own, larger than those before.
func fencesApart(sc script) script {
	granted := regexp.MustCompile(`^\*\[:<(\w+)> \$("[^"]+") :<`)
	several := regexp.MustCompile(`^\*\[:<_> \$("[^"]+") \*.* :<([a-z]\w*)> :1\]`) // the last one
	whose := map[string]string{}
	var steps []step
	for i, st := range sc.steps {
		m := granted.FindStringSubmatch(st.want)
		if of := several.FindStringSubmatch(st.want); of != nil {
			m = []string{of[0], of[2], of[1]}
		}
		if m == nil || m[1] == "_" {
			steps = append(steps, st)
			continue
		}
		owner := fmt.Sprint(m[2], strings.Contains(st.command, "SHARED"))
		if first, bound := whose[m[1]]; !bound || first == owner {
			whose[m[1]] = owner
			steps = append(steps, st)
			continue
		}
		own := fmt.Sprint(m[1], i)
		st.want = strings.Replace(st.want, "<"+m[1]+">", "<"+own+">", 1)
		steps = append(steps, st, step{"less", m[1] + " " + own, ""})
	}
	return script{sc.name, steps}
}

// TestEtcd_HandOver: waiters at two proxies get the name one after the other, with larger fences, and a holder whose process is
// killed does not hold it up.
func TestEtcd_HandOver(t *testing.T) {
	t.Parallel()
	r, _ := startEtcdRig(t, 1, 2, "--node-timeout", "5s")
	kill := holdInProcess(t, r.addr(), "job")
	replies := make(chan redistest.Value, 6)
	for i := range 6 {
		go func() {
			c, err := redistest.Dial(r.proxies[i%2].Addr())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			v, err := c.Try("LOCK", "job", "30s", "OWNER", fmt.Sprint("w", i), "WAIT", "5m")
			if err != nil {
				t.Error(err)
			}
			replies <- v
			if v, err = c.Try("UNLOCK", "job", fmt.Sprint("w", i)); err != nil || v.Text != "1" {
				t.Errorf("UNLOCK: %v, %v", v, err)
			}
		}()
	}
	redistest.Eventually(t, time.Minute, "six wait", func() bool {
		n := 0
		for _, p := range r.proxies {
			n += len(redistest.Open(t, p.Addr()).Do(t, "LOCKCTL", "WAITERS", "job").Elems)
		}
		return n == 6
	})
	kill()
	var fences []string
	for range 6 {
		v := <-replies
		if len(v.Elems) != 4 {
			t.Fatalf("LOCK: %v", v)
		}
		fences = append(fences, v.Elems[0].Text)
	}
	if !slices.IsSorted(fences) || len(slices.Compact(fences)) != 6 {
		t.Errorf("fences %v", fences)
	}
}

// TestEtcd_Ctl: LOCKCTL lists, shows and forces locks of etcd, and names its members.
func TestEtcd_Ctl(t *testing.T) {
	t.Parallel()
	r, cluster := startEtcdRig(t, 3, 2, "--node-timeout", "5s")
	for _, p := range r.proxies {
		c := redistest.Open(t, p.Addr())
		redistest.Eventually(t, time.Minute, "all members are shown to vote", func() bool {
			v := c.Do(t, "LOCKCTL", "NODES")
			return nodesField(v, "voting").Text == "3" && strings.Contains(v.String(), cluster[2].Addr()) && strings.Contains(v.String(), `"kind" $"etcd"`)
		})
	}
	for _, sc := range lockctlScripts {
		t.Run(sc.name, func(t *testing.T) { r.run(t, sc) })
	}
	c := redistest.Open(t, r.proxies[1].Addr())
	c.Do(t, "LOCK", "listed", "30s", "OWNER", "me")
	if v := redistest.Open(t, r.addr()).Do(t, "LOCKCTL", "LIST", "MATCH", "list*"); !strings.Contains(v.String(), `"listed"`) {
		t.Errorf("LIST: %v", v)
	}
}

// TestEtcd_MembersFail: one member of three may be killed or hang; without a majority a LOCK is told NOQUORUM, and not null. A member that
// wakes and does a LOCK which is over gives nobody the name.
func TestEtcd_MembersFail(t *testing.T) {
	t.Parallel()
	r, cluster := startEtcdRig(t, 3, 2, "--node-timeout", "1s")
	c := redistest.Open(t, r.addr())
	granted := func(owner string) {
		t.Helper()
		redistest.Eventually(t, time.Minute, "a grant to "+owner, func() bool { return len(c.Do(t, "LOCK", "job", "1m", "OWNER", owner).Elems) == 4 })
		redistest.Eventually(t, time.Minute, "its release", func() bool {
			v := c.Do(t, "UNLOCK", "job", owner, "ALL")
			return v.Text == "1" || strings.HasPrefix(v.Text, "LOCKLOST ")
		})
	}
	granted("one")
	cluster[0].Kill()
	granted("two")
	if err := cluster[0].Restart(); err != nil {
		t.Fatal(err)
	}
	cluster[1].Pause()
	granted("three")
	cluster[2].Kill()
	v := c.Do(t, "LOCK", "job", "10s", "OWNER", "four")
	if !strings.HasPrefix(v.Text, "NOQUORUM ") || !strings.Contains(v.Text, cluster[2].Addr()) {
		t.Errorf("LOCK without a majority: %v", v)
	}
	cluster[1].Resume()
	granted("five")
}

// TestEtcd_RequestsThroughOthers: a LOCK and an UNLOCK that are sent again through the other proxy are done once.
func TestEtcd_RequestsThroughOthers(t *testing.T) {
	t.Parallel()
	r, _ := startEtcdRig(t, 1, 2, "--node-timeout", "5s")
	r.run(t, script{"requests", []step{
		{"a", "LOCK <job> 30s OWNER me REQ x", `*[:<f> $"me" :<29000..29999> :1]`},
		{"other.a", "LOCK <job> 30s OWNER me REQ x", `*[:<f> $"me" :<29000..29999> :1]`},
		{"other.a", "UNLOCK <job> me REQ x", ":1"},
		{"a", "UNLOCK <job> me REQ x", ":1"},
		{"a", "LOCK <job> 30s OWNER me REQ x", `*[:<f> $"me" :0 :0]`},
		{"b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
		{"less", "f g", ""},
		{"a", "LOCK <job> 30s OWNER me REQ x", `*[:<f> $"me" :0 :0]`},
		{"a", "UNLOCK <job> me REQ x", ":1"},
	}})
}

// TestEtcd_Refused: settings that mean nothing with etcd, and what it does not have, are refused at the start, all at once.
func TestEtcd_Refused(t *testing.T) {
	t.Parallel()
	path, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := exec.Command(path, "serve", "--upstream", "a:1", "--lock-store", "etcd://me:secret@h:1/x", "--lock-node", "b:1", "--replica-acks", "1", "--adopt", "x mode=both").CombinedOutput() // how it ends is not the point
	out := string(text)
	for _, want := range []string{"lock-node, replica-acks means nothing", "mode=both"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "secret") {
		t.Errorf("a password is in\n%s", out)
	}
}

// TestEtcd_TLS: over TLS, etcd must show a certificate of tls-ca, and is shown tls-server-cert.
func TestEtcd_TLS(t *testing.T) {
	t.Parallel()
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "etcd")
	own, ownKey := ca.Issue(t, "proxy")
	member := redistest.StartEtcd(t, 1)[0]
	plain, err := url.Parse("http://" + member.Addr())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pass := httputil.NewSingleHostReverseProxy(plain)
	pass.FlushInterval = -1
	front := httptest.NewUnstartedServer(pass)
	front.Config.ErrorLog = log.New(io.Discard, "", 0) // a line for each handshake that is to fail
	front.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	front.StartTLS()
	t.Cleanup(front.Close)
	data := redistest.Start(t)
	store := "etcds://" + strings.TrimPrefix(front.URL, "https://") + "/tls"
	a := redistest.StartProxy(t, data, nil, "--node-timeout", "5s", "--lock-store", store, "--tls-ca", ca.File, "--tls-server-cert", own, "--tls-server-key", ownKey)
	c := redistest.Open(t, a.Addr())
	wantGrant(t, c.Do(t, "LOCK", "job", "30s", "OWNER", "me"))
	b := redistest.StartProxy(t, data, nil, "--node-timeout", "5s", "--lock-store", store, "--tls-ca", ca.File) // without a certificate
	if v := redistest.Open(t, b.Addr()).Do(t, "LOCK", "job", "30s"); !strings.HasPrefix(v.Text, "NOQUORUM") {
		t.Errorf("LOCK without a certificate: %v", v)
	}
	stranger := redistest.NewAuthority(t)
	b = redistest.StartProxy(t, data, nil, "--node-timeout", "5s", "--lock-store", store, "--tls-ca", stranger.File)
	if v := redistest.Open(t, b.Addr()).Do(t, "LOCK", "job", "30s"); !strings.HasPrefix(v.Text, "NOQUORUM") {
		t.Errorf("LOCK at an etcd whose certificate nobody vouches for: %v", v)
	}
}

// TestEtcd_Adopted: lock code of old is decided by etcd, with an expiry and without one.
func TestEtcd_Adopted(t *testing.T) {
	t.Parallel()
	r, _ := startEtcdRig(t, 1, 2, "--node-timeout", "5s", "--adopt", "lock:*")
	a, b := redistest.Open(t, r.proxies[0].Addr()), redistest.Open(t, r.proxies[1].Addr())
	for _, s := range []struct {
		c    *redistest.Conn
		args []string
		want string
	}{
		{a, []string{"SET", "lock:a", "mine", "NX", "PX", "30000"}, `+OK`},
		{b, []string{"SET", "lock:a", "yours", "NX", "PX", "30000"}, `$-1`},
		{b, []string{"GET", "lock:a"}, `$"mine"`},
		{b, []string{"EVAL", redistest.CompareAndDelete, "1", "lock:a", "yours"}, `:0`},
		{b, []string{"EVAL", redistest.CompareAndDelete, "1", "lock:a", "mine"}, `:1`},
		{b, []string{"SETNX", "lock:a", "yours"}, `:1`},
		{a, []string{"SETNX", "lock:a", "mine"}, `:0`},
		{a, []string{"TTL", "lock:a"}, `:-1`},
		{a, []string{"DEL", "lock:a"}, `:1`},
		{a, []string{"GET", "lock:a"}, `$-1`},
	} {
		if v := s.c.Do(t, s.args...); v.String() != s.want {
			t.Errorf("%v: %v, want %s", s.args, v, s.want)
		}
	}
	if n := r.data.Do(t, "DBSIZE").Text; n != "0" {
		t.Errorf("%s keys were written to the upstream", n)
	}
}
