package commands

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/topology"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// A duo is a stage whose upstream is a Cluster of two fakes: the key "bar", and the
// lower half of the slots, belong to the first, "foo" to the second.
type duo struct {
	*stage
	second *fake
}

func newDuo(t *testing.T, answer func(l *link, args []string) (string, bool)) *duo {
	t.Helper()
	d := &duo{stage: newStage(t, Options{}, answer), second: startFake(t, answer)}
	d.up.SetTopology(d.halves(t, d.fake, d.second))
	return d
}

// halves is a Cluster of two nodes.
func (d *duo) halves(t *testing.T, nodes ...*fake) *topology.Topology {
	t.Helper()
	top := &topology.Topology{Slots: make([]uint16, topology.SlotCount)}
	for i, n := range nodes {
		where, err := backends.Parse("redis://" + n.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		top.Shards = append(top.Shards, topology.Shard{Master: where})
		for slot := i * topology.SlotCount / len(nodes); slot < topology.SlotCount; slot++ {
			top.Slots[slot] = uint16(i)
		}
	}
	return top
}

// sent is what came of these commands at a fake, on any connection.
func (s *fake) sent(words ...string) (got []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		for _, c := range l.seen {
			if slices.Contains(words, strings.Fields(c)[0]) {
				got = append(got, c)
			}
		}
	}
	return got
}

// TestClusterTx_MovesToTheNodeOfItsKeys: a transaction whose first key is another node's is begun
// there anew, with everything that was said before, also what must make it fail.
func TestClusterTx_MovesToTheNodeOfItsKeys(t *testing.T) {
	const crossed = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
	for _, tt := range []struct{ before, reply, again string }{
		{"PING x", "+OK\r\n", "PING x"},
		{"SELECT 0", "+OK\r\n", "SELECT 0"},
		{"CLIENT SETNAME me", "+OK\r\n", "CLIENT SETNAME me"},
		{"AUTH u p", "+OK\r\n", "AUTH u p"},
		{"RENAME foo bar", crossed, "LOCKPROXY.REFUSED"},
		{"CLIENT REPLY OFF", "-ERR CLIENT REPLY is not supported with a Cluster upstream\r\n", "LOCKPROXY.REFUSED"},
		{"LOCK job 30s", string(lockcmd.AppendNoTx(nil, []byte("LOCK"))), "LOCK job 30s"},
	} {
		inTx := false
		d := newDuo(t, func(_ *link, args []string) (string, bool) {
			inTx = inTx || args[0] == "MULTI"
			return "+OK\r\n", inTx
		})
		p := d.enter(t)
		p.do(t, "MULTI", tt.before, "SET foo 1")
		p.want(t, "+OK\r\n"+tt.reply+"+OK\r\n")
		name := strings.Fields(tt.again)[0]
		if got := d.second.sent("MULTI", name, "SET"); !slices.Equal(got, []string{"MULTI", tt.again, "SET foo 1"}) {
			t.Errorf("after %s the second node got %q", tt.before, got)
		}
	}
}

// TestClusterTx_CannotMove: what follows in a pipeline must not run by itself.
func TestClusterTx_CannotMove(t *testing.T) {
	for _, how := range []string{"down", "refused"} {
		d := newDuo(t, nil)
		d.second.answer = func(_ *link, args []string) (string, bool) {
			return "-NOPERM no\r\n", args[0] == "MULTI"
		}
		if how == "down" {
			d.second.ln.Close()
		}
		p := d.enter(t)
		p.do(t, "GET bar", "MULTI", "PING x", "SET foo 1", "SET bar 2", "EXEC")
		if d.count("SET bar 2") != 0 || d.second.count("SET foo 1") != 0 || d.second.count("PING x") != 0 || !p.Closing() {
			t.Errorf("%s: after a transaction was lost commands ran, closing %v", how, p.Closing())
		}
	}
}

// TestCluster_PinnedConnectionLost: a client may have lost the connection that it was to keep.
func TestCluster_PinnedConnectionLost(t *testing.T) {
	d := newDuo(t, nil)
	p := d.enter(t)
	p.do(t, "CLIENT NO-EVICT ON")
	p.want(t, "+OK\r\n")
	d.second.ln.Close()
	p.do(t, "BLPOP foo 0")
	p.until(t, "an error", func() bool {
		return strings.Contains(p.text[p.read:], "UPSTREAMDOWN") && strings.HasSuffix(p.text, "\r\n")
	})
	p.read = len(p.text)
	p.do(t, "AUTH user pw", "SELECT 0")
	p.want(t, "+OK\r\n+OK\r\n")
}

