package pubsub

import (
	"context"
	"sync"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// A monitor shows the client of a MONITOR what masters do.
type monitor struct {
	replies *relay.Replies

	mu         sync.Mutex
	conns      []*upstream.Conn
	closed     bool
	unanswered int // MONITORs
	partial    relay.PartialMessages
	answered   map[*upstream.Conn]bool // its MONITOR
	started    chan bool               // gets whether all have accepted
}

// startMonitor sends raw, a MONITOR, to masters, in the name of id, and returns when all
// have answered. The client has its reply then; if that is a refusal, or ctx has ended, the
// monitor is nil. The error is for the client.
func startMonitor(ctx context.Context, replies *relay.Replies, masters []*upstream.Pool, id upstream.Identity, raw []byte) (*monitor, error) {
	m := &monitor{replies: replies, unanswered: len(masters), started: make(chan bool, 1), answered: map[*upstream.Conn]bool{}}
	for _, pool := range masters {
		if err := m.open(ctx, pool, id, raw); err != nil {
			m.Close()
			return nil, err
		}
	}
	select {
	case ok := <-m.started:
		if ok {
			return m, nil
		}
	case <-ctx.Done():
	}
	m.Close()
	return nil, nil
}

// open opens a connection to a node, and sends MONITOR there.
func (m *monitor) open(ctx context.Context, pool *upstream.Pool, id upstream.Identity, raw []byte) error {
	c, err := pool.Private(ctx, id, m)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.conns = append(m.conns, c)
	m.mu.Unlock()
	c.StartPassthrough()
	c.DeliverSingly(true)
	if err := c.Send(raw, 0, m); err != nil {
		return &upstream.DownError{Err: err}
	}
	return nil
}

// Deliver implements upstream.Sink. What a master does before all have answered is not
// shown: the client has no reply yet.
func (m *monitor) Deliver(c *upstream.Conn, p []byte, _ int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	line, complete := m.partial.Add(c, p, m.replies.Limit())
	switch {
	case !complete:
	case m.answered[c] && m.unanswered > 0:
	case m.answered[c]:
		m.replies.Push(line)
	case line[0] == '-':
		m.refuseLocked(line)
	default:
		m.answered[c] = true
		if m.unanswered--; m.unanswered == 0 {
			m.replies.Push(line)
			m.started <- true
		}
	}
}

func (m *monitor) refuseLocked(reply []byte) {
	m.closed = true
	m.replies.Push(reply)
	m.started <- false
}

// Fail implements upstream.Sink.
func (m *monitor) Fail(_ *upstream.Conn, _ int, _ bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
	case m.unanswered > 0:
		m.refuseLocked(relay.AppendLost(nil, err))
	default:
		m.replies.Disconnect()
	}
}

// Close ends it and closes the connections.
func (m *monitor) Close() {
	m.mu.Lock()
	m.closed = true
	conns := m.conns
	m.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// Full implements upstream.Owner.
func (m *monitor) Full() <-chan struct{} { return m.replies.Full() }
