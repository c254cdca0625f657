package quorum

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// handing are the arguments of calls for those of a release and an acquire of one name.
func handing(release, acquire []string) []string {
	return slices.Concat([]string{"release", "2", strconv.Itoa(len(release))}, release, []string{"acquire", "0", strconv.Itoa(len(acquire))}, acquire)
}

// A scriptNode is a simulated node on which nothing but scripts run, for one name, with arguments made up by chance.
type scriptNode struct {
	*simNode
	*rand.Rand
	own []string // of the name, and the node
}

var (
	scriptKeys   = []string{"lockproxy:lock:0:job", "lockproxy:fence:0:job", "lockproxy:node"}
	scriptCommon = []string{"60000", "1000000", "600000", "4 safe list"}
	scriptTags   = []string{"", "AAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBB"}
)

// newScriptNode makes a node whose record lets it vote, mostly.
func newScriptNode(r *rand.Rand) *scriptNode {
	w := &simWorld{began: time.Now(), history: newSimHistory(time.Now())}
	n := &scriptNode{&simNode{w: w, rate: 1, replid: strings.Repeat("a", 40), keys: map[string]*simKey{}}, r, scriptKeys}
	record := []string{"id", n.replid, "since", "0", "until", "0", "sync", "1", "floor", "7", "g", "9", "word", scriptCommon[3], "list", "nodes", "epoch", "0"}
	set := func(field, value string) { record = append(record, field, value) }
	switch n.IntN(25) {
	case 0:
		set("id", strings.Repeat("b", 40))
	case 1:
		set("id", strings.Repeat("b", 40))
		set("word", "4 available list")
	case 2:
		set("word", "4 safe other")
	case 3:
		set("until", n.ms(5000))
	case 4:
		set("sync", "0")
	}
	if n.IntN(2) == 0 {
		set("ttl", n.one("50000", "60000"))
		set("m60000 "+scriptCommon[3], n.ms(-n.Int64N(3000)))
	}
	n.hset(append([]string{scriptKeys[2]}, record...))
	return n
}

// ms is the node's time, and so many ms.
func (n *scriptNode) ms(more int64) string { return strconv.FormatInt(n.micros()/1000+more, 10) }

func (n *scriptNode) one(all ...string) string { return all[n.IntN(len(all))] }

// field is one of the lock record, or another text where there is none.
func (n *scriptNode) field(name, other string) string {
	if v, ok := n.hmget([]string{n.own[0], name}).([]any)[0].(string); ok {
		return v
	}
	return other
}

// hold is the id of one, most often of one that is there.
func (n *scriptNode) hold() string {
	if n.IntN(4) > 0 {
		if there := n.carried(); len(there) > 0 {
			return there[0]
		}
	}
	id := fmt.Sprint("hold", n.IntN(4))
	if tag := n.one(scriptTags...); tag != "" {
		return tag + "." + id
	}
	return id
}

// carried are the holds that are there, and the ms they are said to have left.
func (n *scriptNode) carried() (pairs []string) {
	for _, f := range n.hash(n.own[0]).fields {
		if len(f.name) > 1 {
			pairs = append(pairs, f.name, n.one("1", "20000"))
		}
	}
	return pairs
}

// fence is that of the record, or one more.
func (n *scriptNode) fence() string {
	f, _ := strconv.ParseInt(n.field("f", "0"), 10, 64)
	return strconv.FormatInt(f+n.Int64N(5)/4, 10)
}

func (n *scriptNode) owner() string {
	return n.one(n.field("o", "carol"), n.field("o", "carol"), "alice", "bob")
}

func (n *scriptNode) acquisition() []string {
	how := n.one("plain", "plain", "plain", "alone", "fresh", "replace")
	known, grant := n.one("0", n.fence()), n.one("", n.field("a", ""))
	if how == "replace" {
		grant = n.owner()
	}
	proposal := strconv.FormatInt(n.micros()+n.Int64N(3_000_000)-1_500_000, 10)
	args := []string{n.one("alice", "bob", "carol"), n.one("3", "1000", "60000"), proposal, "info", how, n.hold(), known, grant, "0"}
	if how == "plain" && n.IntN(3) == 0 {
		args = append(args, "hold9", "1000")
	}
	return args
}

func (n *scriptNode) release(how ...string) []string {
	ids := []string{n.hold()}
	if n.IntN(4) == 0 {
		ids = append(ids, n.hold())
	}
	args := []string{n.owner(), n.fence(), n.one(how...), n.one(scriptTags...), n.one("", n.field("a", "")), n.one("first", "second"), n.one("0", "1000", "60000"), strconv.Itoa(len(ids))}
	if args = append(args, ids...); n.IntN(4) == 0 {
		args = append(args, n.carried()...)
	}
	return args
}

func (n *scriptNode) renewal() []string {
	epoch, sequence := n.field("l", "hold1"), n.field("s", "0")
	next, _ := strconv.Atoi(sequence)
	return []string{n.owner(), n.one("3", "1000", "60000"), n.fence(), n.field("a", "hold1"), n.one(epoch, "another"), strconv.Itoa(next + n.IntN(3) - 1),
		n.one("", epoch+":"+sequence), n.one("0", "1"), n.one("0", "1", "2"), n.hold()}
}

