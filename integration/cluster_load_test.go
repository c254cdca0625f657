package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A slotLoad is clients of a Cluster that each work on keys of their own, so that every
// reply is known beforehand, until Stop.
type slotLoad struct {
	t       *testing.T
	addr    string
	stop    chan struct{}
	wg      sync.WaitGroup
	replies atomic.Int64
	faults  chan string
}

// A worker is one client of a slotLoad. It returns what it saw that must not be, or ""
// when it was stopped.
type worker func(l *slotLoad, c *redistest.Conn) string

func startSlotLoad(t *testing.T, addr string) *slotLoad {
	t.Helper()
	return &slotLoad{t: t, addr: addr, stop: make(chan struct{}), faults: make(chan string, 1000)}
}

// add starts a worker on a connection of its own.
func (l *slotLoad) add(name string, proto3 bool, w worker) {
	l.t.Helper()
	open := redistest.Open
	if proto3 {
		name += " in RESP3"
		open = redistest.Open3
	}
	c := open(l.t, l.addr)
	l.wg.Go(func() {
		if fault := w(l, c); fault != "" {
			l.faults <- name + ": " + fault
		}
	})
}

func (l *slotLoad) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// Stop ends the load and reports what its workers saw.
func (l *slotLoad) Stop() {
	l.t.Helper()
	close(l.stop)
	l.wg.Wait()
	close(l.faults)
	for f := range l.faults {
		if strings.Contains(f, "-CLUSTERDOWN ") { // a replica has taken over, and nodes have yet to hear of it
			l.t.Log(f)
			continue
		}
		l.t.Error(f)
	}
	l.t.Logf("%d replies", l.replies.Load())
}

// A chat is commands that are sent together, with what each must answer.
type chat struct {
	in   strings.Builder
	want []string
	sent []string
}

func (b *chat) add(want string, args ...string) {
	b.in.WriteString(redistest.Command(args...))
	b.want, b.sent = append(b.want, want), append(b.sent, strings.Join(args, " "))
}

// hold sends all and reads the replies; the first that differs is the fault.
func (l *slotLoad) hold(c *redistest.Conn, b *chat) string {
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write([]byte(b.in.String()))
		sent <- err
	}()
	for i, want := range b.want {
		v, err := c.Next()
		if err != nil {
			return fmt.Sprintf("%s: %v", b.sent[i], err)
		}
		l.replies.Add(1)
		if got := strings.ReplaceAll(v.String(), "_", "$-1"); got != want { // RESP3's null
			return fmt.Sprintf("%s, command %d of %d: %s, want %s", b.sent[i], i+1, len(b.want), got, want)
		}
	}
	if err := <-sent; err != nil {
		return err.Error()
	}
	return ""
}

const incrBy2 = "redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[1])"

// pipeliner sends up to depth commands at a time on single keys, and some on keys of
// several slots.
func pipeliner(keys []string, depth int) worker {
	return func(l *slotLoad, c *redistest.Conn) string {
		count, length := map[string]int{}, map[string]int{}
		for !l.stopped() {
			b := &chat{}
			for len(b.want) < depth {
				k := keys[rand.IntN(len(keys))]
				switch rand.IntN(8) {
				case 0:
					length[k]++
					b.add(fmt.Sprint(":", length[k]), "APPEND", "log:"+k, "x")
				case 1:
					other := keys[rand.IntN(len(keys))]
					b.add(fmt.Sprintf("*[%s %s %s]", bulkOf(count[k]), bulkOf(count[other]), bulkOf(count[k])), "MGET", k, other, k)
				case 2:
					if rand.IntN(10) > 0 {
						continue
					}
					count[k] += 2
					b.add(fmt.Sprint(":", count[k]), "EVAL", incrBy2, "1", k)
				case 3:
					other := keys[rand.IntN(len(keys))]
					if other == k {
						continue
					}
					count[k] += 1000
					count[other] += 1000
					b.add("+OK", "MSET", k, fmt.Sprint(count[k]), other, fmt.Sprint(count[other]))
				default:
					count[k] += 2
					b.add(fmt.Sprint(":", count[k]-1), "INCR", k)
					b.add(fmt.Sprint(":", count[k]), "INCR", k)
					b.add(bulkOf(count[k]), "GET", k)
				}
			}
			if fault := l.hold(c, b); fault != "" {
				return fault
			}
		}
		return ""
	}
}

