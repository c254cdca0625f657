package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// AskMasters has every master do a command, each on a connection of its own, and returns the first
// error among the replies, or the first reply.
func (rt *Router) AskMasters(ctx context.Context, as relay.Sender, command []byte) ([]byte, error) {
	replies, err := rt.askMasters(ctx, as, command)
	if err != nil {
		return nil, err
	}
	return Merger(First).Merge(replies), nil
}

// Wait is AskMasters of a WAIT or WAITAOF: the least of what all masters say. Redis waits for the
// replication offset after the last command of a connection; a PING brings it up to date.
func (rt *Router) Wait(ctx context.Context, as relay.Sender, command []byte) ([]byte, error) {
	replies, err := rt.askMasters(ctx, as, resp.AppendCommand(nil, "PING"), command)
	if err != nil {
		return nil, err
	}
	return Merger(Min).Merge(replies), nil
}

// KillScript is AskMasters of a SCRIPT KILL or FUNCTION KILL: a script runs on one of the nodes, and
// the others refuse.
func (rt *Router) KillScript(ctx context.Context, as relay.Sender, command []byte) ([]byte, error) {
	replies, err := rt.askMasters(ctx, as, command)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(replies, func(reply []byte) bool { return reply[0] == '+' }); i >= 0 {
		return replies[i], nil
	}
	return Merger(First).Merge(replies), nil
}

// askMasters asks every master, each on a connection of its own, and returns the replies to the
// last of commands, of which there is at least one.
func (rt *Router) askMasters(ctx context.Context, as relay.Sender, commands ...[]byte) (replies [][]byte, err error) {
	masters := rt.view.Masters()
	answers := make([]chan []byte, len(masters))
	for i, pool := range masters {
		conn, err := pool.Private(ctx, as.ID, rt.replies)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		for _, c := range commands {
			answers[i] = make(chan []byte, 1)
			got := answers[i]
			rt.replies.ExpectCaptured(conn, func(reply []byte) { got <- reply })
			rt.replies.Send(conn, c, 1)
		}
	}
	for _, got := range answers {
		select {
		case reply := <-got:
			if reply == nil {
				return nil, &upstream.DownError{Err: relay.ErrLost}
			}
			replies = append(replies, reply)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if len(replies) == 0 {
		return nil, &upstream.DownError{Err: errors.New("no node of the Cluster is known")}
	}
	return replies, nil
}
