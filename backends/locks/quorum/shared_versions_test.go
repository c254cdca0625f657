package quorum

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestShared_OlderProxiesAreKeptOut: from the first reader on a node is in no set that a proxy knows which does not know of
// readers: such a one compares its word with what the node keeps. It stays so whatever is stored in the record later.
func TestShared_OlderProxiesAreKeptOut(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	n := redistest.Open(t, nodes[0].Addr())
	ours := s.set.NodeList.Fingerprint
	kept := func(format string) string { return format + ours[1:] }
	word := func(field string) string { return n.Do(t, "HGET", "lockproxy:node", field).Text }
	k := s.RedisKeys(locks.Key{Name: "job"})
	n.Do(t, "HSET", k.Node, "word", kept("2"), "m60000 "+kept("2"), inMillis(time.Hour)) // a proxy of an older version is there, for as long as the test
	g := lock(t, s, "job", "alice", time.Minute)
	unlock(t, s, "job", "alice", 0)
	n.Do(t, s.Command(scripts.State, k, "")...)
	if word("word") != kept("2") {
		t.Fatalf("without readers the node keeps %q", word("word"))
	}
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", Shared: true, TTL: time.Minute})
	if err != nil || !a.Granted || a.Grant.Fence < g.Fence {
		t.Fatalf("%+v, %v", a, err)
	}
	older := func(what string) {
		t.Helper()
		for _, field := range []string{"word", "next"} {
			if kept := word(field); kept != "" && !strings.HasPrefix(kept, "3 ") {
				t.Errorf("%s: the node keeps %s %q", what, field, kept)
			}
		}
	}
	reads := s.RedisKeys(locks.Holder{Key: locks.Key{Name: "job"}, Owner: "bob"}.Reading().Key).Lock
	eventually(t, patient, "the node has the reader", func() bool { return n.Do(t, "EXISTS", reads).Int() == 1 })
	older("after a reader")
	lock(t, s, "other", "alice", time.Minute) // this proxy is in the set still
	if v := n.Do(t, s.Command(scripts.State, k, "")...); v.Elems[4].Text != ours {
		t.Errorf("the state is told as %v", v)
	}
	v := n.Do(t, s.Command(scripts.Change, k, "set", "1", ours, "list", ours+"0", "next list")...)
	for i, e := range v.Elems {
		if (e.Text == "word" || e.Text == "next") && !strings.HasPrefix(v.Elems[i+1].Text, "4 ") {
			t.Errorf("a change is told %v", v.Elems[i+1])
		}
	}
	if older("after a change"); word("next") != kept("3")+"0" {
		t.Errorf("the next set is kept as %q", word("next"))
	}
	n.Do(t, "HSET", "lockproxy:node", "word", strings.Replace(kept("3"), " safe ", " available ", 1))
	lock(t, s, "third", "alice", time.Minute)
	eventually(t, patient, "the stricter word is kept", func() bool { return word("word") == kept("3") })

	held := s.Command(scripts.Held, nodekeys.OfNode("lockproxy:"), "0", "lockproxy:*", "10")
	if v := n.Do(t, held...); v.Elems[0].Int() != 0 {
		t.Errorf("beside an older proxy a node that forgot is told %v", v)
	}
	n.Do(t, "HDEL", k.Node, "m60000 "+kept("2"))
	eventually(t, patient, "without the older proxy the node is in a set that no older proxy knows", func() bool {
		return word("word") == kept("4") && word("next") == kept("4")+"0"
	})
	lock(t, s, "fourth", "alice", time.Minute)
	if v := n.Do(t, held...); v.Elems[0].Int() != 1 {
		t.Errorf("without one it is told %v", v)
	}
}
