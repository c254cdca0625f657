package commands

import (
	"bytes"
	"context"
	"errors"
	"log/slog"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/adopt"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/pubsub"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/table"
)

// adoptedRow is the row of commands that are, or may be, on the key of an adopted lock.
var adoptedRow = &command{
	Name: "adopted", Effect: table.LockVerb | table.SessionOnly,
	Do: handlers{run: (*Session).runAdopted, tryInTx: mustWait, runInTx: (*Session).queueAdopted, passthrough: mustWait},
}

// isAdopted reports whether a command is on the key of an adopted lock, or may be.
func (s *Session) isAdopted(c *command, args [][]byte) bool {
	a := s.d.opt.Adoption
	if a == nil {
		return false
	}
	s.mayTrack = s.mayTrack || c != nil && c.Name == "client|tracking"
	a.NoteScript(args)
	s.d.opt.Observer.NoteScript(args)
	yes := (c == nil || !c.Has(table.LockVerb|table.Messages)) && a.Concerns(args) && a.Adopts(adoptedConn{s}.Database(), args, s.keysOf(args))
	if !yes {
		s.burst = adopt.Burst{}
	}
	return yes
}

// Arrived notes that more was read from the client: the commands that follow may have come later than those before.
func (s *Session) Arrived() { s.burst = adopt.Burst{} }

// keysOf returns a command's keys, as far as adoption needs them.
func (s *Session) keysOf(args [][]byte) (keys adopt.Keys) {
	if adopt.IsScript(args[0]) {
		return adopt.Keys{Known: true}
	}
	if c := s.d.discovery.Table().Lookup(args); c != nil {
		keys.At, keys.Known = c.Keys(args, nil)
	} else {
		_, keys.Known = s.d.discovery.Lookup(args)
	}
	return keys
}

// runAdopted runs a command that may be on the key of an adopted lock. One that is not is run as usual.
func (s *Session) runAdopted(ctx context.Context, q request) {
	if s.mode == onPassthrough && s.tx.In { // the upstream refuses it, and aborts the EXEC
		s.d.opt.Observer.Note(&s.observed, observe.InMulti, s.id.DB, s.id.Proto, q.args, nil, adopt.Op{})
		s.pass.replyMode.Note(q.args, true)
		s.enqueue(resp.AppendCommand(nil, append([][]byte{[]byte("LOCKPROXY.ADOPTREFUSED")}, q.args...)...))
		return
	}
	if s.mode != onPassthrough && resp.Is(q.args[0], "WATCH") {
		s.watchLock(ctx, q)
		return
	}
	keys := s.keysOf(q.args)
	if !keys.Known {
		s.discover(ctx, q.args)
		keys = s.keysOf(q.args)
	}
	call, err := s.d.opt.Adoption.Call(adoptedConn{s}, q.args, keys)
	if call == nil && err == nil {
		s.burst = adopt.Burst{}
		if q.row = s.plainRow(q.args); q.row == nil {
			q.row = ordinaryRow
		}
		s.run(ctx, q)
		return
	}
	muted := s.takeReplyMode()
	s.replies.Mute(muted)
	defer s.replies.Mute(false)
	if !s.awaitTurn(ctx) {
		return
	}
	var result adopt.Result
	switch {
	case s.id.Proto == 2 && s.subscribed():
		err = errors.New(pubsub.SubscriberModeError(q.args[0]))
	case err == nil && !muted && s.keepsReply(ctx, call.Reads()):
		err = s.d.opt.Adoption.RefusedTracked(adoptedConn{s}, call)
	case err == nil:
		result, err = s.d.opt.Adoption.Decide(ctx, adoptedConn{s}, call)
		s.burst = result.Burst
	}
	s.answerAdopted(q, result, err)
}

// answerAdopted gives the client the reply to a call that was decided. If the client has left before the reply is sent,
// what it has taken is released; one that closes after the reply keeps it.
func (s *Session) answerAdopted(q request, result adopt.Result, err error) {
	taken := result.Taken.Fence != 0
	if taken && (s.clientCtx.Err() != nil || verbConn{s}.HungUp()) {
		s.d.opt.Adoption.GiveBack(adoptedConn{s}, result)
		taken, err = false, adopt.ErrClientLeft
	}
	if err != nil {
		s.replyAdopted(q, appendAdoptErr(err), adopt.Op{})
		return
	}
	s.replyAdopted(q, result.Reply, result.Op())
	if sent := s.replies.Flush(); taken && !sent {
		s.d.opt.Adoption.GiveBack(adoptedConn{s}, result)
	}
}

