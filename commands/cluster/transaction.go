package cluster

import (
	"bytes"
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A Transaction is where a client's MULTI is, as far as known: its node is that of its first key.
// Before there is one it is on any node, and what was sent there is kept, for it may have to move.
// The zero value is a MULTI that was just sent. It belongs to the session's goroutine.
type Transaction struct {
	slot   int
	placed bool     // slot is known
	sent   [][]byte // before it was
}

// Placed reports whether the node is known.
func (t *Transaction) Placed() bool { return t.placed }

// Keep keeps a command that was sent behind MULTI, which may have to be sent again.
func (t *Transaction) Keep(raw []byte) {
	if !t.placed {
		t.sent = append(t.sent, bytes.Clone(raw))
	}
}

// Ended notes that EXEC or DISCARD was sent: the transaction moves no more.
func (t *Transaction) Ended() { t.sent = nil }

// Queue decides about a command that goes along r and is to be queued on a connection to at, where
// the client may be watching keys. refusal is what it gets instead, if not empty. If moves the
// transaction must first move to another node: see MoveTo.
func (rt *Router) Queue(t *Transaction, r Route, cmd *spec.Command, args [][]byte, at *upstream.Pool, watching bool) (refusal string, moves bool) {
	switch r.Kind {
	case OneNode:
		elsewhere := rt.view.Master(r.Slot) != at
		switch {
		case t.placed && r.Slot != t.slot, !t.placed && elsewhere && watching:
			return CrossSlotError, false
		case !t.placed && elsewhere:
			return "", true
		}
		*t = Transaction{slot: r.Slot, placed: true}
		return "", false
	case BadKeys, SlotUncovered:
		return r.Answer, false
	case SeveralSlots:
		return CrossSlotError, false
	case UnknownKeys:
		return ErrorAbout(args, "the proxy cannot tell its keys inside a transaction"), false
	}
	if cmd == nil || !cmd.Takes(len(args)) { // refused in the node's words
		return "", false
	}
	switch r.Kind {
	case AllMasters, NodeByNode:
		return ErrorAbout(args, "a transaction is executed by one node of the Cluster, and this asks all"), false
	case Refused:
		return r.Answer, false
	}
	return "", false
}

// MoveTo begins the transaction anew on c, a connection to the node that serves slot: nothing of it
// has been executed yet. It is not ok if the node refuses MULTI.
func (t *Transaction) MoveTo(ctx context.Context, replies *relay.Replies, c *upstream.Conn, slot int) (ok bool, err error) {
	for i, command := range append([][]byte{resp.AppendCommand(nil, "MULTI")}, t.sent...) {
		reply, err := replies.Ask(ctx, c, command)
		if err != nil {
			return false, err
		}
		if _, refused := resp.Error(reply); refused && i == 0 {
			return false, nil
		}
	}
	*t = Transaction{slot: slot, placed: true}
	return true, nil
}
