package commands

import (
	"bytes"
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/spec"
	"github.com/lockproxy/lockproxy/commands/table"
)

// The rows of commands that Redis 7.0 does not have.
var (
	ordinaryRow = &command{}
	blockingRow = &command{Need: table.Always(table.BlockingConn)}
)

// row is the row of a command; nil: the upstream must be asked first. It does not
// allocate.
func (s *Session) row(args [][]byte) *command {
	if c := s.plainRow(args); !s.isAdopted(c, args) {
		return c
	}
	return adoptedRow
}

// plainRow is row without regard to adopted locks.
func (s *Session) plainRow(args [][]byte) *command {
	c := s.d.rows.Lookup(args)
	if s.tally.Note(c.Counted()); c != nil {
		return c
	}
	if s.mode == onPassthrough || s.tx.In || s.undiscoverable != nil && s.undiscoverable.Alive() {
		return ordinaryRow
	}
	switch c, known := s.d.discovery.Lookup(args); {
	case !known:
		return nil
	case c != nil && c.Flags&spec.Blocking != 0:
		return blockingRow
	}
	return ordinaryRow
}

// discoverRow is row, but asks the upstream about a command that is not known. If it does not tell, the command is an
// ordinary one.
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

// discover asks the upstream for its commands, for all sessions, because that in args is not known. It returns no error:
// the command itself will fail with it.
func (s *Session) discover(ctx context.Context, args [][]byte) {
	if s.mustStayPinned() && s.idle(ctx) != nil { // its pinned connection will be asked
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.clientCtx, cancel)()
	var on *upstream.Conn
	err := s.d.discovery.Learn(ctx, args, func() ([]byte, spec.Source) {
		a := s.asker()
		c, giveBack := a.Conn(ctx)
		if c == nil {
			return nil, nil
		}
		defer giveBack()
		on = c
		reply := a.Ask(ctx, c, resp.AppendCommand(nil, "COMMAND"))
		if c.NeedsAuth() || bytes.HasPrefix(reply, []byte("-BUSY ")) {
			return nil, nil
		}
		return reply, c
	})
	if err != nil {
		s.undiscoverable = on
	}
}

// runModule sends MODULE LOAD, LOADEX or UNLOAD, and waits for the reply: a command that
// the module brings may follow.
func (s *Session) runModule(ctx context.Context, q request) {
	reply, asked := s.askPinned(ctx, q.raw)
	if _, refused := resp.Error(reply); asked && !refused {
		s.d.discovery.Forget()
	}
}
