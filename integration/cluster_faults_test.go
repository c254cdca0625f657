package integration

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestClusterFailover: a master that dies or hangs costs errors until its replica has
// taken over, and nothing else.
func TestClusterFailover(t *testing.T) {
	for name, old := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1)
			p := redistest.StartProxy(t, c, []*redistest.Server{redistest.Start(t)})
			l := startLoad(t, p.Addr(), 12)
			l.awaitProgress(t, "before", 50)

			ended := time.Now()
			old.end(c.Nodes[0])
			replica := c.Shard(0)[1]
			eventually(t, 30*time.Second, "the replica takes over", func() bool { return replica.Role(t) == "master" })
			l.awaitProgress(t, "after the failover", 2)
			recovered := time.Now()
			if err := old.back(c.Nodes[0]); err != nil {
				t.Fatal(err)
			}
			c.AwaitOK(t)
			l.awaitProgress(t, "with the old master as a replica", 200)
			l.end()
			l.checkErrors(t, ended, recovered)
			l.check(t, p.Addr(), recovered)
		})
	}
}

// slowFailureDetection is for Clusters whose nodes do not fail: none takes another for down because
// the machine is busy.
var slowFailureDetection = []string{"--cluster-node-timeout", "15000"}

// TestClusterFailover_Coordinated: a replica that takes over in agreement with its master
// costs nothing at all.
func TestClusterFailover_Coordinated(t *testing.T) {
	c := redistest.StartCluster(t, 2, 1, slowFailureDetection...)
	p := redistest.StartProxy(t, c, []*redistest.Server{redistest.Start(t)})
	l := startLoad(t, p.Addr(), 8)
	l.awaitProgress(t, "before", 50)
	began := time.Now()
	for range 2 { // there and back
		c.Failover(t, 0)
		l.awaitProgress(t, "after the failover", 200)
	}
	l.end()
	l.checkErrors(t, time.Time{}, time.Time{})
	l.check(t, p.Addr(), began)
}

// TestReshardingUnderLoad: slots that move, with their keys, cost nothing at all.
func TestReshardingUnderLoad(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0, slowFailureDetection...)
	p := redistest.StartProxy(t, c, []*redistest.Server{redistest.Start(t)})
	began := time.Now()
	l := startLoad(t, p.Addr(), 8)
	l.awaitProgress(t, "before", 50)
	for round := range 2 {
		for i := range l.writers {
			slot := c.SlotOf(t, "list:"+strconv.Itoa(i))
			from, to := c.Owner(t, slot), c.Nodes[(i+round)%3]
			if from == to {
				to = c.Nodes[(i+round+1)%3]
			}
			m := c.StartMove(t, slot, to)
			l.awaitProgress(t, "while a slot moves", 20)
			m.MoveSome(t, 100)
			l.awaitProgress(t, "when its keys have", 20)
			m.Finish(t)
		}
	}
	l.awaitProgress(t, "after", 50)
	l.end()
	l.checkErrors(t, time.Time{}, time.Time{})
	l.check(t, p.Addr(), began)
}
