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

// startListening starts the goroutines that take hints. They end with ctx; s.workers waits for them.
func (s *Store) startListening(ctx context.Context) {
	for i, source := range s.host.Lines.Listen() {
		l := &listener{svc: s, node: s.set.Members[i], source: source}
		s.set.Start(func() { l.run(ctx) })
	}
}

// A listener keeps the one connection on which a node tells what is released. It is
// opened when somebody waits, and opened again when it is lost.
type listener struct {
	svc     *Store
	node    *voters.Node
	source  *locks.Source
	refused bool // the node does not let us, and the log says so
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

// listen follows what is wanted on one connection, until that is lost or ctx ends. It
// reports whether the node answered.
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

// follow subscribes to what is wanted and leaves what is not. It reports whether the node
// answered.
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
		if all[i] = voters.LockKey(l.svc.set.Opts.Prefix, k); k == locks.CutKey {
			all[i] = l.svc.cutChannel()
		}
	}
	return all
}

// keyOf is the key of a channel.
func (l *listener) keyOf(channel string) (k locks.Key, ok bool) {
	if channel == l.svc.cutChannel() {
		return locks.CutKey, true
	}
	return voters.ParseLockKey(l.svc.set.Opts.Prefix, channel)
}

func (l *listener) do(ctx context.Context, c rueidis.DedicatedClient, cmd rueidis.Completed) error {
	ctx, cancel := context.WithTimeout(ctx, voters.CallTimeout)
	defer cancel()
	err := c.Do(ctx, cmd).Error()
	if answer := (*rueidis.RedisError)(nil); errors.As(err, &answer) && !l.refused {
		l.refused = true
		l.svc.set.Opts.Log.Warn("lock node does not tell what is released, so that waiting takes longer", "node", l.node.Server.String(), "reason", err)
	}
	l.refused = l.refused && err != nil
	return err
}

func (l *listener) subscription(m rueidis.PubSubSubscription) {
	if k, ok := l.keyOf(m.Channel); ok && m.Kind == "subscribe" {
		l.source.Confirm(k)
	}
}

// cutPause is how long a session waits, up to twice, when the first node tells that its lease was
// cut: the renewal that does so is still on its way to the others, and one that came between would make both begin anew.
const cutPause = 5 * time.Millisecond

// message reads what the scripts publish.
func (l *listener) message(m rueidis.PubSubMessage) {
	if m.Channel == l.svc.cutChannel() {
		if h, ok := parseCut(m.Message, l.svc.set.Opts.Prefix); ok {
			l.svc.host.Keepalive.RecheckIn(cutPause+l.svc.set.Opts.Random.UpTo(cutPause), h, true)
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