// run runs a script on these keys of the node. An error is its text without where it was raised.
func (n *scriptNode) run(s *scripts.Script, args []string) any { return n.runWith(s, nil, args) }

// runWith is run with more keys.
func (n *scriptNode) runWith(s *scripts.Script, more, args []string) any {
	p, err := compileSim(s.Source)
	if err != nil {
		panic(err)
	}
	reply := runSim(n.simNode, p, slices.Concat(n.own, more), slices.Concat(scriptCommon, args))
	if err, failed := reply.(error); failed {
		panic(err)
	}
	return reply
}

// TestHandOver_IsReleaseThenAcquire: handover answers, and leaves behind, what release and acquire do one after the other at one
// instant, whatever is on the node.
func TestHandOver_IsReleaseThenAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hows := []string{"unlock", "handed", "passed", "strict", "finish", "force", "end", "undo"}
		seen := map[string]int{}
		for seed := range 3000 {
			n := newScriptNode(rand.New(rand.NewPCG(uint64(seed), 0)))
			for range n.IntN(8) {
				if n.IntN(3) > 0 {
					n.run(scripts.Acquire, n.acquisition())
				} else {
					n.run(scripts.Release, n.release(hows...))
				}
				time.Sleep(time.Duration(n.IntN(3)) * time.Millisecond)
			}
			release, acquire := n.release(hows...), n.acquisition()
			was := n.copyKeys()
			want := []any{n.run(scripts.Release, release), n.run(scripts.Acquire, acquire)}
			after := n.keys
			n.keys = was
			got := n.run(scripts.Calls, handing(release, acquire))
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(n.keys, after) {
				t.Fatalf("seed %d: release %q, acquire %q: %v, and apart %v\n%s\nand apart\n%s", seed, release, acquire, got, want, shown(n.keys), shown(after))
			}
			for i, r := range want {
				seen[[]string{"release ", "acquire "}[i]+fmt.Sprint(r.([]any)[0])]++
			}
			if want[0].([]any)[0] == int64(1) && want[1].([]any)[0] == int64(1) {
				seen["handed over"]++
			}
		}
		for _, what := range []string{"handed over", "release 0", "release 1", "release 2", "release 3", "release -2", "release -3", "release -4",
			"acquire 0", "acquire 1", "acquire 2", "acquire -2", "acquire -3", "acquire -4"} {
			if seen[what] < 5 {
				t.Errorf("void: %s only %d times: %v", what, seen[what], seen)
			}
		}
	})
}

// TestCalls_AreOneAfterTheOther: calls that are sent as one command answer, and leave behind, what each of them does alone, at one
// instant.
func TestCalls_AreOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reading := nodekeys.Of("lockproxy:", locks.Key{Name: "other", Reader: "alice"})
		names := [][]string{scriptKeys, {"lockproxy:lock:0:other", "lockproxy:fence:0:other", "lockproxy:node"},
			{reading.Lock, reading.Fences, "lockproxy:node", "lockproxy:lock:0:other"}}
		hows := []string{"unlock", "passed", "strict", "finish", "force", "end", "undo"}
		seen := map[string]int{}
		for seed := range 2000 {
			n := newScriptNode(rand.New(rand.NewPCG(uint64(seed), 2)))
			var keys, args []string
			var want []any
			was := n.copyKeys()
			var lasts int
			for i := range 2 + n.IntN(6) {
				name := n.IntN(len(names))
				one := &scriptNode{n.simNode, n.Rand, names[name]}
				brings := "0"
				if i == 0 || name != lasts || n.IntN(2) == 0 {
					its := slices.Clone(names[name])
					if brings = strconv.Itoa(len(its) - 1); i > 0 {
						its = slices.Delete(its, 2, 3)
					}
					keys = append(keys, its...)
				}
				lasts = name
				s := []*scripts.Script{scripts.Acquire, scripts.Release, scripts.Renew}[n.IntN(3)]
				its := one.acquisition
				switch s {
				case scripts.Release:
					its = func() []string { return one.release(hows...) }
				case scripts.Renew:
					its = one.renewal
				}
				own := its()
				reply := one.run(s, own)
				seen[fmt.Sprint(s.Name, " ", reply.([]any)[0])]++
				want = append(want, reply)
				args = append(append(args, s.Name, brings, strconv.Itoa(len(own))), own...)
			}
			after := n.keys
			n.keys = was
			n.own = keys[:3]
			got := n.runWith(scripts.Calls, keys[3:], args)
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(n.keys, after) {
				t.Fatalf("seed %d: %q: %v, and apart %v\n%s\nand apart\n%s", seed, args, got, want, shown(n.keys), shown(after))
			}
		}
		for _, what := range []string{"acquire 0", "acquire 1", "acquire -2", "release 0", "release 1", "renew 0", "renew 1", "renew 3"} {
			if seen[what] < 5 {
				t.Errorf("void: %s only %d times: %v", what, seen[what], seen)
			}
		}
	})
}