func bulkOf(n int) string {
	if n == 0 {
		return "$-1"
	}
	return fmt.Sprintf(`$"%d"`, n)
}

// keyless sends what no slot decides about.
func keyless(l *slotLoad, c *redistest.Conn) string {
	for n := 0; !l.stopped(); {
		b := &chat{}
		for range 20 {
			n++
			b.add(bulkOf(n), "ECHO", fmt.Sprint(n))
			b.add(":0", "PUBLISH", "nobody", "hears")
		}
		b.add(bulkOf(n), "EVAL", "return ARGV[1]", "0", fmt.Sprint(n))
		if fault := l.hold(c, b); fault != "" {
			return fault
		}
	}
	return ""
}

// together uses several keys of one slot at once.
func together(tag string) worker {
	return func(l *slotLoad, c *redistest.Conn) string {
		a, z := "{"+tag+"}a", "{"+tag+"}z"
		for n := 1; !l.stopped(); n++ {
			s := fmt.Sprint(n)
			for _, step := range []struct{ want, command string }{
				{"+OK", "MSET " + a + " " + s + " " + z + " " + s},
				{fmt.Sprintf(`*[$"%s" $"%s"]`, s, s), "MGET " + a + " " + z},
				{fmt.Sprintf(`*[$"%s" $"%s"]`, s, s), "EVAL return{redis.call('GET',KEYS[1]),redis.call('GET',KEYS[2])} 2 " + a + " " + z},
				{":2", "EXISTS " + a + " " + z},
			} {
				b := &chat{}
				b.add(step.want, strings.Fields(step.command)...)
				if fault := l.hold(c, b); fault != "" {
					return fault
				}
			}
		}
		return ""
	}
}

// transactor counts in transactions; those may be refused while their slot moves, and
// then must not have happened.
func transactor(tag string, done *atomic.Int64) worker {
	return func(l *slotLoad, c *redistest.Conn) string {
		a, z := "{"+tag+"}a", "{"+tag+"}z"
		for n := 0; !l.stopped(); {
			watched := rand.IntN(2) == 0
			in := redistest.Command("MULTI") + redistest.Command("INCR", a) + redistest.Command("INCR", z) + redistest.Command("EXEC")
			replies := 4
			if watched {
				in, replies = redistest.Command("WATCH", a)+in, 5
			}
			if _, err := c.Write([]byte(in)); err != nil {
				return err.Error()
			}
			var all []string
			for range replies {
				v, err := c.Next()
				if err != nil {
					return err.Error()
				}
				all = append(all, v.String())
			}
			l.replies.Add(int64(replies))
			end := all[len(all)-1]
			switch {
			case end == fmt.Sprintf("*[:%d :%d]", n+1, n+1):
				n++
				done.Add(1)
			case strings.HasPrefix(end, "-EXECABORT"), strings.HasPrefix(end, "-TRYAGAIN"):
			default:
				return fmt.Sprintf("transaction %d answered %q", n+1, all)
			}
			for _, reply := range all {
				if strings.HasPrefix(reply, "-MOVED") || strings.HasPrefix(reply, "-ASK") {
					return fmt.Sprintf("transaction %d answered %q", n+1, all)
				}
			}
		}
		return ""
	}
}

