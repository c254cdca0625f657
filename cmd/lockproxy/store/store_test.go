package store

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks/etcd"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

func TestChoice(t *testing.T) {
	for text, where := range map[string]string{"nodes": "", "etcd://me:secret@a,b:1/x": "etcd: a:2379 b:1", "etcds://a": "etcd: a:2379"} {
		var c Choice
		if err := c.Read(text); err != nil || c.String() != where || c.IsEtcd() != (where != "") || c.Secure() != strings.HasPrefix(text, "etcds") {
			t.Errorf("%s: %v, %q, etcd %t, secure %t", text, err, c.String(), c.IsEtcd(), c.Secure())
		}
	}
	for _, text := range []string{"", "etcd", "redis://secret@a", "etcd://secret", "etcd://a:secret"} {
		if err := new(Choice).Read(text); text != "etcd://secret" && (err == nil || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestFaults: what means nothing with etcd is refused, and nothing with lock nodes.
func TestFaults(t *testing.T) {
	var nodes, other Choice
	if err := other.Read("etcd://a"); err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"lock-node-file"}, ofNodes...) {
		given := func(n string) bool { return n == name }
		if bad := nodes.Faults(given, true); len(bad) != 0 {
			t.Errorf("%s with lock nodes: %v", name, bad)
		}
		if bad := other.Faults(given, false); len(bad) != 1 || !strings.Contains(bad[0].Error(), strings.TrimSuffix(name, "-file")+" means nothing") {
			t.Errorf("%s with etcd: %v", name, bad)
		}
	}
	none := func(string) bool { return false }
	if bad := other.Faults(none, true); len(bad) != 1 || !strings.Contains(bad[0].Error(), "mode=both") {
		t.Errorf("both: %v", bad)
	}
	if bad := other.Faults(none, false); len(bad) != 0 {
		t.Errorf("nothing given: %v", bad)
	}
}

func TestNew(t *testing.T) {
	var c Choice
	if err := c.Read("etcd://a"); err != nil {
		t.Fatal(err)
	}
	st, err := c.New(voters.Options{}, nil, nil)
	if _, is := st.(*etcd.Store); err != nil || !is {
		t.Errorf("%T, %v", st, err)
	}
}
