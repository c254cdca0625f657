package commands

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/pubsub"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// subscribed reports whether the client has subscriptions.
func (s *Session) subscribed() bool {
	if s.subscriber != nil {
		return s.subscriber.Any()
	}
	return s.pass.subs.Any()
}

// runSubscribe handles the commands that are not one request and one reply.
func (s *Session) runSubscribe(ctx context.Context, q request) {
	switch {
	case s.tx.In:
		s.refuseQueued(errorAbout(q.args, "not supported inside a transaction with a Cluster upstream"))
	case resp.Is(q.args[0], "MONITOR"):
		s.runMonitor(ctx, q.raw)
	case q.row.cluster.Refuse != nil:
		s.reply(q.row.cluster.Refuse(q.args))
	case !q.row.has(messages):
		s.startPassthrough(ctx, q)
	default:
		s.subscribe(ctx, q.args)
	}
}

// subscribe runs a command of the SUBSCRIBE family in a Cluster.
func (s *Session) subscribe(ctx context.Context, args [][]byte) {
	if s.idle(ctx) != nil {
		return
	}
	if pubsub.Begins(args[0]) && len(args) < 2 {
		s.reply(relay.WrongArity(args))
		return
	}
	if s.subscriber == nil {
		s.subscriber = pubsub.NewSubscriber(s.up, s.replies, s.openRouter().Redirector())
	}
	if err := s.subscriber.Run(ctx, s.id, args); err != nil {
		s.replyErr(err)
	}
}

// subscriberModeReply says what a client of RESP2 that has subscriptions hears of a command, in
// place of its reply. It is nil for commands that are fine.
func (s *Session) subscriberModeReply(c *command, args [][]byte) []byte {
	if s.id.Proto == 3 || !s.subscriber.Any() {
		return nil
	}
	cmd := s.d.discovery.Table().Lookup(args)
	switch {
	case c.has(whileSubscribed):
		return nil
	case cmd == nil || !cmd.Takes(len(args)) || resp.Is(args[0], "PING") && len(args) > 2:
		return nil // refused in the upstream's words
	case resp.Is(args[0], "PING"):
		text := []byte(nil)
		if len(args) == 2 {
			text = args[1]
		}
		return resp.AppendCommand(nil, []byte("pong"), text)
	}
	return resp.AppendError(nil, subscriberModeError(args[0]))
}

func (s *Session) closeSubscriber() {
	if s.subscriber != nil {
		s.subscriber.Close()
		s.subscriber = nil
	}
	if s.monitor != nil {
		s.monitor.Close()
		s.monitor = nil
	}
}

// runMonitor shows the client what all masters do.
func (s *Session) runMonitor(ctx context.Context, raw []byte) {
	if s.idle(ctx) != nil || s.monitor != nil {
		return
	}
	s.replies.Flush()
	masters := s.up.View().Masters()
	if len(masters) == 0 {
		masters = []*upstream.Pool{s.up.Pool()}
	}
	m, err := pubsub.StartMonitor(ctx, s.replies, masters, s.id, raw)
	if s.monitor = m; err != nil {
		s.replyErr(err)
	}
}