// producer and consumer pass numbers on in order.
func producer(key string, made *atomic.Int64) worker {
	return func(l *slotLoad, c *redistest.Conn) string {
		for n := 0; !l.stopped(); n++ {
			v, err := c.Try("RPUSH", key, fmt.Sprint(n))
			if err != nil || v.IsError() {
				return fmt.Sprint("RPUSH: ", v, err)
			}
			l.replies.Add(1)
			made.Add(1)
			time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		}
		return ""
	}
}

func consumer(key string, made *atomic.Int64) worker {
	return func(l *slotLoad, c *redistest.Conn) string {
		for n := 0; !l.stopped() || int64(n) < made.Load(); {
			v, err := c.Try("BLPOP", key, "1")
			switch {
			case err != nil || v.IsError():
				return fmt.Sprint("BLPOP: ", v, err)
			case v.Null:
				continue
			case len(v.Elems) != 2 || v.Elems[1].Text != fmt.Sprint(n):
				return fmt.Sprintf("BLPOP: %v, want %d", v, n)
			}
			n++
			l.replies.Add(1)
		}
		return ""
	}
}

// TestClusterReshardsUnderLoad: no client notices that slots move, or that replicas
// take over in agreement with their masters, except that its transactions may have to
// be tried again; nothing is lost, doubled or out of order.
func TestClusterReshardsUnderLoad(t *testing.T) {
	// For a moment after a failover nodes may know the old master as a replica, and
	// nobody in its place: with full coverage they would refuse everything. Even so
	// a client may be refused then.
	cluster := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	p := startServing(t, cluster.URL())
	l := startSlotLoad(t, p.Addr())
	var slots []int // of the keys that are used
	note := func(key string) { slots = append(slots, cluster.SlotOf(t, key)) }
	for i := range 6 {
		var keys []string
		for j := range 12 {
			keys = append(keys, fmt.Sprintf("own:%d:%d", i, j))
			note(keys[j])
		}
		l.add(fmt.Sprint("pipeliner ", i), i%2 == 1, pipeliner(keys, []int{1, 30, 300}[i%3]))
	}
	l.add("keyless", false, keyless)
	var inTx atomic.Int64
	var made [2]atomic.Int64
	for i, made := range []*atomic.Int64{&made[0], &made[1]} {
		both, tx, queue := fmt.Sprint("both", i), fmt.Sprint("tx", i), fmt.Sprint("queue", i)
		note(both)
		note(tx)
		note(queue)
		l.add("together", i == 1, together(both))
		l.add("transactor", i == 1, transactor(tx, &inTx))
		l.add("producer", i == 1, producer(queue, made))
		l.add("consumer", i == 1, consumer(queue, made))
	}
	moves := moveAround(t, cluster, slots, loadTime())
	cluster.AwaitOK(t) // replicas hear of moves later
	for shard := range 3 {
		cluster.Failover(t, shard)
		time.Sleep(200 * time.Millisecond)
	}
	l.Stop()
	t.Logf("%d moves, %d transactions", moves, inTx.Load())
	if moves < manyMoves || inTx.Load() < 20 {
		t.Errorf("too little happened: %d moves, %d transactions", moves, inTx.Load())
	}
}

func loadTime() time.Duration {
	if testing.Short() {
		return 3 * time.Second
	}
	return 8 * time.Second
}

// manyMoves are enough to show anything. On a busy machine they take longer.
const manyMoves = 20

// moveAround moves slots between the masters, most with a stop half-way, and says how
// many.
func moveAround(t *testing.T, c *redistest.Cluster, slots []int, length time.Duration) (n int) {
	t.Helper()
	late := time.Now().Add(2 * time.Minute)
	for until := time.Now().Add(length); (time.Now().Before(until) || n < manyMoves && time.Now().Before(late)) && !t.Failed(); n++ {
		slot := slots[rand.IntN(len(slots))]
		from := c.Owner(t, slot)
		to := c.Nodes[rand.IntN(3)]
		if to == from {
			n--
			continue
		}
		m := c.StartMove(t, slot, to)
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		m.MoveSome(t, 1)
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		m.Finish(t)
	}
	return n
}
