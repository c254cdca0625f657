package commands

import (
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// clusterRouter is what a session knows of an upstream of several nodes.
type clusterRouter struct {
	view       *upstream.View // by which everything that is under way was sent
	conns      map[*upstream.Pool]*[upstream.ConnClasses]*upstream.Conn
	batches    []batch
	redirector *relay.Redirector

	// tracking is the client's CLIENT TRACKING: then conns are the session's own. nil: off.
	tracking     []byte
	trackedConns map[*upstream.Conn]*relay.TrackedConn // who owns these
	caching      []byte                                // CLIENT CACHING about the next command; may be nil
}

// A batch is commands to one node that will be sent together. What was sent is kept
// by its requests, which may have to be sent again.
type batch struct {
	conn  *upstream.Conn
	raw   []byte
	sinks []upstream.Sink
}

// drop gives back borrowed connections.
func (rt *clusterRouter) drop(which func(*upstream.Conn) bool) {
	for pool, cs := range rt.conns {
		left := 0
		for class, c := range cs {
			if c != nil && which(c) {
				rt.leave(c)
				cs[class] = nil
			} else if c != nil {
				left++
			}
		}
		if left == 0 {
			delete(rt.conns, pool)
		}
	}
}

// leave gives up a connection of conns.
func (rt *clusterRouter) leave(c *upstream.Conn) {
	o := rt.trackedConns[c]
	if o == nil {
		upstream.Return(c)
		return
	}
	if c.Alive() { // else the client is to be disconnected
		o.Abandon()
	}
	delete(rt.trackedConns, c)
	c.Close()
}

// gather adds a request, with a copy of its command, to what will be sent to a node.
func (rt *clusterRouter) gather(c *upstream.Conn, next *relay.Request) {
	i := 0
	for i < len(rt.batches) && rt.batches[i].conn != c {
		i++
	}
	if i == len(rt.batches) {
		rt.batches = append(rt.batches, batch{conn: c})
	}
	b := &rt.batches[i]
	n := len(b.raw)
	b.raw = append(b.raw, next.Raw...)
	next.Raw = b.raw[n:len(b.raw):len(b.raw)]
	for range 1 + next.Skip {
		b.sinks = append(b.sinks, next)
	}
}

// flush sends what was gathered.
func (rt *clusterRouter) flush() {
	for i, b := range rt.batches {
		rt.batches[i] = batch{}
		if err := b.conn.SendEach(b.raw, b.sinks); err != nil {
			for _, to := range b.sinks {
				to.Fail(b.conn, 1, false, err)
			}
		}
	}
	rt.batches = rt.batches[:0]
}

// conn is the borrowed connection to a node; nil if there is none of use.
func (rt *clusterRouter) conn(pool *upstream.Pool, class upstream.ConnClass) *upstream.Conn {
	if cs := rt.conns[pool]; cs != nil && cs[class] != nil && cs[class].Alive() {
		return cs[class]
	}
	return nil
}

// keep makes c the connection to a node.
func (rt *clusterRouter) keep(pool *upstream.Pool, class upstream.ConnClass, c *upstream.Conn) {
	cs := rt.conns[pool]
	if cs == nil {
		cs = &[upstream.ConnClasses]*upstream.Conn{}
		rt.conns[pool] = cs
	}
	if cs[class] != nil {
		rt.leave(cs[class])
	}
	cs[class] = c
}