// TestCluster_LostTransactionStopsPipeline: the commands behind a MULTI whose connection is lost must
// not run, whoever hears of the loss first.
func TestCluster_LostTransactionStopsPipeline(t *testing.T) {
	for _, state := range []string{"MULTI", "WATCH bar"} {
		for _, cluster := range []bool{false, true} {
			d := newDuo(t, nil)
			if !cluster {
				where, _ := backends.Parse("redis://" + d.ln.Addr().String())
				d.up.SetTopology(&topology.Topology{Shards: []topology.Shard{{Master: where}}})
			}
			p, late := d.enter(t), make(chan struct{})
			p.replies = relay.NewReplies(p.out, relay.RepliesOptions{
				Limit: 1 << 20, EndsWith: p.diesWith, Lost: func(c *upstream.Conn) { <-late; p.connLost(c) }, Took: &p.tally.Took,
			})
			p.do(t, state)
			p.want(t, "+OK\r\n")
			p.stateful.Conn(&p.tx).Close()
			p.do(t, "MULTI", "SET bar 1", "EXEC", "SET bar 2")
			close(late)
			if got := d.sent("SET"); len(got) != 0 || !p.Closing() {
				t.Errorf("after %s was lost, Cluster %v: %q ran", state, cluster, got)
			}
		}
	}
}

// TestTracking_PushBetweenReplies: a message between the replies to one burst is no reply.
func TestTracking_PushBetweenReplies(t *testing.T) {
	const push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"
	s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
		return "+before\r\n" + push, args[0] == "SET"
	})
	p := s.enter(t)
	p.do(t, "HELLO 3", "CLIENT TRACKING ON")
	p.want(t, "+OK\r\n+OK\r\n")
	p.burst(t, "SET a 1", "GET b", "GET c")
	p.want(t, "+before\r\n"+push+"$1\r\nb\r\n$1\r\nc\r\n")
	p.do(t, "LOCK job 30s OWNER me", "GET d")
	p.want(t, "*4\r\n:1\r\n$2\r\nme\r\n:30000\r\n:1\r\n$1\r\nd\r\n")
}

// burst handles commands that lie next to each other, as in a read buffer, which need
// not wait.
func (p *player) burst(t *testing.T, lines ...string) {
	t.Helper()
	var buf []byte
	for _, line := range lines {
		buf = resp.AppendCommand(buf, words(line)...)
	}
	for _, line := range lines {
		n := len(resp.AppendCommand(nil, words(line)...))
		if !p.Try(buf[:n:len(buf)], words(line)) {
			t.Fatalf("%s has to wait", line)
		}
		buf = buf[n:]
	}
	p.Session.Flush()
}

// TestPassthrough_AfterRouting: what a subscriber gets is relayed in whatever pieces it comes,
// also to a client that used several nodes before.
func TestPassthrough_AfterRouting(t *testing.T) {
	d := newDuo(t, nil)
	p := d.enter(t)
	p.do(t, "HELLO 3", "GET bar")
	p.want(t, "+OK\r\n$3\r\nbar\r\n")
	where, _ := backends.Parse("redis://" + d.ln.Addr().String())
	d.up.SetTopology(&topology.Topology{Shards: []topology.Shard{{Master: where}}})
	p.do(t, "SUBSCRIBE c")
	p.want(t, "+OK\r\n")
	l := d.await(t, "SUBSCRIBE c")
	l.say(t, ">3\r\n$7\r\nmess")
	p.want(t, ">3\r\n$7\r\nmess")
	l.say(t, "age\r\n$1\r\nc\r\n$1\r\nx\r\n+PONG\r\n")
	p.want(t, "age\r\n$1\r\nc\r\n$1\r\nx\r\n+PONG\r\n")
}

// TestScripts_ForgedRedirections: scripts word their errors themselves, and must not send the
// proxy to other servers, or make it run them again.
func TestScripts_ForgedRedirections(t *testing.T) {
	evil := startFake(t, nil)
	addr := evil.ln.Addr().String()
	for _, tt := range []struct{ reply, want string }{
		{"-MOVED 1 " + addr + "\r\n", "-MOVED 1 " + addr + "\r\n"},
		{"-ASK 1 " + addr + "\r\n", "-ASK 1 " + addr + "\r\n"},
		{"-TRYAGAIN later\r\n", "-TRYAGAIN later\r\n"},
		{"-MOVED 5061 " + addr + "\r\n", "-CLUSTERDOWN The nodes disagree about who serves the hash slot\r\n"},
	} {
		d := newDuo(t, func(_ *link, args []string) (string, bool) { return tt.reply, args[0] == "EVAL" })
		p := d.enter(t)
		p.openRouter().Redirector().Timeout = 100 * time.Millisecond
		p.do(t, "EVAL x 1 bar")
		p.want(t, tt.want)
		if n := len(d.sent("EVAL")) + len(d.second.sent("EVAL")); n != 1 {
			t.Errorf("%q: it ran %d times", tt.reply, n)
		}
		evil.mu.Lock()
		if len(evil.links) != 0 {
			t.Errorf("%q: the proxy came", tt.reply)
		}
		evil.mu.Unlock()
	}
}

