package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// sharedScripts say what readers and writers are told, each on a name of its own.
var sharedScripts = []script{
	{"many read and share a fence", []step{
		{"a", "LOCK <job> 30s OWNER r1 SHARED", `*[:<f> $"r1" :<29000..29999> :1]`},
		{"everywhere", "", ""}, // at a node that the first reader has not come to the others get a larger fence
		{"b3", "LOCK <job> 30s SHARED OWNER r2", `*[:<f> $"r2" :<29000..29999> :1]`},
		{"everywhere", "", ""},
		{"other.c", "LOCK <job> 30s OWNER r3 SHARED", `*[:<f> $"r3" :<29000..29999> :1]`},
		{"d", "LOCK <job> 30s OWNER w", "*-1"},
		{"d", "LOCK <job> 30s OWNER w RETRYAFTER", `*[:0 $"r3" :<28000..30000> :0]`},
		{"other.c", "UNLOCK <job> r1 SHARED", ":1"},
		{"a", "UNLOCK <job> r3 SHARED", ":1"},
		{"d", "LOCK <job> 30s OWNER w", "*-1"},
		{"a", "UNLOCK <job> r2 SHARED", ":1"},
		{"d", "LOCK <job> 30s OWNER w", `*[:<g> $"w" :<_> :1]`},
		{"less", "f g", ""},
	}},
	{"nobody reads while one writes", []step{
		{"a", "LOCK <job> 30s OWNER w", `*[:<f> $"w" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER r SHARED", "*-1"},
		{"other.b", "LOCK <job> 30s OWNER r SHARED RETRYAFTER", `*[:0 $"w" :<28000..30000> :0]`},
		{"a", "UNLOCK <job> w", ":1"},
		{"other.b", "LOCK <job> 30s OWNER r SHARED", `*[:<g> $"r" :<_> :1]`},
		{"less", "f g", ""},
		{"a", "LOCK <job> 30s OWNER w", "*-1"},
	}},
	{"a reader's fence is not below that of a writer whose lease ended", []step{
		{"a", "LOCK <job> 1s OWNER w", `*[:<f> $"w" :<_> :1]`},
		{"sleep", "1200ms", ""},
		{"other.b", "LOCK <job> 30s OWNER r SHARED", `*[:<f> $"r" :<_> :1]`},
	}},
	{"each reader's lease ends by itself", []step{
		{"a", "LOCK <job> 1s OWNER r1 SHARED", `*[:<f> $"r1" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER r2 SHARED", `*[:<g> $"r2" :<_> :1]`},
		{"sleep", "1200ms", ""},
		{"a", "RENEW <job> 30s r1 SHARED", "-LOCKLOST <...>"},
		{"other.b", "RENEW <job> 2s r2 SHARED", ":<1..1999>"},
		{"sleep", "2200ms", ""},
		{"a", "LOCK <job> 30s OWNER w", `*[:<h> $"w" :<_> :1]`},
		{"less", "f h", ""},
		{"less", "g h", ""},
		{"b", "RENEW <job> 30s r2 SHARED", "-LOCKLOST <...>"},
	}},
	{"a reader re-enters", []step{
		{"a", "LOCK <job> 30s OWNER r SHARED", `*[:<f> $"r" :<_> :1]`},
		{"other.a", "LOCK <job> 30s OWNER r SHARED", `*[:<f> $"r" :<_> :2]`},
		{"a", "LOCK <job> 30s OWNER r SHARED NOREENTER", "*-1"},
		{"a", "UNLOCK <job> r SHARED", ":0"},
		{"b", "LOCK <job> 30s OWNER w", "*-1"},
		{"other.a", "UNLOCK <job> r SHARED", ":1"},
		{"b", "LOCK <job> 30s OWNER w", `*[:<g> $"w" :<_> :1]`},
	}},
	{"FRESH drops what the owner read before", []step{
		{"a", "LOCK <job> 30s OWNER r SHARED", `*[:<f> $"r" :<_> :1]`},
		{"a", "LOCK <job> 30s OWNER r SHARED", `*[:<f> $"r" :<_> :2]`},
		{"everywhere", "", ""}, // a LOCK that comes to a node behind FRESH is a hold there, which an UNLOCK may find left
		{"other.a", "LOCK <job> 30s OWNER r SHARED FRESH", `*[:<g> $"r" :<_> :1]`},
		{"less", "f g", ""},
		{"everywhere", "", ""},
		{"a", "RENEW <job> 30s r SHARED FENCE <f>", "-LOCKLOST <...>"},
		{"a", "UNLOCK <job> r SHARED", ":1"},
	}},
	{"one owner's readings have increasing fences", []step{
		{"a", "LOCK <job> 30s OWNER r SHARED", `*[:<f> $"r" :<_> :1]`},
		{"a", "UNLOCK <job> r SHARED", ":1"},
		{"other.a", "LOCK <job> 30s OWNER r SHARED", `*[:<g> $"r" :<_> :1]`},
		{"less", "f g", ""},
		{"a", "UNLOCK <job> r SHARED FENCE <f>", ":1"}, // once more
		{"b", "LOCK <job> 30s OWNER w", "*-1"},
		{"a", "UNLOCK <job> r SHARED FENCE <g>", ":1"},
		{"a", "UNLOCK <job> r SHARED FENCE <g>", ":1"},
	}},
	{"a writer reads as well, and gives its writing back without a gap", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"everywhere", "", ""},
		{"other.a", "LOCK <job> 20s OWNER me SHARED", `*[:<f> $"me" :<18000..19999> :1]`},
		{"b", "LOCK <job> 30s OWNER r SHARED", "*-1"},
		{"a", "UNLOCK <job> me", ":1"},
		{"b", "LOCK <job> 30s OWNER r SHARED", `*[:<h> $"r" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER w", "*-1"},
		{"a", "RENEW <job> 30s me", "-LOCKLOST <...> SHARED<...>"},
		{"a", "UNLOCK <job> me SHARED", ":1"},
		{"b", "UNLOCK <job> r SHARED", ":1"},
		{"b", "LOCK <job> 30s OWNER w", `*[:<g> $"w" :<_> :1]`},
		{"less", "f g", ""},
		{"less", "h g", ""},
	}},
	{"who reads may write if nobody else reads, and never waits for that", []step{
		{"a", "LOCK <job> 30s OWNER me SHARED", `*[:<f> $"me" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER r SHARED", `*[:<_> $"r" :<_> :1]`},
		{"a", "LOCK <job> 30s OWNER me WAIT 20s RETRYAFTER", `*[:0 $"r" :<28000..30000> :0]`},
		{"other.b", "LOCK <job> 30s OWNER r WAIT 20s", "*-1"},
		{"b", "UNLOCK <job> r SHARED", ":1"},
		{"a", "LOCK <job> 30s OWNER me WAIT 20s", `*[:<g> $"me" :<_> :1]`},
		{"less", "f g", ""},
		{"b", "LOCK <job> 30s OWNER r SHARED", "*-1"},
		{"other.a", "UNLOCK <job> me", ":1"},
		{"other.a", "UNLOCK <job> me SHARED", ":1"},
	}},
	{"who reads must say SHARED", []step{
		{"a", "LOCK <job> 30s OWNER r SHARED", `*[:<f> $"r" :<_> :1]`},
		{"a", "UNLOCK <job> r", "-LOCKLOST <...> SHARED<...>"},
		{"other.a", "RENEW <job> 30s r", "-LOCKLOST <...> SHARED<...>"},
		{"other.a", "RENEW <job> 30s you", "-LOCKLOST the lock is no longer held by this owner; what it protected may be compromised"},
		{"a", "RENEW <job> 20s r SHARED FENCE <f>", ":<18000..19999>"},
		{"a", "UNLOCK <job> r FENCE <f> SHARED", ":1"},
		{"a", "LOCK <job> 30s OWNER SHARED", "-ERR <...>"},
	}},
	{"the connection knows what it reads", []step{
		{"a", "LOCK <job> 30s SHARED", `*[:<f> $"<o>" :<_> :1]`},
		{"b", "LOCK <job> 30s SHARED", `*[:<_> $"<p>" :<_> :1]`},
		{"a", "RENEW <job> 20s", ":<18000..19999>"},
		{"a", "UNLOCK <job>", ":1"},
		{"a", "UNLOCK <job>", ":1"},
		{"b", "RENEW <job> 20s SHARED", ":<18000..19999>"},
		{"b", "UNLOCK <job> SHARED", ":1"},
		{"a", "LOCK <job> 30s", `*[:<g> $"<q>" :<_> :1]`},
		{"a", "UNLOCK <job> SHARED", "-ERR <...>"},
		{"a", "UNLOCK <job>", ":1"},
	}},
	{"REQ of a reader is granted once", []step{
		{"a", "LOCK <job> 30s OWNER r SHARED REQ 1", `*[:<f> $"r" :<_> :1]`},
		{"other.a", "LOCK <job> 30s OWNER r SHARED REQ 1", `*[:<f> $"r" :<_> :1]`},
		{"a", "LOCK <job> 30s OWNER r SHARED REQ 2", `*[:<f> $"r" :<_> :2]`},
		{"other.a", "UNLOCK <job> r SHARED REQ 1", ":0"},
		{"a", "UNLOCK <job> r SHARED REQ 1", ":0"},
		{"a", "UNLOCK <job> r SHARED REQ 2", ":1"},
		{"other.a", "UNLOCK <job> r SHARED REQ 2", ":1"},
		{"other.a", "LOCK <job> 30s OWNER r SHARED REQ 2", `*[:<f> $"r" :0 :0]`},
		{"a", "LOCK <job> 30s OWNER w", `*[:<g> $"w" :<_> :1]`},
	}},
	{"one REQ to read and to write are two requests", []step{
		{"a", "LOCK <job> 30s OWNER me REQ 1", `*[:<f> $"me" :<_> :1]`},
		{"everywhere", "", ""},
		{"a", "LOCK <job> 30s OWNER me SHARED REQ 1", `*[:<f> $"me" :<_> :1]`},
		{"a", "UNLOCK <job> me REQ 1", ":1"},
		{"b", "LOCK <job> 30s OWNER w", "*-1"},
		{"a", "UNLOCK <job> me SHARED REQ 1", ":1"},
	}},
	{"FENCE is that of who writes, or of the reader of that name", []step{
		{"a", "LOCK <job> 30s OWNER r1 SHARED", `*[:<f> $"r1" :<_> :1]`},
		{"a", "LOCKCTL FENCE <job> r1", ":<f>"},
		{"a", "LOCKCTL FENCE <job> r2", "$-1"},
		{"a", "UNLOCK <job> r1 SHARED", ":1"},
		{"b", "LOCK <job> 30s OWNER r2 SHARED", `*[:<k> $"r2" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER r1 SHARED", `*[:<g> $"r1" :<_> :1]`},
		{"less", "f g", ""},
		{"other.a", "LOCKCTL FENCE <job> r1", ":<g>"},
		{"other.a", "LOCKCTL FENCE <job> r2", ":<k>"},
		{"b", "UNLOCK <job> r2 SHARED", ":1"},
		{"b", "LOCKCTL FENCE <job> r2", "$-1"},
		{"b", "LOCK <job> 30s OWNER r1", `*[:<h> $"r1" :<_> :1]`},
		{"less", "g h", ""},
		{"a", "LOCKCTL FENCE <job> r1", ":<h>"},
		{"a", "UNLOCK <job> r1", ":1"},
		{"a", "LOCKCTL FENCE <job> r1", ":<g>"},
	}},
	{"FORCE takes it from the readers", []step{
		{"a", "LOCK <job> 30s OWNER r1 SHARED", `*[:<f> $"r1" :<_> :1]`},
		{"other.b", "LOCK <job> 30s OWNER r2 SHARED", `*[:<_> $"r2" :<_> :1]`},
		{"a", "LOCKCTL FORCE <job>", `*[$"name" $"<job>"<...>$"readers" :2]`},
		{"a", "LOCKCTL FORCE <job>", "*-1"},
		{"c", "LOCK <job> 30s OWNER w", `*[:<g> $"w" :<_> :1]`},
		{"a", "RENEW <job> 30s r1 SHARED", "-<...>"},
		{"other.b", "UNLOCK <job> r2 SHARED", "-<...>"},
	}},
	{"readers belong to a database", []step{
		{"a", "LOCK <job> 30s OWNER r SHARED", `*[:<f> $"r" :<_> :1]`},
		{"a", "SELECT 3", "+OK"},
		{"a", "LOCK <job> 30s OWNER w", `*[:<g> $"w" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER w", "*-1"},
	}},
}

func TestShared(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 2, "--node-timeout", "2s")
	for _, sc := range sharedScripts {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, sc)
		})
	}
}

