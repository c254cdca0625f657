package quorum

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

const (
	subscribeBatch = 512             // channels in one SUBSCRIBE
	pingEvery      = 5 * time.Second // a connection without messages may be dead
	longRedial     = 2 * time.Second // longest pause between two tries to listen to a node that fails
)

// cutChannel is the channel on which nodes tell that a lease was cut.
func (s *Store) cutChannel() string { return s.set.Opts.Prefix + "node:cut" }

// startListening starts the goroutines that take hints. They end with ctx; closing s.set waits for them.
func (s *Store) startListening(ctx context.Context) {
	for i, source := range s.host.Lines.Listen() {
		l := &listener{store: s, node: s.set.Members[i], source: source}
		s.set.Start(func() { l.run(ctx) })
	}
}

// A listener keeps the one connection on which a node tells of releases. It is
// opened when a caller waits for a lock, and opened again when it is lost.
type listener struct {
	store   *Store
	node    *voters.Node
	source  *locks.Source
	refused bool // the node answered a subscription with an error, which has been logged
}

// run listens until ctx ends.
func (l *listener) run(ctx context.Context) {
	for pause := voters.FirstPause; ctx.Err() == nil; pause = min(2*pause, longRedial) {
		if !l.source.Needed() {
			select {
			case <-l.source.Changed():
			case <-ctx.Done():
			}
		}
		if l.listen(ctx) {
			pause = voters.FirstPause
		}
		_ = sleep(ctx, pause)
	}
}

// listen keeps one connection subscribed to what is wanted, until it is lost or ctx
// ends. It reports whether the node answered.
func (l *listener) listen(ctx context.Context) (answered bool) {
	client := l.node.Dialled()
	if client == nil {
		return false
	}
	c, giveBack := client.Dedicate()
	defer giveBack()
	defer c.Close()
	lost := c.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: l.message, OnSubscription: l.subscription})
	defer l.source.Lost()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for l.follow(ctx, c) && l.node.Dialled() == client { // else another server is the node now
		answered = true
		select {
		case <-l.source.Changed():
		case <-ping.C:
			if l.do(ctx, c, c.B().Ping().Build()) != nil {
				return answered
			}
		case <-lost:
			return answered
		case <-ctx.Done():
			return answered
		}
	}
	return answered
}

// follow subscribes to keys that have become wanted, and unsubscribes from those that no
// longer are. It reports whether the node answered.
func (l *listener) follow(ctx context.Context, c rueidis.DedicatedClient) bool {
	wanted, unwanted := l.source.Changes()
	for some := range slices.Chunk(wanted, subscribeBatch) {
		if l.do(ctx, c, c.B().Subscribe().Channel(l.channels(some)...).Build()) != nil {
			return false
		}
	}
	for some := range slices.Chunk(unwanted, subscribeBatch) {
		if l.do(ctx, c, c.B().Unsubscribe().Channel(l.channels(some)...).Build()) != nil {
			return false
		}
	}
	return true
}

func (l *listener) channels(keys []locks.Key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		if all[i] = voters.LockKey(l.store.set.Opts.Prefix, k); k == locks.CutKey {
			all[i] = l.store.cutChannel()
		}
	}
	return all
}

// keyOf is the key of a channel.
func (l *listener) keyOf(channel string) (k locks.Key, ok bool) {
	if channel == l.store.cutChannel() {
		return locks.CutKey, true
	}
	return voters.ParseLockKey(l.store.set.Opts.Prefix, channel)
}

func (l *listener) do(ctx context.Context, c rueidis.DedicatedClient, cmd rueidis.Completed) error {
	ctx, cancel := context.WithTimeout(ctx, voters.CallTimeout)
	defer cancel()
	err := c.Do(ctx, cmd).Error()
	if answer := (*rueidis.RedisError)(nil); errors.As(err, &answer) && !l.refused {
		l.refused = true
		l.store.set.Opts.Log.Warn("lock node does not tell what is released, so that waiting takes longer", "node", l.node.Server.String(), "reason", err)
	}
	l.refused = l.refused && err != nil
	return err
}

func (l *listener) subscription(m rueidis.PubSubSubscription) {
	if k, ok := l.keyOf(m.Channel); ok && m.Kind == "subscribe" {
		l.source.Confirm(k)
	}
}

// cutPause is how long a session waits, or up to twice as long, before it renews a lease that a node says was cut: the
// renewal that cut it is still on its way to the other nodes, and another one meanwhile would make both start again.
const cutPause = 5 * time.Millisecond

// message reads what the scripts publish.
func (l *listener) message(m rueidis.PubSubMessage) {
	if m.Channel == l.store.cutChannel() {
		if h, ok := parseCut(m.Message, l.store.set.Opts.Prefix); ok {
			l.store.host.Keepalive.RecheckIn(cutPause+l.store.set.Opts.Random.UpTo(cutPause), h, true)
		}
		return
	}
	fence, how, _ := strings.Cut(m.Message, " ")
	n, err := strconv.ParseInt(fence, 10, 64)
	k, ok := l.keyOf(m.Channel)
	if err != nil || !ok {
		return
	}
	kind := locks.Freed
	switch how {
	case "handed":
		kind = locks.Passed
	case "undo":
		kind = locks.Undone
	}
	l.source.Released(k, n, kind)
}

// parseCut reads whose lease a node has cut.
func parseCut(message, prefix string) (h locks.Holder, ok bool) {
	length, rest, _ := strings.Cut(message, " ")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return h, false
	}
	h.Owner = rest[:n]
	h.Key, ok = voters.ParseLockKey(prefix, rest[n:])
	return h, ok
}