// keepsReply reports whether the client may keep the reply to a read of one of keys, since CLIENT TRACKING is on.
func (s *Session) keepsReply(ctx context.Context, keys []string) bool {
	if !s.mayTrack || len(keys) == 0 {
		return false
	}
	var info []byte
	var err error
	question := resp.AppendCommand(nil, "CLIENT", "TRACKINGINFO")
	switch inCluster := s.inCluster(); {
	case s.mode == onPassthrough && s.pass.mayNotAnswer && !s.pass.replyMode.On():
		return true
	case s.mode == onPassthrough:
		info, err = s.askPassthrough(ctx, question)
	case inCluster && !s.openRouter().Tracks(), !inCluster && !s.mustStayPinned():
		return false
	case inCluster:
		info, err = s.replies.Ask(ctx, s.router.Conn(s.router.View().FirstMaster(), s.connClass), question)
	default:
		info, err = s.replies.Ask(ctx, s.pinned, question)
	}
	return err != nil || clients.KeepsReplies(info, keys)
}

// appendAdoptErr returns the error reply for an error of package adopt.
func appendAdoptErr(err error) []byte {
	reply := []byte{}
	partial := (*adopt.PartialError)(nil)
	text := adopt.ReplyText(err)
	switch isPartial := errors.As(err, &partial); {
	case text != "":
		reply = resp.AppendError(nil, text)
	case isPartial && partial.Err == nil:
		reply = partial.Reply
	default:
		reply = appendErr(reply, err)
	}
	if partial != nil {
		reply = partial.Amend(reply)
	}
	return reply
}

// An adoptedConn is a session as adopted commands use it.
type adoptedConn struct{ s *Session }

// Database is AnyDatabase while a SELECT inside MULTI may take effect.
func (c adoptedConn) Database() int {
	if c.s.tx.Selects {
		return pattern.AnyDatabase
	}
	return c.s.id.DB
}

func (c adoptedConn) Protocol() int { return c.s.id.Proto }

func (c adoptedConn) Address() string { return c.s.client.Addr }

func (c adoptedConn) About() []slog.Attr { return c.s.About() }

func (c adoptedConn) MayLock(ctx context.Context, name string) error { return c.s.mayLock(ctx, name) }

func (c adoptedConn) Burst() adopt.Burst { return c.s.burst }

// MayAsk implements adopt.Connection.
func (c adoptedConn) MayAsk(ctx context.Context, command []string) error {
	if c.s.unlimited(ctx) {
		return nil
	}
	return c.s.mayAsk(ctx, resp.AppendCommand(nil, command...), command...)
}

// Ask asks out of the order of the client's commands; a reply that comes too late is dropped. If ctx has no deadline it
// ends when the client leaves.
func (c adoptedConn) Ask(ctx context.Context, args []string) ([]byte, error) {
	s, raw := c.s, resp.AppendCommand(nil, args...)
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.clientCtx, cancel)()
	}
	switch {
	case s.isUnknown():
		return s.askPassthrough(ctx, raw)
	case s.inCluster():
		words := make([][]byte, len(args))
		for i, arg := range args {
			words[i] = []byte(arg)
		}
		rule := cluster.Rule{}
		if row := s.d.rows.Lookup(words); row != nil {
			rule = row.Cluster
		}
		return cluster.Ask(ctx, s.up, relay.Sender{ID: s.id, Hint: s.hint}, s.d.discovery.Table().Lookup(words), &rule, words)
	}
	a := s.asker()
	conn, giveBack := a.Conn(ctx)
	if conn == nil {
		return nil, &upstream.DownError{Err: relay.ErrLost}
	}
	defer giveBack()
	return conn.Ask(ctx, raw, cluster.MaxAnswer)
}

// Begin asks on the shared connection that the client has, if it has one.
func (c adoptedConn) Begin(args []string) adopt.Answer {
	s := c.s
	if s.isUnknown() || s.inCluster() {
		return nil
	}
	a := s.asker()
	conn := a.Shared
	if conn == nil || !conn.Alive() || conn.NeedsAuth() || conn.Pool() != s.up.Pool() {
		return nil
	}
	answer, err := conn.Begin(resp.AppendCommand(make([]byte, 0, 128), args...), cluster.MaxAnswer)
	if err != nil {
		return nil
	}
	return answer
}

// askPassthrough asks on a passthrough connection on which all earlier commands have been answered. If no reply comes
// the client is disconnected: it would take a late one for the reply to another command.
func (s *Session) askPassthrough(ctx context.Context, raw []byte) (reply []byte, err error) {
	if s.sync(ctx, raw, &relay.Barrier{Matches: func(r []byte) bool {
		if isMessage := len(r) < 2 || r[0] == '>' || r[0] == '+' && '0' <= r[1] && r[1] <= '9'; isMessage { // the latter of MONITOR
			return false
		}
		reply = bytes.Clone(r)
		return true
	}}) {
		return reply, nil
	}
	s.out.Abort()
	return nil, &upstream.DownError{Err: relay.ErrLost}
}
