package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// timedSends is the number of sends on a shared connection of which one is timed:
// reading the clock costs as much as queueing a command.
const timedSends = 64

// Stats are the counts of an Upstream since it was made, and its present size.
type Stats struct {
	Nodes      int // servers that commands may go to
	Down       int // of these, those that are not Up
	Identities int // that connections are kept for, at all nodes together

	Shared int   // connections that clients share
	Pinned int   // connections that are one client's own
	Spare  int   // connections opened ahead for one client
	Queued int64 // bytes that wait for the upstream to read

	Opened     int64 // connections
	Failures   int64 // connections that could not be opened: the upstream did not answer
	Lost       int64 // connections that ended although the proxy had not closed them
	Reconnects int64 // shared connections opened again after they were lost
}

// traffic is what went over some connections.
type traffic struct {
	metrics.Traffic
	replies atomic.Int64 // to commands
}

// counters are those of all pools of an Upstream.
type counters struct {
	opened, failures, lost, reconnects atomic.Int64 // connections

	traffic   metrics.Shards[traffic]
	errors    metrics.Errors    // error replies, also to the pool's own commands; not of a MONITOR, a SYNC or a RESP2 subscriber
	replyTime metrics.Histogram // of one in timedSends sends on shared connections

	mu   sync.Mutex
	live map[*Conn]struct{} // that have not ended
}

func newCounters() *counters { return &counters{live: map[*Conn]struct{}{}} }

// connOpened comes before the first use of c.
func (m *counters) connOpened(c *Conn) {
	c.traffic = m.traffic.For(uint64(m.opened.Add(1)))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[c] = struct{}{}
}

func (m *counters) connEnded(c *Conn) {
	if c.wasLost() {
		m.lost.Add(1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, c)
}

// monotonicNow is the time since programStart in ns, plus 1: it is never 0.
func monotonicNow() int64 { return int64(time.Since(programStart)) + 1 }

var programStart = time.Now()

// observe counts the time from a send to the last of its replies, which came now.
// sentAt is by monotonicNow; 0: the send is not timed.
func (m *counters) observe(sentAt int64) {
	if sentAt != 0 {
		m.replyTime.Observe(time.Duration(monotonicNow() - sentAt))
	}
}

// countError counts an error reply, of which reply is the last part. It is for the
// reader.
func (c *Conn) countError(reply []byte) {
	if c.midReply {
		reply = nil // its first word came before
	}
	c.pool.opt.counters.errors.Count(reply)
}

// wasLost reports whether the connection has ended although the proxy did not close it.
func (c *Conn) wasLost() bool {
	err := c.reason()
	return err != nil && err != errClosed && err != errRevoked
}

// Stats are the present counts. It does no I/O.
func (u *Upstream) Stats() Stats {
	m := u.counters
	st := Stats{Opened: m.opened.Load(), Failures: m.failures.Load(), Lost: m.lost.Load(), Reconnects: m.reconnects.Load()}
	for _, p := range u.all() {
		st.Nodes++
		if !p.Up() {
			st.Down++
		}
		st.Identities += p.identities()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.live {
		c.addTo(&st)
	}
	return st
}

// Report implements metrics.Reporter.
func (u *Upstream) Report(r *metrics.Report) {
	st := u.Stats()
	r.Histogram("lockproxy_upstream_reply_seconds", "How long the upstream took to answer: one in 64 bursts of commands on shared connections, from its being handed over to the last of its replies.", &u.counters.replyTime)
	r.Errors("lockproxy_upstream_errors_total", "Error replies of the upstream by their first word; other: one that is not among those that are counted apart.", &u.counters.errors)
	const connections = "Connections to the upstream: shared by clients; pinned, one client's own; spare, opened ahead for one."
	r.Gauge("lockproxy_upstream_connections", connections, float64(st.Pinned), "kind", "pinned")
	r.Gauge("lockproxy_upstream_connections", connections, float64(st.Shared), "kind", "shared")
	r.Gauge("lockproxy_upstream_connections", connections, float64(st.Spare), "kind", "spare")
	r.Gauge("lockproxy_upstream_identities", "Users, databases and protocols that connections are kept for, at all servers together.", float64(st.Identities))
	r.Gauge("lockproxy_upstream_servers", "Servers that commands may go to, replicas too.", float64(st.Nodes))
	r.Gauge("lockproxy_upstream_servers_down", "Servers that could not be reached when last tried, a second ago at most.", float64(st.Down))
	r.Counter("lockproxy_upstream_opened_total", "Connections opened to the upstream.", st.Opened)
	r.Counter("lockproxy_upstream_failures_total", "Connections that could not be opened, since the upstream was not there.", st.Failures)
	r.Counter("lockproxy_upstream_lost_total", "Connections that ended without the proxy having closed them.", st.Lost)
	r.Counter("lockproxy_upstream_reconnects_total", "Shared connections opened again after they were lost.", st.Reconnects)
	r.Gauge("lockproxy_upstream_queued_bytes", "Bytes that wait for the upstream to read.", float64(st.Queued))
	for t := range u.counters.traffic.All() {
		r.Counter("lockproxy_upstream_replies_total", "Replies of the upstream.", t.replies.Load())
		r.Counter("lockproxy_upstream_writes_total", "Writes to the upstream; each carries the commands of one client or of many.", t.Writes.Load())
		r.Counter("lockproxy_upstream_reads_total", "Reads from the upstream.", t.Reads.Load())
		r.Counter("lockproxy_upstream_sent_bytes_total", "Bytes sent to the upstream.", t.BytesOut.Load())
		r.Counter("lockproxy_upstream_received_bytes_total", "Bytes received from the upstream.", t.BytesIn.Load())
	}
}

// addTo adds a live connection to st.
func (c *Conn) addTo(st *Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.shared:
		st.Shared++
	case c.owner != nil:
		st.Pinned++
	default:
		st.Spare++
	}
	st.Queued += int64(len(c.queue))
}

// identities is the number of identities whose connections are kept.
func (p *Pool) identities() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.groups.Keys() {
		if k.class == MainClass {
			n++
		}
	}
	return n
}
