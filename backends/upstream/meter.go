package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// timeOne is how many sends on a shared connection there are to one whose replies are
// timed: reading the clock for each would cost more than the answer is worth.
const timeOne = 64

// Stats is what an Upstream has done since it was made, and has now.
type Stats struct {
	Nodes      int // servers that commands may go to
	Down       int // those that could not be reached when last tried, not long ago
	Identities int // that connections are kept for, at all nodes together

	Shared int   // connections that clients share
	Pinned int   // connections that are one client's own
	Spare  int   // connections opened ahead for one
	Queued int64 // bytes that wait for the upstream to read

	Opened     int64 // connections
	Failures   int64 // connections that could not be opened because the upstream was not there
	Lost       int64 // connections that ended without the proxy having closed them
	Reconnects int64 // shared connections opened again after they were lost

	Traffic
}

// Traffic is what went over connections to the upstream. What the last read of one that
// lives has brought may count with the next.
type Traffic struct {
	Writes   int64 // bursts of commands, of one client or of many
	BytesOut int64
	Reads    int64
	BytesIn  int64
	Replies  int64 // that were owed to somebody
}

type traffic struct{ Traffic }

func (t *traffic) wrote(p []byte) {
	t.Writes++
	t.BytesOut += int64(len(p))
}

// add moves what u has to t.
func (t *traffic) add(u *traffic) {
	t.Writes += u.Writes
	t.BytesOut += u.BytesOut
	t.Reads += u.Reads
	t.BytesIn += u.BytesIn
	t.Replies += u.Replies
	*u = traffic{}
}

// meters counts for all pools of an Upstream. What a connection has carried it counts
// itself, and is added up when somebody asks.
type meters struct {
	failures, lost, reconnects atomic.Int64

	errors metrics.Errors    // replies, to the proxy's own questions too; not of a MONITOR, a SYNC or a RESP2 subscriber
	took   metrics.Histogram // of one in timeOne sends on shared connections

	mu    sync.Mutex
	began int64              // connections
	conns map[*Conn]struct{} // that have not ended
	gone  traffic            // of those that have
}

func newMeters() *meters { return &meters{conns: map[*Conn]struct{}{}} }

func (m *meters) opened(c *Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began++
	m.conns[c] = struct{}{}
}

// ended is called by the reader of c, at its end.
func (m *meters) ended(c *Conn) {
	if c.wasLost() {
		m.lost.Add(1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count.add(&c.news)
	m.gone.add(&c.count)
	delete(m.conns, c)
}

// clock is the time since the program began, in ns. It is never 0.
func clock() int64 { return int64(time.Since(began)) + 1 }

var began = time.Now()

// timed notes that the last reply to a send came that was made at a time; 0: it is not
// timed.
func (m *meters) timed(at int64) {
	if at != 0 {
		m.took.Observe(time.Duration(clock() - at))
	}
}

// refused counts an error reply, or its last part. The reader alone may call it.
func (c *Conn) refused(reply []byte) {
	if c.inside {
		reply = nil // its beginning came before
	}
	c.home.opt.meter.errors.Count(reply)
}

// wasLost says that a connection has ended and nobody here closed it.
func (c *Conn) wasLost() bool {
	why := c.reason()
	return why != nil && why != errClosed && why != errRevoked
}

// Stats waits for no I/O.
func (u *Upstream) Stats() Stats {
	m := u.meter
	st := Stats{Failures: m.failures.Load(), Lost: m.lost.Load(), Reconnects: m.reconnects.Load()}
	for _, p := range u.all() {
		st.Nodes++
		if !p.Up() {
			st.Down++
		}
		st.Identities += p.identities()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := m.gone
	for c := range m.conns {
		c.addTo(&st, &sum)
	}
	st.Opened, st.Traffic = m.began, sum.Traffic
	return st
}

// Report implements metrics.Reporter.
func (u *Upstream) Report(r *metrics.Report) {
	st := u.Stats()
	r.Histogram("lockproxy_upstream_reply_seconds", "How long the upstream took to answer: one in 64 bursts of commands on shared connections, from its being handed over to the last of its replies.", &u.meter.took)
	r.Errors("lockproxy_upstream_errors_total", "Error replies of the upstream by their first word; other: one that is not among those that are counted apart.", &u.meter.errors)
	r.Counter("lockproxy_upstream_replies_total", "Replies of the upstream.", st.Replies)
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
	r.Counter("lockproxy_upstream_writes_total", "Writes to the upstream; each carries the commands of one client or of many.", st.Writes)
	r.Counter("lockproxy_upstream_reads_total", "Reads from the upstream.", st.Reads)
	r.Counter("lockproxy_upstream_sent_bytes_total", "Bytes sent to the upstream.", st.BytesOut)
	r.Counter("lockproxy_upstream_received_bytes_total", "Bytes received from the upstream.", st.BytesIn)
}

// addTo adds what a connection is and has carried.
func (c *Conn) addTo(st *Stats, sum *traffic) {
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
	count := c.count
	sum.add(&count)
}

// identities is how many have a connection, or had one not long ago.
func (p *Pool) identities() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.groups.Keys() {
		if k.lane == MainClass {
			n++
		}
	}
	return n
}
