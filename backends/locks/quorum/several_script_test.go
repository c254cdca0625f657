package quorum

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestAcquireAll_IsAcquireOfEach: where acquire grants each of two names, acquireall does to both what acquire does to each. Else it
// changes neither, and says of each what acquire says, or that it is withheld.
func TestAcquireAll_IsAcquireOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := [2][]string{scriptKeys, {"lockproxy:lock:0:other", "lockproxy:fence:0:other", "lockproxy:node"}}
		hows := []string{"unlock", "strict", "force", "end", "undo"}
		seen := map[string]int{}
		for seed := range 3000 {
			n := newScriptNode(rand.New(rand.NewPCG(uint64(seed), 1)))
			as := func(name int) *scriptNode { return &scriptNode{n.simNode, n.Rand, names[name]} }
			for range n.IntN(8) {
				if one := as(n.IntN(2)); n.IntN(3) > 0 {
					one.run(scripts.Acquire, one.acquisition())
				} else {
					one.run(scripts.Release, one.release(hows...))
				}
				time.Sleep(time.Duration(n.IntN(3)) * time.Millisecond)
			}
			was := n.copyKeys()
			args := [2][]string{as(0).acquisition(), as(1).acquisition()}
			if args[1][5] == args[0][5] { // no two holds have one id
				args[1][5] += "b"
			}
			var want []any
			var apart [2]map[string]*simKey
			for i := range names {
				want = append(want, as(i).run(scripts.Acquire, args[i]))
				apart[i] = n.keys
				n.keys = was
				was = n.copyKeys()
			}
			got := n.runWith(scripts.AcquireAll, names[1][:2], together(args[:])).([]any)
			code := func(reply any) int64 { return reply.([]any)[0].(int64) }
			if code(want[0]) < 0 {
				if seen["abstains"]++; !reflect.DeepEqual(got, want[0]) {
					t.Fatalf("seed %d: %v, alone %v", seed, got, want)
				}
				continue
			}
			all := code(want[0]) == 1 && code(want[1]) == 1
			for i := range names {
				if said := got[i+1]; !reflect.DeepEqual(said, want[i]) && (all || code(want[i]) != 1 || code(said) != 4) {
					t.Fatalf("seed %d, %q: %v, alone %v", seed, args, got, want)
				}
				after, what := apart[i], "granted"
				if !all {
					what = fmt.Sprint("refused ", code(want[i]))
				}
				if seen[what]++; !all && code(want[i]) == 1 {
					after = was
				}
				for _, key := range names[i][:2] {
					if !reflect.DeepEqual(n.lasts(n.keys[key]), n.lasts(after[key])) {
						t.Fatalf("seed %d, %q: %v\n%s\nand apart\n%s", seed, args, got, shown(n.keys), shown(after))
					}
				}
			}
			if others := slices.Sorted(maps.Keys(n.keys)); !all && len(others) > len(was) {
				t.Fatalf("seed %d: %v, and new keys are left: %v", seed, got, others)
			}
		}
		for _, what := range []string{"granted", "refused 0", "refused 1", "refused 2", "abstains"} {
			if seen[what] < 5 {
				t.Errorf("void: %s only %d times: %v", what, seen[what], seen)
			}
		}
	})
}

// lasts is the key, unless it has expired: whoever looks at it next removes it.
func (n *scriptNode) lasts(k *simKey) *simKey {
	if k != nil && k.until != 0 && k.until <= n.micros()/1000 {
		return nil
	}
	return k
}

// together are the arguments of acquireall for those of acquire, with nobody kept out.
func together(args [][]string) []string { return withIntent(0, 0, args) }

func withIntent(ms, since int, args [][]string) []string {
	all := []string{"2", strconv.Itoa(ms), strconv.Itoa(since)}
	for _, a := range args {
		all = append(append(all, strconv.Itoa(len(a))), a...)
	}
	return all
}

// A manyNode is one node whose scripts a test calls about names.
type manyNode struct {
	*testing.T
	s *proxy
	n *redistest.Conn
}

func startManyNode(t *testing.T) *manyNode {
	s, nodes := start(t, 1)
	lock(t, s, "warm", "x", time.Second) // the node has the scripts
	return &manyNode{t, s, redistest.Open(t, nodes[0].Addr())}
}

// all has an owner ask for names, whose holds are called like it and the name. What each name answered is shown by a letter: y granted,
// w withheld, and for a refusal by whom, and why if that is said.
func (m *manyNode) all(owner string, shared bool, ms, since int, names ...string) string {
	m.Helper()
	var each []voters.ScriptCall
	for _, name := range names {
		k := locks.Key{Name: name}
		if shared {
			k.Reader = owner
		}
		args := m.s.Command(scripts.Acquire, m.s.RedisKeys(k), asks(owner, "30000", m.s.proposal(), owner+name)...)
		each = append(each, voters.ScriptCall{Args: args})
	}
	reply := m.n.Do(m.T, voters.AcquireAll(each, strconv.Itoa(ms), strconv.Itoa(since)).Args...)
	var said []string
	for _, v := range reply.Elems[1:] {
		said = append(said, verdict(v))
	}
	return strings.Join(said, " ")
}

// one has an owner ask for one name.
func (m *manyNode) one(owner, name string) string {
	m.Helper()
	return verdict(m.n.Do(m.T, m.s.Command(scripts.Acquire, m.s.RedisKeys(locks.Key{Name: name}), asks(owner, "30000", m.s.proposal(), owner+name)...)...))
}

