package integration

import (
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// clusterFamilies of the grammar mean the same in a Cluster.
var clusterFamilies = []string{"strings", "bits", "lists", "hashes", "sets", "sorted sets", "streams", "hyperloglogs", "geo", "scripts", "keys", "types", "transactions", "blocking", "connection"}

// notInCluster are templates of theirs that do not: several databases, patterns of
// SORT, what is one node's, and CLIENT REPLY.
var notInCluster = regexp.MustCompile(`\{d\}|SORT.* (BY|GET)|SWAPDB|REDIRECT|^=?KEYS|EVALSHA e0|AUTH|ACL`)

// anyKey are the keys that the grammar makes.
var anyKey = regexp.MustCompile(`^([slhitzxpg][123]|none)$`)

// splitCommands are the commands that may have keys of several slots.
var splitCommands = []string{"MGET", "MSET", "DEL", "UNLINK", "EXISTS", "TOUCH"}

// keyWords are the words of a template that become keys.
var keyWords = regexp.MustCompile(`\{([slhitzxpg]|any)\}`)

// ofAllNodes are templates of what cannot be part of a transaction.
var ofAllNodes = regexp.MustCompile(`^=?(SCRIPT (LOAD|EXISTS|FLUSH|KILL)|FUNCTION (LOAD|DELETE)|HELLO|RESET)`)

// newClusterStream is newStream with keys that a Cluster takes: those of a command, or
// of a transaction, belong together, unless it is one that is split.
func newClusterStream(seed uint64) stream {
	s := &speaker{Rand: rand.New(rand.NewPCG(seed, 2))}
	names := slices.Clone(clusterFamilies)
	s.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = append(names[:1+s.IntN(6)], "keys", "transactions")
	st := stream{seed: seed}
	inTx, tag, watched := false, "", "" // the latter: the tag of keys that are watched
	for range 20 + s.IntN(120) {
		family := grammar[s.one(names...)]
		template := family[s.IntN(len(family))]
		if notInCluster.MatchString(template) || inTx && ofAllNodes.MatchString(template) {
			continue
		}
		args := s.sayRight(template)
		if !inTx && len(keyWords.FindAllString(template, -1)) < 2 && args[0] != "PFCOUNT" && args[0] != "WATCH" { // or a wrong key would be of another slot
			args = s.say(template)
		}
		if !inTx {
			tag = s.one("{a}", "{b}", "{c}", "{d}")
		}
		if watched != "" && (args[0] == "WATCH" || args[0] == "MULTI") {
			tag = watched
		}
		for i, a := range args {
			switch {
			case !anyKey.MatchString(a):
			case !inTx && slices.Contains(splitCommands, args[0]):
				args[i] = s.one("", "{a}", "{b}", "{c}") + a
			default:
				args[i] = tag + a
			}
		}
		switch {
		case args[0] == "WATCH":
			watched = tag
		case len(args) > 1:
		case args[0] == "MULTI":
			inTx = true
		case args[0] == "EXEC" || args[0] == "DISCARD":
			inTx = false
		}
		st.commands = append(st.commands, args)
	}
	return st
}

// TestClusterRandomStreams: what a plain Redis answers, byte for byte, a Cluster
// answers through the proxy, as long as keys that are used together belong together.
func TestClusterRandomStreams(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0, impatient...)
	p := startServing(t, cluster.URL())
	w := &twin{plain: redistest.Start(t, impatient...), behind: cluster.Nodes[0], via: p.Addr()}
	if s := os.Getenv(seedVariable); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		w.hold(t, newClusterStream(seed))
		return
	}
	n := 0
	for until := time.Now().Add(randomTime(t)); time.Now().Before(until) && !t.Failed(); n++ {
		w.hold(t, newClusterStream(rand.Uint64()))
	}
	t.Logf("%d streams", n)
}