// TestShared_OnOneNode: so it is without lock nodes of their own.
func TestShared_OnOneNode(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, 2)
	for _, sc := range sharedScripts {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, sc)
		})
	}
}

// onNodesAndEtcd runs a test with so many proxies on three lock nodes, and on an etcd.
func onNodesAndEtcd(t *testing.T, proxies int, test func(t *testing.T, r *rig)) {
	t.Parallel()
	t.Run("nodes", func(t *testing.T) {
		t.Parallel()
		test(t, startRig(t, 3, proxies, "--node-timeout", "2s"))
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		r, _ := startEtcdRig(t, 1, proxies, "--node-timeout", "5s")
		test(t, r)
	})
}

// keptOut returns when a new reader is refused: the question of a writer that waits has come to the nodes.
func keptOut(t *testing.T, c *redistest.Conn) {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if v := c.Do(t, "LOCK", "job", "30s", "OWNER", "new", "SHARED"); v.Raw == "*-1\r\n" {
			return
		}
		c.Do(t, "UNLOCK", "job", "new", "SHARED")
		if time.Now().After(late) {
			t.Fatal("readers are let in though a writer waits")
		}
	}
}

// TestShared_LetInTogether: readers at the front of a line are let in together, up to the first writer, who comes next.
func TestShared_LetInTogether(t *testing.T) { onNodesAndEtcd(t, 1, testLetInTogether) }

