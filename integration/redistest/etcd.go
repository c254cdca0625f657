package redistest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// etcdVariable names the etcd that is started, a file or a name in PATH; unset, it is etcd.
const etcdVariable = "LOCKPROXY_ETCD"

// An Etcd is one real member of an etcd cluster, with a directory of its own.
type Etcd struct {
	process
	Dir string
}

// StartEtcd starts a cluster of n members, which elects a new leader within a second or two. It ends with the test. A
// machine without etcd skips the test, unless LOCKPROXY_ETCD is set.
func StartEtcd(tb testing.TB, n int, args ...string) []*Etcd {
	tb.Helper()
	skipQuick(tb)
	path, err := exec.LookPath(cmp.Or(os.Getenv(etcdVariable), "etcd"))
	if err != nil {
		if os.Getenv(etcdVariable) == "" {
			tb.Skip("etcd is not installed: .ci/debian-install etcd-server")
		}
		tb.Fatal(err)
	}
	for range 5 { // a port may be taken between its choice and its use
		all, problem := launchEtcd(tb, path, n, args)
		if problem == nil {
			return all
		}
		err = problem
	}
	tb.Fatal(err)
	return nil
}

func launchEtcd(tb testing.TB, path string, n int, args []string) (all []*Etcd, err error) {
	var cluster, peers []string
	for i := range n {
		addr, err := FreeAddr()
		peer, alsoErr := FreeAddr()
		dir, dirErr := os.MkdirTemp("", "redistest-etcd-")
		if err := errors.Join(err, alsoErr, dirErr); err != nil {
			return nil, err
		}
		all = append(all, &Etcd{Dir: dir, process: process{path: path, dir: dir, addr: addr}})
		peers = append(peers, "http://"+peer)
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, peer))
	}
	for i, m := range all {
		tb.Cleanup(m.Close)
		m.args = append([]string{
			"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(m.Dir, "data"),
			"--listen-client-urls", "http://" + m.addr, "--advertise-client-urls", "http://" + m.addr,
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new", "--initial-cluster-token", peers[0],
		}, args...)
	}
	failed := make(chan error, n)
	for _, m := range all {
		go func() { failed <- m.Restart() }()
	}
	for range all {
		err = errors.Join(err, <-failed)
	}
	if err != nil {
		for _, m := range all {
			m.Close()
		}
	}
	return all, err
}

// Restart starts the member again, on the same ports and in the same directory. It returns when the member has a leader.
func (m *Etcd) Restart() error { return m.start(m.answers) }

// Close ends the member and removes its directory.
func (m *Etcd) Close() {
	m.Kill()
	_ = os.RemoveAll(m.Dir)
}

func (m *Etcd) answers() error {
	c := http.Client{Timeout: time.Second}
	resp, err := c.Post("http://"+m.addr+"/v3/maintenance/status", "application/json", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && (!strings.Contains(string(text), `"leader":"`) || strings.Contains(string(text), `"leader":"0"`)) {
		err = fmt.Errorf("no leader: %s", text)
	}
	return err
}

// EtcdURL is the cluster as --lock-store takes it, with a prefix.
func EtcdURL(members []*Etcd, prefix string) string {
	var all []string
	for _, m := range members {
		all = append(all, m.Addr())
	}
	return "etcd://" + strings.Join(all, ",") + "/" + prefix
}

// Replace has another member of the cluster take this one out, and lets it in again as a new one, which knows nothing, on the same ports. etcd
// refuses both until its members have been connected for some seconds.
func (m *Etcd) Replace(by *Etcd) error {
	var list struct{ Members []struct{ ID, Name string } }
	if err := by.Ask("cluster/member/list", "{}", &list); err != nil {
		return err
	}
	i := slices.IndexFunc(list.Members, func(x struct{ ID, Name string }) bool { return x.Name == m.args[1] })
	if i < 0 {
		return errors.New("it is no member")
	}
	insist := func(path, body string) (err error) {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if err = by.Ask(path, body, &struct{}{}); err == nil || strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "already exist") {
				return nil
			}
		}
		return err
	}
	if err := insist("cluster/member/remove", fmt.Sprintf(`{"ID":%q}`, list.Members[i].ID)); err != nil {
		return err
	}
	m.Kill()
	peer := m.args[slices.Index(m.args, "--initial-advertise-peer-urls")+1]
	m.args[slices.Index(m.args, "--initial-cluster-state")+1] = "existing"
	return errors.Join(os.RemoveAll(filepath.Join(m.Dir, "data")), insist("cluster/member/add", fmt.Sprintf(`{"peerURLs":[%q]}`, peer)), m.Restart())
}

// Ask sends the member a message of the gateway.
func (m *Etcd) Ask(path, body string, answer any) error {
	c := http.Client{Timeout: 10 * time.Second}
	resp, err := c.Post("http://"+m.addr+"/v3/"+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, text)
	}
	return errors.Join(err, json.Unmarshal(text, answer))
}
