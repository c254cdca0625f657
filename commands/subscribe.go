package commands

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/table"
)

// subscribed reports whether the client has subscriptions.
func (s *Session) subscribed() bool { return s.subscriptions() != [3]int{} }

// subscriptions are how many the session has: to channels, patterns and shard channels.
func (s *Session) subscriptions() [3]int {
	if s.feed.Used() {
		return s.feed.Counts()
	}
	return s.pass.subs.Counts()
}

// runSubscribe runs, in a Cluster, the commands that are not one request and one reply.
func (s *Session) runSubscribe(ctx context.Context, q request) {
	var err error
	switch {
	case s.tx.In:
		s.refuseQueued(cluster.ErrorAbout(q.args, "not supported inside a transaction with a Cluster upstream"))
	case q.row.Cluster.Refuse != nil:
		s.reply(q.row.Cluster.Refuse(q.args))
	case !q.row.Has(table.Messages):
		s.startPassthrough(ctx, q)
	case s.idle(ctx) != nil:
	case resp.Is(q.args[0], "MONITOR"):
		err = s.feed.Monitor(ctx, s.id, q.raw)
	default:
		err = s.feed.Subscribe(ctx, s.openRouter().Redirector(), s.id, q.args)
	}
	if err != nil {
		s.replyErr(err)
	}
}