func testLetInTogether(t *testing.T, r *rig) {
	holder := redistest.Open(t, r.addr())
	fence := wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "w0"))
	const readers = 20
	var line []*redistest.Conn
	wait := func(words ...string) *redistest.Conn {
		c := redistest.Open(t, r.addr())
		c.Send(t, redistest.Command(append([]string{"LOCK", "job", "30s", "WAIT", "1m", "OWNER"}, words...)...))
		line = append(line, c)
		awaitWaiters(t, holder, "job", int64(len(line)))
		return c
	}
	for i := range readers {
		wait(fmt.Sprint("r", i), "SHARED")
	}
	writer := wait("w1")
	late := wait("late", "SHARED")
	holder.Do(t, "UNLOCK", "job", "w0")
	for i, c := range line[:readers] { // none has given it back
		read := wantGrant(t, c.Read(t))
		if read <= fence {
			t.Errorf("reader %d has fence %d, after %d", i, read, fence)
		}
	}
	keptOut(t, redistest.Open(t, r.addr()))
	if v := line[0].Do(t, "LOCK", "job", "30s", "OWNER", "r0", "SHARED"); len(v.Elems) != 4 || v.Elems[3].Int() != 2 {
		t.Errorf("who reads cannot enter again while a writer waits: %v", v)
	}
	for i, c := range line[:readers] {
		c.Do(t, "UNLOCK", "job", fmt.Sprint("r", i), "SHARED", "ALL")
	}
	if f := wantGrant(t, writer.Read(t)); f <= fence {
		t.Errorf("the writer has fence %d, after %d", f, fence)
	}
	writer.Do(t, "UNLOCK", "job", "w1")
	wantGrant(t, late.Read(t))
}

