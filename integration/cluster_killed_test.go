package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// failoverErrors are the errors that clients may get while a master is down.
var failoverErrors = []string{"-UPSTREAMDOWN ", "-CLUSTERDOWN "}

func isTrouble(reply string) bool {
	for _, t := range failoverErrors {
		if strings.HasPrefix(reply, t) {
			return true
		}
	}
	return false
}

// shaken counts in a pipeline, whatever happens to the nodes: what is answered with a
// number must be larger than the number before, unless a write was lost with a master.
func shaken(keys []string, mayLose func(key string) bool, well chan<- time.Time) worker {
	return func(l *slotLoad, c *redistest.Conn) string {
		last := map[string]int64{}
		for !l.stopped() {
			var in strings.Builder
			var sent []string
			for range 40 {
				k := keys[rand.IntN(len(keys))]
				sent = append(sent, k)
				in.WriteString(redistest.Command("INCR", k))
			}
			in.WriteString(redistest.Command(append([]string{"MGET"}, keys...)...) + lines("PING"))
			if _, err := c.Write([]byte(in.String())); err != nil {
				return err.Error()
			}
			errors := 0
			for _, k := range append(sent, "MGET", "PING") {
				v, err := c.Next()
				if err != nil {
					return err.Error()
				}
				l.replies.Add(1)
				switch {
				case v.IsError() && isTrouble(v.String()):
					errors++
				case k == "MGET" && v.Kind == '*' && len(v.Elems) == len(keys), k == "PING" && v.Text == "PONG":
				case v.Kind != ':':
					return fmt.Sprintf("%s: %v", k, v)
				case v.Int() <= last[k] && !mayLose(k):
					return fmt.Sprintf("%s counted %d after %d", k, v.Int(), last[k])
				default:
					last[k] = v.Int()
				}
			}
			if errors == 0 {
				select {
				case well <- time.Now():
				default:
				}
			} else {
				time.Sleep(5 * time.Millisecond)
			}
		}
		return ""
	}
}

// TestClusterMasterKilled: pipelines and blocking commands of many kinds of clients go
// through the death of a master with errors for as long as nobody has taken over; all
// clients stay connected, but for those that listened at the master.
func TestClusterMasterKilled(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no") // or who waits elsewhere is told that the cluster is down
	p := startServing(t, cluster.URL())
	l := startSlotLoad(t, p.Addr())
	lost := cluster.Nodes[1]
	var wells []chan time.Time
	for i := range 6 {
		var keys []string
		on := map[string]bool{} // the master that dies
		for j := range 9 {
			k := fmt.Sprint("shaken:", i, ":", j)
			keys = append(keys, k)
			on[k] = cluster.Owner(t, cluster.SlotOf(t, k)) == lost
		}
		well := make(chan time.Time, 1)
		wells = append(wells, well)
		l.add("counter", i%2 == 1, shaken(keys, func(k string) bool { return on[k] }, well))
	}
	tag := ownedBy(t, cluster, lost)
	waiting, elsewhere := redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr())
	waiting.Send(t, lines("BLPOP {"+tag+"}l 0"))
	elsewhere.Send(t, lines("BLPOP {"+ownedBy(t, cluster, cluster.Nodes[2])+"}l 0"))
	listening := redistest.Open3(t, p.Addr())
	listening.Do(t, "SUBSCRIBE", "news")
	awaitBlocked(t, cluster, 2)
	time.Sleep(300 * time.Millisecond)

	lost.Kill()
	if v := waiting.Read(t); !isTrouble(v.String()) {
		t.Errorf("who waited at the master: %v", v)
	}
	replica := cluster.Shard(1)[1]
	eventually(t, 30*time.Second, "the replica takes over", func() bool { return replica.Role(t) == "master" })
	eventually(t, 10*time.Second, "everything works again", func() bool {
		v := waiting.Do(t, "MSET", "{"+tag+"}x", "1", "other", "2", "more", "3")
		if !isTrouble(v.String()) && v.String() != "+OK" {
			t.Fatalf("MSET: %v", v)
		}
		return v.String() == "+OK"
	})
	recovered := time.Now()
	for _, well := range wells {
		eventually(t, 10*time.Second, "a client has no errors", func() bool {
			at := <-well
			return at.After(recovered)
		})
	}
	other := redistest.Open(t, p.Addr())
	if v := other.Do(t, "PUBLISH", "news", "back"); v.String() != ":1" {
		t.Errorf("PUBLISH: %v", v)
	}
	if v := listening.Read(t); v.String() != `>[$"message" $"news" $"back"]` {
		t.Errorf("the subscriber: %v", v)
	}
	other.Do(t, "RPUSH", "{"+ownedBy(t, cluster, cluster.Nodes[2])+"}l", "x")
	if v := elsewhere.Read(t); len(v.Elems) != 2 {
		t.Errorf("who waited elsewhere: %v", v)
	}
	if err := lost.Restart(); err != nil {
		t.Fatal(err)
	}
	cluster.AwaitOK(t)
	time.Sleep(200 * time.Millisecond)
	before := redirectErrors(t, lost)
	time.Sleep(time.Second)
	if n := redirectErrors(t, lost) - before; n != 0 {
		t.Errorf("the node that is a replica now was sent %d commands", n)
	}
	l.Stop()
}

// ownedBy is a hash tag in a slot of the node.
func ownedBy(t *testing.T, c *redistest.Cluster, n *redistest.Server) string {
	t.Helper()
	for i := range 1000 {
		if tag := fmt.Sprint("t", i); c.Owner(t, c.SlotOf(t, tag)) == n {
			return tag
		}
	}
	t.Fatal("no tag")
	return ""
}

// redirectErrors is the number of MOVED and ASK errors of a node.
func redirectErrors(t *testing.T, s *redistest.Server) (n int) {
	t.Helper()
	for line := range strings.Lines(s.Info(t, "errorstats")) {
		if rest, ok := strings.CutPrefix(line, "errorstat_MOVED:count="); ok {
			fmt.Sscanf(rest, "%d", &n)
		}
	}
	return n
}
