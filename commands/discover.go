package commands

import (
	"bytes"
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// discovered is the upstream's own table of commands. It does not change.
type discovered struct {
	table *spec.Table
	// on is the connection that the table came on: once that has ended, the upstream may be
	// another one. nil: its commands have changed since.
	on *upstream.Conn
	at time.Time // when it came
}

// rediscoverEvery is how often the upstream is asked again because of unknown commands: a
// module may have been loaded past the proxy.
const rediscoverEvery = time.Second

// The rows of commands that Redis 7.0 does not have.
var (
	ordinaryRow = &command{}
	blockingRow = &command{need: always(blockingConn)}
)

// row is the row of a command that Redis 7.0 does not have; nil: the upstream must be
// asked. k may be nil.
func (k *discovered) row(args [][]byte) *command {
	if k == nil || k.on == nil || !k.on.Alive() {
		return nil
	}
	c := k.table.Lookup(args)
	switch {
	case c == nil && time.Since(k.at) > rediscoverEvery:
		return nil
	case c != nil && c.Flags&spec.Blocking != 0:
		return blockingRow
	}
	return ordinaryRow
}

// upstreamTable is the upstream's table of commands, as far as discovered.
func (d *Dispatcher) upstreamTable() *spec.Table {
	if k := d.discovered.Load(); k != nil {
		return k.table
	}
	return spec.Builtin()
}

// row is the row of a command; nil: the upstream must be asked first. It does not
// allocate.
func (s *Session) row(args [][]byte) *command {
	c := s.d.rows.lookup(args)
	if s.tally.Note(c.counted()); c != nil {
		return c
	}
	if s.mode == onPassthrough || s.tx.In || s.undiscoverable != nil && s.undiscoverable.Alive() {
		return ordinaryRow
	}
	return s.d.discovered.Load().row(args)
}

// discoverRow is row that asks the upstream. What that does not tell is an ordinary
// command.
func (s *Session) discoverRow(ctx context.Context, args [][]byte) *command {
	c := s.row(args)
	if c == nil {
		s.discover(ctx, args)
		c = s.row(args)
	}
	if c == nil {
		c = ordinaryRow
	}
	return c
}

// discover asks the upstream for its commands because of one, for all sessions. It
// reports no error: the command that needed it will meet the reason.
func (s *Session) discover(ctx context.Context, args [][]byte) {
	d := s.d
	if s.mustStayPinned() && s.idle(ctx) != nil { // its pinned connection will be asked
		return
	}
	select {
	case d.discovering <- struct{}{}:
		defer func() { <-d.discovering }()
	case <-s.clientCtx.Done():
		return
	case <-ctx.Done():
		return
	}
	before := d.discovered.Load()
	if before.row(args) != nil {
		return
	}
	a := s.asker()
	c, giveBack := a.Conn(ctx)
	if c == nil {
		return
	}
	defer giveBack()
	reply := a.Ask(ctx, c, resp.AppendCommand(nil, "COMMAND"))
	if reply == nil || c.NeedsAuth() || bytes.HasPrefix(reply, []byte("-BUSY ")) {
		return // another time
	}
	t, err := spec.Parse(reply)
	if err != nil {
		s.undiscoverable = c
		return
	}
	d.discovered.CompareAndSwap(before, &discovered{table: t, on: c, at: time.Now()}) // unless forgotten meanwhile
}

// forgetTable has the upstream's commands discovered again.
func (d *Dispatcher) forgetTable() { d.discovered.Store(&discovered{table: d.upstreamTable()}) }

// runModule sends MODULE LOAD, LOADEX or UNLOAD, and waits for the reply: a command that
// the module brings may follow.
func (s *Session) runModule(ctx context.Context, q request) {
	if !s.pin(ctx) {
		return
	}
	reply, err := s.replies.Ask(ctx, s.pinned, q.raw)
	if _, refused := resp.Error(reply); !refused {
		s.d.forgetTable()
	}
	if err != nil {
		s.replyErr(err)
		return
	}
	s.replies.Local(reply)
}