// TestShared_WritersAreServed: readers that come and go at two proxies, so that the name is never free of them by itself, do not
// keep a writer out.
func TestShared_WritersAreServed(t *testing.T) { onNodesAndEtcd(t, 2, testWritersAreServed) }

func testWritersAreServed(t *testing.T, r *rig) {
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 6 {
		c := redistest.Open(t, r.proxies[i%2].Addr())
		readers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				owner := fmt.Sprint("r", i, ":", n)
				if v, err := c.Try("LOCK", "job", "30s", "OWNER", owner, "SHARED", "WAIT", "1m"); err != nil || len(v.Elems) != 4 {
					t.Errorf("reader %s: %v, %v", owner, v, err)
					return
				}
				time.Sleep(20 * time.Millisecond) // others have come meanwhile
				if v, err := c.Try("UNLOCK", "job", owner, "SHARED"); err != nil || v.Raw != ":1\r\n" {
					t.Errorf("UNLOCK of %s: %v, %v", owner, v, err)
					return
				}
			}
		})
	}
	for i := range 10 {
		c := redistest.Open(t, r.proxies[i%2].Addr())
		wantGrant(t, c.Do(t, "LOCK", "job", "30s", "OWNER", "w", "WAIT", "1m"))
		time.Sleep(time.Millisecond)
		c.Do(t, "UNLOCK", "job", "w")
		time.Sleep(50 * time.Millisecond)
	}
	close(stop)
	readers.Wait()
}

