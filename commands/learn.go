package commands

import (
	"bytes"
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/table"
)

// knowledge is what the upstream told of its commands. It does not change.
type knowledge struct {
	table *table.Table
	// on is where the upstream told it; once that has ended, it may be another one. nil
	// means that its commands have changed since.
	on *upstream.Conn
	at time.Time // when it did
}

// newsEvery is how often the upstream is asked because of commands that it did not
// name: a module may have been loaded past the proxy.
const newsEvery = time.Second

// kindOf is the kind of a command that Redis 7.0 has not, foreign if the upstream must
// be asked. k may be nil.
func (k *knowledge) kindOf(args [][]byte) kind {
	if k == nil || k.on == nil || !k.on.Alive() {
		return foreign
	}
	c := k.table.Lookup(args)
	switch {
	case c == nil && time.Since(k.at) > newsEvery:
		return foreign
	case c != nil && c.Flags&table.Blocking != 0:
		return blocks
	}
	return forward
}

// table is what is known of the upstream's commands.
func (d *Dispatcher) table() *table.Table {
	if k := d.known.Load(); k != nil {
		return k.table
	}
	return table.Builtin()
}

// kindOf is the kind of a command, foreign if the upstream must be asked first. It
// does not allocate.
func (s *Session) kindOf(args [][]byte) kind {
	k := lookUp(args[0])
	s.meter.family = k.family
	if k.kind != foreign {
		return k.kind
	}
	if s.mode == onPassthrough || s.tx.in || s.untold != nil && s.untold.Alive() {
		return forward
	}
	return s.d.known.Load().kindOf(args)
}

// learnKindOf is kindOf that asks the upstream. What that does not tell is forwarded.
func (s *Session) learnKindOf(ctx context.Context, args [][]byte) kind {
	k := s.kindOf(args)
	if k == foreign {
		s.learn(ctx, args)
		k = s.kindOf(args)
	}
	if k == foreign {
		k = forward
	}
	return k
}

// learn asks the upstream for its commands because of one, for all sessions. Nobody is
// told if it cannot be done: the command that needed it will meet the reason.
func (s *Session) learn(ctx context.Context, args [][]byte) {
	d := s.d
	if s.mustStayPinned() && s.idle(ctx) != nil { // its own connection will be asked
		return
	}
	select {
	case d.learning <- struct{}{}:
		defer func() { <-d.learning }()
	case <-s.clientCtx.Done():
		return
	case <-ctx.Done():
		return
	}
	before := d.known.Load()
	if before.kindOf(args) != foreign {
		return
	}
	c, giveBack := s.toAsk(ctx)
	if c == nil {
		return
	}
	defer giveBack()
	reply := s.askOn(ctx, c, resp.AppendCommand(nil, "COMMAND"))
	if reply == nil || c.NeedsAuth() || bytes.HasPrefix(reply, []byte("-BUSY ")) {
		return // another time
	}
	t, err := table.Learn(reply)
	if err != nil {
		s.untold = c
		return
	}
	d.known.CompareAndSwap(before, &knowledge{table: t, on: c, at: time.Now()}) // unless forgotten meanwhile
}

// toAsk is a connection to ask the upstream about itself on: the session's own if it
// stays there, since who the client is there is not always known. It is nil if none can
// be had.
func (s *Session) toAsk(ctx context.Context) (c *upstream.Conn, giveBack func()) {
	if s.mode != onPassthrough && s.mustStayPinned() && s.pinned != nil && s.pinned.Alive() {
		return s.pinned, func() {}
	}
	c, err := s.d.opt.Upstream.Pool().Shared(ctx, s.id, upstream.MainClass, s.hint)
	if err != nil {
		return nil, nil
	}
	return c, func() { upstream.Return(c) }
}

// forget is for commands that may have changed.
func (d *Dispatcher) forget() { d.known.Store(&knowledge{table: d.table()}) }

// module sends MODULE, and waits for the answer: what follows may be one of the
// commands that it brings.
func (s *Session) module(ctx context.Context, raw []byte, args [][]byte) {
	if len(args) < 2 || !is(args[1], "LOAD") && !is(args[1], "LOADEX") && !is(args[1], "UNLOAD") {
		s.runForward(ctx, raw)
		return
	}
	if !s.pin(ctx) {
		return
	}
	reply, err := s.ask(ctx, s.pinned, raw)
	if _, refused := resp.Error(reply); !refused {
		s.d.forget()
	}
	if err != nil {
		s.replyErr(err)
		return
	}
	s.replies.Local(reply)
}

// askOn sends a command of a single reply on a shared connection, past the session's
// own order, and returns the reply; nil if none comes before ctx ends or the client
// leaves.
func (s *Session) askOn(ctx context.Context, c *upstream.Conn, raw []byte) []byte {
	a := &answer{come: make(chan struct{})}
	if err := c.Send(raw, 1, a); err != nil {
		return nil
	}
	select {
	case <-a.come:
		return a.reply
	case <-s.clientCtx.Done():
	case <-ctx.Done():
	}
	return nil
}

// maxTable bounds what an upstream may say of its commands; Redis 8 with all its modules
// says half a megabyte.
const maxTable = 16 << 20

// An answer is an upstream.Sink for one reply.
type answer struct {
	reply []byte        // nil: the connection was lost
	come  chan struct{} // closed when it is complete
}

func (a *answer) Deliver(c *upstream.Conn, p []byte, ended int) {
	if c.Gather(&a.reply, p, ended, maxTable) {
		close(a.come)
	}
}

func (a *answer) Fail(*upstream.Conn, int, bool, error) {
	a.reply = nil
	close(a.come)
}