func verdict(v redistest.Value) string {
	switch v.Elems[0].Int() {
	case 1:
		return "y"
	case 4:
		return "w"
	}
	said := v.Elems[1].Text
	for _, why := range v.Elems[min(4, len(v.Elems)):] {
		said += ":" + why.Text
	}
	return said
}

func (m *manyNode) wants(got, want string) {
	m.Helper()
	if got != want {
		m.Fatalf("%q, want %q", got, want) // what comes next depends on it
	}
}

// gives has an owner give a name back.
func (m *manyNode) gives(owner string, k locks.Key) {
	m.Helper()
	m.release(owner, k, m.n.Do(m.T, "HGET", m.s.RedisKeys(k).Lock, "f").Int(), "unlock")
}

// undoes has the grant of a name undone.
func (m *manyNode) undoes(owner, name string) {
	m.Helper()
	m.release(owner, locks.Key{Name: name}, 0, "undo")
}

func (m *manyNode) release(owner string, k locks.Key, fence int64, how string) {
	m.Helper()
	m.n.Do(m.T, m.s.Command(scripts.Release, m.s.RedisKeys(k), gives(owner, locks.Grant{Fence: fence, Hold: owner + k.Name}, how, "")...)...)
}

// TestAcquireAll_AllOrNothing: of three names on a real node, with a writer or a reader in the way, none is granted.
func TestAcquireAll_AllOrNothing(t *testing.T) {
	t.Parallel()
	m := startManyNode(t)
	m.wants(m.one("bob", "b"), "y")
	m.wants(m.all("alice", false, 0, 0, "a", "b", "c"), "w bob w")
	m.wants(m.all("alice", true, 0, 0, "a", "b", "c"), "w bob w")
	for _, key := range []string{"lockproxy:lock:0:a", "lockproxy:fence:0:a", "lockproxy:lock:0:c", "lockproxy:read:0:1:aalice", "lockproxy:lockr0:a"} {
		if m.n.Do(t, "EXISTS", key).Int() != 0 {
			t.Errorf("%s is there", key)
		}
	}
	m.gives("bob", locks.Key{Name: "b"})
	m.wants(m.all("alice", true, 0, 0, "a", "b", "c"), "y y y")
	m.wants(m.all("carol", true, 0, 0, "b", "d"), "y y")
	m.wants(m.all("bob", false, 0, 0, "e", "c"), "w alice:readers")
	m.wants(m.all("bob", false, 0, 0, "e", "f"), "y y")
	m.wants(m.all("bob", false, 0, 0, "e", "g"), "y y") // enters one, and gets the other
}

// TestAcquireAll_KeepsOut: who is refused and asks for it keeps new owners out of all its names, until that ends, is withdrawn, or what
// was granted is given back. Who has waited longer keeps out the others, in whichever order they ask.
func TestAcquireAll_KeepsOut(t *testing.T) {
	t.Parallel()
	m := startManyNode(t)
	m.wants(m.one("bob", "b"), "y")
	m.wants(m.all("alice", false, 9000, 20, "a", "b"), "w bob")
	m.wants(m.one("carol", "a"), ":intent")
	m.wants(m.all("carol", true, 0, 0, "c", "a"), "y y") // since 0: it has waited for longer than anybody
	m.gives("carol", locks.Key{Name: "a", Reader: "carol"})
	m.wants(m.all("dave", false, 9000, 30, "a", "d"), ":intent w")
	m.wants(m.one("eve", "d"), ":intent")
	m.wants(m.one("dave", "d"), "y")
	m.wants(m.one("bob", "b"), "y") // it has it
	m.wants(m.all("frank", false, 9000, 10, "b", "a"), "bob w")
	m.wants(m.all("alice", false, 9000, 20, "a", "b"), ":intent bob")
	m.n.Do(t, m.s.Command(scripts.DropIntent, m.s.RedisKeys(locks.Key{Name: "a"}), "alice")...)
	m.wants(m.one("carol", "a"), ":intent") // it was frank's
	m.n.Do(t, m.s.Command(scripts.DropIntent, m.s.RedisKeys(locks.Key{Name: "a"}), "frank")...)
	m.wants(m.one("carol", "a"), "y")
	m.gives("bob", locks.Key{Name: "b"})
	m.gives("carol", locks.Key{Name: "a"})
	m.wants(m.one("carol", "b"), ":intent")
	m.wants(m.all("frank", false, 9000, 10, "b", "a"), "y y")
	m.gives("frank", locks.Key{Name: "b"})
	m.wants(m.one("carol", "b"), "y") // a release ends the intent
	m.wants(m.one("bob", "h"), "y")
	m.wants(m.all("dave", false, 9000, 30, "h", "i"), "bob w")
	m.gives("bob", locks.Key{Name: "h"})
	m.wants(m.all("dave", false, 9000, 30, "h", "i"), "y y")
	m.undoes("dave", "i")
	m.wants(m.one("carol", "i"), ":intent") // a grant does not, nor its undo: other nodes may have refused it
	m.n.Do(t, "HSET", "lockproxy:fence:0:j", "x", inMillis(time.Minute)+" 5 frank")
	m.wants(m.one("carol", "j"), "y") // nobody asks for as long: the clock was stepped back
	m.wants(m.all("alice", false, 1, 20, "b", "g"), "carol w")
	eventually(t, time.Minute, "an intent ends by itself", func() bool { return m.one("carol", "g") == "y" })
}