// TestShared_WriterThatLeaves: when a writer waits no longer, readers are let in at once, also through another proxy.
func TestShared_WriterThatLeaves(t *testing.T) { onNodesAndEtcd(t, 2, testWriterThatLeaves) }

func testWriterThatLeaves(t *testing.T, r *rig) {
	reader := redistest.Open(t, r.addr())
	wantGrant(t, reader.Do(t, "LOCK", "job", "30s", "OWNER", "r1", "SHARED"))
	writer := redistest.Open(t, r.addr())
	writer.Send(t, redistest.Command("LOCK", "job", "30s", "OWNER", "w", "WAIT", "1m"))
	awaitWaiters(t, reader, "job", 1)
	other := redistest.Open(t, r.proxies[1].Addr())
	keptOut(t, other)
	other.Send(t, redistest.Command("LOCK", "job", "30s", "OWNER", "r2", "SHARED", "WAIT", "1m"))
	awaitWaiters(t, redistest.Open(t, r.proxies[1].Addr()), "job", 1)
	writer.Close()
	wantGrant(t, other.Read(t))
}

// TestShared_SessionOfAReader: a reader whose client is gone keeps no writer out.
func TestShared_SessionOfAReader(t *testing.T) { onNodesAndEtcd(t, 2, testSessionOfAReader) }

func testSessionOfAReader(t *testing.T, r *rig) {
	reader := redistest.Open(t, r.addr())
	wantGrant(t, reader.Do(t, "LOCK", "job", "4s", "SHARED", "SESSION"))
	wantGrant(t, reader.Do(t, "LOCK", "job", "4s", "SHARED", "SESSION", "OWNER", "me"))
	writer := redistest.Open(t, r.proxies[1].Addr())
	if v := writer.Do(t, "LOCK", "job", "30s", "WAIT", "6s"); v.Raw != "*-1\r\n" {
		t.Fatalf("granted beside readers whose sessions live: %v", v)
	}
	writer.Send(t, redistest.Command("LOCK", "job", "30s", "WAIT", "1m"))
	reader.Close()
	wantGrant(t, writer.Read(t))
}
