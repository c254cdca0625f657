package topology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestWatcher_Cluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	n := c.Nodes
	w := startWatcher(t, n[4].URL(), Options{Replicas: true})
	whole := "0-5460 " + group(n[0], n[3]) + "\n5461-10921 " + group(n[1], n[4]) + "\n10922-16383 " + group(n[2], n[5])
	w.await(t, "at first", whole)

	c.MoveSlot(t, 100, n[2])
	w.Refresh()
	moved := "0-99 101-5460 " + group(n[0], n[3]) + "\n100-100 10922-16383 " + group(n[2], n[5]) + "\n5461-10921 " + group(n[1], n[4])
	w.await(t, "a slot has moved", moved)

	n[1].Kill()
	w.await(t, "after a failover", strings.Replace(moved, group(n[1], n[4]), n[4].Addr(), 1))
	if err := n[1].Restart(); err != nil {
		t.Fatal(err)
	}
	w.await(t, "the old master follows", strings.Replace(moved, group(n[1], n[4]), group(n[4], n[1]), 1))
}

func TestReadNodes(t *testing.T) {
	const text = `aa 10.0.0.1:7000@17000,one.example,shard-id=1 myself,master - 0 0 3 connected 0-5 7 [8->-bb]
bb 10.0.0.2:7000@17000,two.example master - 0 1 4 connected [8-<-aa]
cc :7001@17001 slave aa 0 1 3 connected
dd 10.0.0.4:7000@17000 master,fail - 0 1 9 disconnected
ee ::1:7000@17000 master,fail? - 0 1 2 connected
`
	v := &nodeView{epochs: map[string]uint64{}, ranges: []slotRange{{first: 0, last: 5, master: masterNode{"aa", "one.example:7000"}}}}
	v.readNodes(text, "h:1")
	if v.self != "aa" || v.epochs["aa"] != 3 || v.epochs["bb"] != 4 {
		t.Errorf("self %s, epochs %v", v.self, v.epochs)
	}
	if got := fmt.Sprint(v.slotless); got != "[{bb two.example:7000} {ee [::1]:7000}]" {
		t.Error(got)
	}
}
