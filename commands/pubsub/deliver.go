package pubsub

import (
	"bytes"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// Deliver implements upstream.Sink: messages, confirmations, and refusals in their place.
func (l *subscriber) Deliver(c *upstream.Conn, p []byte, _ int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, complete := l.partial.Add(c, p, l.replies.Limit())
	if !complete || l.closed {
		return
	}
	switch p[0] {
	case '-':
		l.refuseLocked(c, p)
		return
	case '+':
		l.confirmLocked(c, "auth", "")
		return
	}
	elems, ok := resp.Elements(append([]byte{'*'}, p[1:]...))
	if !ok || len(elems) < 3 {
		return
	}
	kind, name := string(resp.Bulk(elems[0])), string(resp.Bulk(elems[1]))
	switch kind {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		if !l.confirmLocked(c, kind, name) && kind == "sunsubscribe" {
			l.redirector.Go(func() { l.moveShard(name) }) // the slot has moved
		}
	case "message", "smessage":
		if l.confirmed.has(strings.TrimSuffix(kind, "message"), name) {
			l.replies.Push(l.inProtocol(p))
		}
	case "pmessage":
		at := l.pools[patterns+" "+name]
		if l.confirmed.has(patterns, name) && (len(at) < 2 || l.nodes[at[0]] == c || isKeyspace(resp.Bulk(elems[2]))) {
			l.replies.Push(l.inProtocol(p))
		}
	}
}

// inProtocol is a message in the client's protocol.
func (l *subscriber) inProtocol(push []byte) []byte {
	if l.id.Proto == 3 {
		return push
	}
	p := bytes.Clone(push)
	p[0] = '*'
	return p
}

// confirmLocked takes a confirmation. It reports false for one that was not asked for.
func (l *subscriber) confirmLocked(c *upstream.Conn, command, name string) bool {
	i := slices.IndexFunc(l.awaiting[c], func(e confirmation) bool { return e.command == command && e.name == name })
	if i < 0 {
		return false
	}
	e := l.awaiting[c][i]
	l.awaiting[c] = slices.Delete(l.awaiting[c], i, i+1)
	if e.left != nil {
		if *e.left--; *e.left == 0 {
			l.confirmToClientLocked(command, []byte(name))
		}
	}
	e.done <- nil
	return true
}

func (l *subscriber) refuseLocked(c *upstream.Conn, refusal []byte) {
	if len(l.awaiting[c]) > 0 {
		e := l.awaiting[c][0]
		l.awaiting[c] = slices.Delete(l.awaiting[c], 0, 1)
		e.done <- bytes.Clone(refusal)
	}
}

// confirmToClientLocked takes over a change, and confirms it to the client.
func (l *subscriber) confirmToClientLocked(kind string, name []byte) {
	l.confirmed.Note([][]byte{bytes.ToUpper([]byte(kind)), name})
	l.replies.Push(l.confirmationReply(kind, resp.AppendBulk(nil, name)))
}

// confirmationReply is the confirmation of a change to a client; name is a reply.
func (l *subscriber) confirmationReply(kind string, name []byte) []byte {
	counts := l.confirmed.Counts()
	n := counts[0] + counts[1]
	if kind[0] == 's' && kind != "subscribe" {
		n = counts[2]
	}
	b := append([]byte{'>'}, "3\r\n"...)
	b = resp.AppendBulkString(b, kind)
	b = append(b, name...)
	return l.inProtocol(resp.AppendInt(b, int64(n)))
}

// Fail implements upstream.Sink. The client is disconnected, as by a Redis that goes away:
// its subscriptions there are lost.
func (l *subscriber) Fail(c *upstream.Conn, _ int, _ bool, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.awaiting[c]
	delete(l.awaiting, c)
	delete(l.logins, c)
	for _, e := range waiting {
		e.done <- relay.AppendLost(nil, relay.ErrLost)
	}
	if !l.closed {
		l.replies.Disconnect()
	}
}

// Full implements upstream.Owner.
func (l *subscriber) Full() <-chan struct{} { return l.replies.Full() }