// shown lists the keys of a node, a line each, for the message of a test that fails.
func shown(keys map[string]*simKey) string {
	var lines []string
	for name, k := range keys {
		lines = append(lines, fmt.Sprintf("%s: %q %v until %d", name, k.text, k.fields, k.until))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var digits = regexp.MustCompile(`\d{5,}`)

// TestHandOver_OnARealNode: so it is on a server, whose clock goes on between two calls.
func TestHandOver_OnARealNode(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 1)
	s, stop := serveUntil(t, testOptions{Nodes: nodesAt(t, nodes[0].Addr()), NodeTimeout: patient})
	allVote(t, s)
	stop() // it would restore the node that must not vote
	n := redistest.Open(t, nodes[0].Addr())
	round := 100_000
	hold := func(id string) string { return fmt.Sprint(id, round) } // a node knows holds that were given back, of any name
	take := func(owner, id string) []string { return asks(owner, "60000", s.proposal(), hold(id)) }
	for state, holds := range map[string][]string{
		"free":                 {},
		"held":                 {"alice"},
		"held twice":           {"alice", "second"},
		"held by another hold": {"second"},
		"held by another":      {"carol"},
		"held by who is next":  {"bob"},
	} {
		for _, mayVote := range []bool{true, false} {
			said, left := map[bool]string{}, map[bool]string{}
			for _, together := range []bool{false, true} {
				round++
				k := s.RedisKeys(locks.Key{Name: fmt.Sprint(state, mayVote, together)})
				for _, id := range holds {
					owner := strings.Replace(id, "second", "alice", 1)
					n.Do(t, s.Command(scripts.Acquire, k, take(owner, id)...)...)
				}
				n.Do(t, "HSET", k.Node, "ttl", "90000", "m90000 word", inMillis(-time.Second)) // of a proxy with a larger max-ttl
				fence := n.Do(t, "HGET", k.Lock, "f").Int()
				release, acquire := gives("alice", locks.Grant{Fence: fence, Hold: hold("alice")}, "handed", ""), take("bob", "next")
				if !mayVote {
					n.Do(t, "HSET", k.Node, "sync", "0")
				}
				var r, a redistest.Value
				if together {
					v := n.Do(t, s.Command(scripts.Calls, k, handing(release, acquire)...)...)
					if len(v.Elems) != 2 {
						t.Fatal(v)
					}
					r, a = v.Elems[0], v.Elems[1]
				} else {
					r, a = n.Do(t, s.Command(scripts.Release, k, release...)...), n.Do(t, s.Command(scripts.Acquire, k, acquire...)...)
				}
				n.Do(t, "HSET", k.Node, "sync", "1")
				text := func(v redistest.Value) string { return digits.ReplaceAllString(fmt.Sprint(v), "N") }
				said[together] = text(r) + text(a)
				left[together] = text(n.Do(t, "HGETALL", k.Lock)) + text(n.Do(t, "HGETALL", k.Fences))
			}
			if said[true] != said[false] || left[true] != left[false] {
				t.Errorf("%s, votes %v: %s and %s, apart %s and %s", state, mayVote, said[true], left[true], said[false], left[false])
			}
		}
	}
}

// TestHandOver_FullNode: on a node without memory a hand-over is done where it frees the name, since the record that goes is as
// large as the one that comes. Elsewhere nothing of it is done.
func TestHandOver_FullNode(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	g := lock(t, s, "job", "alice", time.Minute)
	n.Do(t, "CONFIG", "SET", "maxmemory", "1")
	hand := func(name string) redistest.Value {
		return n.Do(t, s.Command(scripts.Calls, s.RedisKeys(locks.Key{Name: name}),
			handing(gives("alice", g, "handed", ""), asks("bob", "60000", s.proposal(), "NEXT"))...)...)
	}
	if v := hand("job"); len(v.Elems) != 2 || v.Elems[0].Elems[0].Int() != 1 || v.Elems[1].Elems[0].Int() != 1 {
		t.Error(v)
	}
	v := hand("other")
	for _, e := range v.Elems {
		if !e.IsError() || !strings.Contains(e.Text, "OOM") {
			t.Error(v)
		}
	}
	if n.Do(t, "EXISTS", s.RedisKeys(locks.Key{Name: "other"}).Lock).Int() != 0 {
		t.Error("it was granted all the same")
	}
}

// TestCalls_OneFails: a call about a damaged name stops no other one of its command.
func TestCalls_OneFails(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "warm", "x", time.Minute)
	for _, n := range nodes {
		n.Do(t, "SET", s.RedisKeys(locks.Key{Name: "damaged"}).Lock, "x")
		n.Pause() // so that all wait for its next batch
	}
	names := []string{"a", "damaged", "b", "c"}
	answers := make([]error, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			_, answers[i] = s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: "alice", TTL: time.Minute})
		})
	}
	for _, n := range nodes {
		n.Resume()
	}
	group.Wait()
	for i, name := range names {
		if few := (*locks.QuorumError)(nil); name == "damaged" != errors.As(answers[i], &few) {
			t.Errorf("%s: %v", name, answers[i])
		} else if few != nil && !strings.Contains(few.Error(), "WRONGTYPE") {
			t.Error(few)
		}
	}
}
