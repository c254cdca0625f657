package admin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// TestViews_AdoptedOwners: the page shows the value or field of an adopted lock, and which it is, wherever it shows an owner.
func TestViews_AdoptedOwners(t *testing.T) {
	for kind, owner := range map[string]string{"string": locks.NewAdoptedString(&locks.RandSource{}, "token-1"), "hash": locks.NewAdoptedHash("token-1"), "sorted set": locks.NewAdoptedSorted(&locks.RandSource{}, "token-1"), "": "token-1"} {
		k := locks.Key{Name: "job"}
		h := locks.Holding{Key: k, Owner: owner, Fence: 7}
		row := viewLock(h, 3)
		if row.Owner.Text != "token-1" || row.Adopted != kind {
			t.Errorf("the row of %q: %+v", owner, row)
		}
		d := viewDetail(k, locks.Inspection{Held: true, Holding: h, Nodes: []locks.NodeView{{State: locks.NodeVoting, Owner: owner, Fence: 7}}}, []locks.Waiter{{Owner: owner}}, newTimelines(), nil)
		if d.Owner != "token-1" || d.Adopted != kind || d.Nodes[0].Owner != "token-1" || d.Nodes[0].Adopted != kind || d.Nodes[0].Says != "held" || d.Waiters[0].Owner.Text != "token-1" {
			t.Errorf("all about the lock of %q: %+v", owner, d)
		}
		q := viewQueue(locks.Queue{Key: k, Holder: owner, Next: owner})
		if q.Holder.Text != "token-1" || q.Next.Text != "token-1" {
			t.Errorf("the queue behind %q: %+v", owner, q)
		}
		text, err := json.Marshal([]any{row, d, q})
		if err != nil || strings.Contains(string(text), "lpa") || kind == "" && strings.Contains(string(text), "adopted") {
			t.Errorf("of %q: %v, %s", owner, err, text)
		}
	}
}