// listening answers subscriptions and AUTH as a Redis does, on whatever connection.
func listening(l *link, args []string) (string, bool) {
	switch name := strings.ToLower(args[0]); name {
	case "subscribe", "ssubscribe", "psubscribe", "unsubscribe":
		return fmt.Sprintf(">3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:1\r\n", len(name), name, len(args[1]), args[1]), true
	}
	return "", false
}

// TestSubscriber_Authenticates: what it subscribes to from then on it must be allowed to.
func TestSubscriber_Authenticates(t *testing.T) {
	d := newDuo(t, listening)
	p := d.enter(t)
	p.do(t, "HELLO 3", "SUBSCRIBE a")
	p.want(t, "+OK\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	p.do(t, "AUTH user pw", "SUBSCRIBE b")
	p.want(t, "+OK\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n")
	l := d.await(t, "subscribe b")
	d.mu.Lock()
	defer d.mu.Unlock()
	if as := slices.Index(l.seen, "AUTH user pw"); as < 0 || as > slices.Index(l.seen, "subscribe b") {
		t.Errorf("the connection said %q", l.seen)
	}
}

// TestSubscriber_SlotMoves: the client goes on to listen, on one connection,
// which ends with it.
func TestSubscriber_SlotMoves(t *testing.T) {
	d := newDuo(t, listening)
	p := d.enter(t)
	const n = 20
	p.do(t, "HELLO 3", "GET bar")
	p.want(t, "+OK\r\n$3\r\nbar\r\n")
	for i := range n {
		p.do(t, fmt.Sprintf("SSUBSCRIBE {bar}%02d", i))
	}
	p.until(t, "all subscriptions", func() bool { return strings.Count(p.text, "ssubscribe") == n })
	l := d.await(t, "ssubscribe {bar}00")
	d.up.SetTopology(d.halves(t, d.second, d.fake))
	var gone strings.Builder
	for i := range n {
		fmt.Fprintf(&gone, ">3\r\n$12\r\nsunsubscribe\r\n$7\r\n{bar}%02d\r\n:0\r\n", i)
	}
	l.say(t, gone.String())
	links := map[*link]bool{}
	for i := range n {
		links[d.second.await(t, fmt.Sprintf("ssubscribe {bar}%02d", i))] = true
	}
	if len(links) != 1 {
		t.Errorf("it listens on %d connections to one node", len(links))
	}
}

// TestSubscriber_NewMaster: it tells of its keys, too.
func TestSubscriber_NewMaster(t *testing.T) {
	d := newDuo(t, listening)
	d.up.SetTopology(d.halves(t, d.fake))
	p := d.enter(t)
	p.do(t, "HELLO 3", "SUBSCRIBE __keyevent@0__:set", "SUBSCRIBE news", "PSUBSCRIBE *", "SUBSCRIBE __key:gone", "UNSUBSCRIBE __key:gone")
	p.until(t, "all confirmations", func() bool { return strings.Contains(p.text, "unsubscribe") })
	p.read = len(p.text)
	d.up.SetTopology(d.halves(t, d.fake, d.second))
	d.second.await(t, "subscribe __keyevent@0__:set")
	l := d.second.await(t, "psubscribe *")
	if got := d.second.sent("subscribe", "psubscribe"); len(got) != 2 {
		t.Errorf("the new master got %q", got)
	}
	l.say(t, ">3\r\n$7\r\nmessage\r\n$18\r\n__keyevent@0__:set\r\n$1\r\nk\r\n>4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$4\r\nnews\r\n$1\r\nx\r\n")
	p.want(t, ">3\r\n$7\r\nmessage\r\n$18\r\n__keyevent@0__:set\r\n$1\r\nk\r\n")
}

// TestSubscriber_NewMasterBeforeTheConfirmation: one that comes while a subscription is not confirmed yet tells of its keys, too.
func TestSubscriber_NewMasterBeforeTheConfirmation(t *testing.T) {
	confirm := make(chan struct{})
	d := newDuo(t, func(l *link, args []string) (string, bool) {
		if args[0] == "psubscribe" {
			<-confirm
		}
		return listening(l, args)
	})
	d.up.SetTopology(d.halves(t, d.fake))
	p := d.enter(t)
	p.do(t, "HELLO 3", "SUBSCRIBE __keyevent@0__:set")
	p.until(t, "the confirmation", func() bool { return strings.Contains(p.text, "subscribe") })
	var asked sync.WaitGroup
	asked.Go(func() { p.do(t, "PSUBSCRIBE __key*") })
	d.await(t, "psubscribe __key*")
	d.up.SetTopology(d.halves(t, d.fake, d.second))
	d.second.await(t, "subscribe __keyevent@0__:set")
	close(confirm)
	asked.Wait()
	d.second.await(t, "psubscribe __key*")
}

// TestTracking_EndsBeforeProtocolChange: what a client is told when its connections are given
// up is in the protocol that it speaks then.
func TestTracking_EndsBeforeProtocolChange(t *testing.T) {
	const all = ">2\r\n$10\r\ninvalidate\r\n_\r\n"
	for _, tt := range []struct{ end, want string }{
		{"RESET", all + "+RESET\r\n"},
		{"HELLO 2", all + "+OK\r\n"},
		{"AUTH user pw", all + "+OK\r\n"},
		{"CLIENT TRACKING OFF", "+OK\r\n"},
	} {
		d := newDuo(t, nil)
		p := d.enter(t)
		p.do(t, "HELLO 3", "CLIENT TRACKING ON", "GET bar", "GET foo")
		p.want(t, "+OK\r\n+OK\r\n$3\r\nbar\r\n$3\r\nfoo\r\n")
		p.do(t, tt.end)
		p.want(t, tt.want)
		p.wantNothing(t)
		if p.Closing() {
			t.Errorf("%s disconnected the client", tt.end)
		}
	}
}

// TestTracking_LostConnectionEndsClient: also when another was refused before.
func TestTracking_LostConnectionEndsClient(t *testing.T) {
	d := newDuo(t, nil)
	d.second.answer = func(_ *link, args []string) (string, bool) { return "-NOPERM no\r\n", args[0] == "CLIENT" }
	p := d.enter(t)
	p.do(t, "HELLO 3", "CLIENT TRACKING ON", "GET bar", "GET foo")
	p.want(t, "+OK\r\n+OK\r\n$3\r\nbar\r\n-NOPERM no\r\n")
	d.drop()
	p.until(t, "the end of the client", func() bool { return p.closed })
}

// TestClusterWatch_ConnectionIsKept: nothing may take the connection away that watches.
func TestClusterWatch_ConnectionIsKept(t *testing.T) {
	for _, between := range []string{"CLIENT TRACKING ON", "BLPOP foo 1", "GET foo"} {
		d := newDuo(t, func(_ *link, args []string) (string, bool) { return "*-1\r\n", args[0] == "BLPOP" })
		p := d.enter(t)
		p.do(t, "HELLO 3", "WATCH bar", between, "MULTI", "SET bar 1", "EXEC")
		p.until(t, "EXEC", func() bool { return strings.HasSuffix(p.text, "*0\r\n") })
		if l := d.await(t, "WATCH bar"); !slices.Contains(l.seen, "EXEC") {
			t.Errorf("%s: the connection that watches saw %q", between, l.seen)
		}
	}
}

// TestClusterScan_RefusedByNode: also by a client that has not been anywhere yet.
func TestClusterScan_RefusedByNode(t *testing.T) {
	for _, scan := range []string{"SCAN", "SCAN x"} {
		d := newDuo(t, func(_ *link, args []string) (string, bool) { return "-ERR no\r\n", args[0] == "SCAN" })
		p := d.enter(t)
		p.do(t, scan)
		p.want(t, "-ERR no\r\n")
	}
}

// TestCluster_OneErrorPerCommand: whatever cannot be reached.
func TestCluster_OneErrorPerCommand(t *testing.T) {
	for _, command := range []string{"GET bar", "MGET bar foo", "DBSIZE", "SORT bar BY x*", "BLPOP bar 0", "WATCH bar", "PING", "EVAL x 0", "EVAL x 1 bar", "XREAD BLOCK 0 STREAMS bar 0"} {
		d := newDuo(t, nil)
		d.ln.Close()
		d.second.ln.Close()
		p := d.enter(t)
		p.do(t, command)
		if p.mu.Lock(); strings.Count(p.text, "\r\n") != 1 || !strings.HasPrefix(p.text, "-UPSTREAMDOWN ") {
			t.Errorf("%s: %q", command, p.text)
		}
		p.mu.Unlock()
	}
}
