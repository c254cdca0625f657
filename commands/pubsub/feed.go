package pubsub

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A Feed brings one client of a Cluster what is no reply to it: the messages of its
// subscriptions, and what a MONITOR shows. Its methods are for the session's goroutine.
type Feed struct {
	up         *upstream.Upstream
	replies    *relay.Replies
	subscriber *subscriber // nil before the first SUBSCRIBE
	monitor    *monitor    // nil without MONITOR
}

// NewFeed returns the Feed of a client to which nothing is brought yet.
func NewFeed(up *upstream.Upstream, replies *relay.Replies) Feed {
	return Feed{up: up, replies: replies}
}

// Used reports whether the client has asked for subscriptions here: the Feed knows how many
// are left.
func (f *Feed) Used() bool { return f.subscriber != nil }

// Counts are the numbers of channels, patterns and shard channels.
func (f *Feed) Counts() [3]int {
	if f.subscriber == nil {
		return [3]int{}
	}
	return f.subscriber.Counts()
}

// Monitors reports whether the client has begun a MONITOR.
func (f *Feed) Monitors() bool { return f.monitor != nil }

// Active reports whether anything may come.
func (f *Feed) Active() bool { return f.monitor != nil || f.subscriber != nil && f.subscriber.Any() }

// Subscribe runs a command of the SUBSCRIBE family, for a client that is id and is owed no
// replies; see subscriber.Run. d is the client's Redirector.
func (f *Feed) Subscribe(ctx context.Context, d *relay.Redirector, id upstream.Identity, args [][]byte) error {
	if _, begins, _ := parse(args[0]); begins && len(args) < 2 {
		return &upstream.RefusedError{Reply: []byte(relay.WrongArity(args))}
	}
	if f.subscriber == nil {
		f.subscriber = newSubscriber(f.up, f.replies, d)
	}
	return f.subscriber.Run(ctx, id, args)
}

// Monitor shows the client what all masters do, for a client that is id and is owed no replies.
// raw is its MONITOR; a second one changes nothing.
func (f *Feed) Monitor(ctx context.Context, id upstream.Identity, raw []byte) (err error) {
	if f.monitor != nil {
		return nil
	}
	f.replies.Flush()
	masters := f.up.View().Masters()
	if len(masters) == 0 {
		masters = []*upstream.Pool{f.up.Pool()}
	}
	f.monitor, err = startMonitor(ctx, f.replies, masters, id, raw)
	return err
}

// SetIdentity sets who the client is, and its protocol, from now on.
func (f *Feed) SetIdentity(id upstream.Identity) {
	if f.subscriber != nil {
		f.subscriber.SetIdentity(id)
	}
}

// Authenticate logs the connections that have subscriptions in as id.
func (f *Feed) Authenticate(ctx context.Context, id upstream.Identity) error {
	if f.subscriber == nil {
		return nil
	}
	return f.subscriber.Authenticate(ctx, id)
}

// Close ends all subscriptions and a MONITOR. The Feed can be used again.
func (f *Feed) Close() {
	if f.subscriber != nil {
		f.subscriber.Close()
	}
	if f.monitor != nil {
		f.monitor.Close()
	}
	f.subscriber, f.monitor = nil, nil
}

// Refusal is what the client gets in place of the reply to a command that it may not say now, or to PING; nil: it may. cmd is
// what the upstream says of it; nil: nothing. What the upstream refuses in its own words is left to it.
func (f *Feed) Refusal(proto int, cmd *spec.Command, args [][]byte) []byte {
	switch {
	case cmd == nil || !cmd.Takes(len(args)):
	case proto != 3 && f.subscriber != nil && f.subscriber.Any():
		return subscriberModeReply(args)
	case f.monitor != nil && usesKeys(cmd, args[0]):
		return []byte("-ERR Replica can't interact with the keyspace\r\n")
	}
	return nil
}

// usesKeys reports whether a command reads or writes keys, or may: from 7.0 on Redis refuses these to a client that
// monitors. Scripts and PUBLISH are among them, by a flag that COMMAND does not tell.
func usesKeys(cmd *spec.Command, name []byte) bool {
	return cmd.Flags&(spec.ReadOnly|spec.Write) != 0 ||
		slices.ContainsFunc([]string{"EVAL", "EVALSHA", "FCALL", "PUBLISH", "SPUBLISH"}, func(s string) bool { return resp.Is(name, s) })
}

// subscriberModeReply is the reply to a command of a client that may say little but SUBSCRIBE and UNSUBSCRIBE: in RESP2, with
// subscriptions.
func subscriberModeReply(args [][]byte) []byte {
	switch isPing := resp.Is(args[0], "PING"); {
	case isPing && len(args) > 2:
		return nil
	case isPing && len(args) == 2:
		return resp.AppendCommand(nil, []byte("pong"), args[1])
	case isPing:
		return resp.AppendCommand(nil, "pong", "")
	}
	return resp.AppendError(nil, SubscriberModeError(args[0]))
}

// SubscriberModeError is Redis's error to a client in that mode.
func SubscriberModeError(name []byte) string {
	return fmt.Sprintf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", relay.Lower(name))
}
