package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_Flush: with flush=release FLUSHDB and FLUSHALL release adopted locks, behind what the upstream does, however
// the client's commands travel. Other locks stay.
func TestAdopt_Flush(t *testing.T) {
	t.Parallel()
	data, nodes := redistest.Start(t), redistest.StartNodes(t, 1)
	p := redistest.StartProxy(t, data, nodes, "--adopt", "lock:*", "--adopt", "drop:* flush=release")
	c, there := redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr())
	there.Do(t, "SELECT", "3")
	for i, before := range []string{"PING", "WATCH other", "HELLO 3|SUBSCRIBE x|UNSUBSCRIBE x", "CLIENT REPLY ON"} {
		c := redistest.Open(t, p.Addr())
		for _, b := range strings.Split(before, "|") {
			c.Do(t, strings.Fields(b)...)
		}
		for n := range 20 {
			wantReplies(t, c, [2]string{fmt.Sprint("SET drop:", n, " me NX PX 30000"), "+OK"})
		}
		kept := fmt.Sprint("lock:", i)
		wantReplies(t, there, [2]string{"SET drop:there me NX PX 30000", "+OK"})
		wantReplies(t, c, [2]string{"SET x 1", "+OK"}, [2]string{"SET " + kept + " me NX PX 30000", "+OK"})
		c.Do(t, "LOCK", "drop:native", "30s", "OWNER", "native")
		wantReplies(t, c, [2]string{"FLUSHDB ASYNC", "+OK"}, [2]string{"EXISTS x drop:0 drop:7 drop:19", ":0"}, [2]string{"EXISTS " + kept, ":1"})
		wantReplies(t, there, [2]string{"EXISTS drop:there", ":1"})
		wantReplies(t, c, [2]string{"SET drop:0 me NX PX 30000", "+OK"}, [2]string{"FLUSHALL", "+OK"}, [2]string{"EXISTS drop:0", ":0"})
		wantReplies(t, there, [2]string{"EXISTS drop:there", ":0"})
		wantReplies(t, c, [2]string{"UNLOCK drop:native native", ":1"})
	}
	wantReplies(t, c,
		[2]string{"SET drop:a me NX PX 30000", "+OK"}, [2]string{"FLUSHDB WHAT", "-ERR syntax error"}, [2]string{"EXISTS drop:a", ":1"},
		[2]string{"MULTI", "+OK"}, [2]string{"FLUSHALL", `-ADOPTREFUSED FLUSHALL drop:*: it is inside MULTI; adopted by "drop:*"`},
		[2]string{"EXEC", "-EXECABORT Transaction discarded because of previous errors."}, [2]string{"EXISTS drop:a", ":1"}, [2]string{"SET x 1", "+OK"},
	)
	nodes[0].Kill()
	v := c.Do(t, "FLUSHALL")
	if text := v.String(); !strings.HasPrefix(text, "-NOQUORUM ") || !strings.HasSuffix(text, "(the upstream is flushed; adopted locks may be left: flush it again)") {
		t.Error(v)
	}
	wantReplies(t, c, [2]string{"EXISTS x", ":0"})
}
