package locks

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

const (
	subscribeBatch = 512             // channels in one SUBSCRIBE
	pingEvery      = 5 * time.Second // a connection without messages may be dead
	longRedial     = 2 * time.Second // longest pause between two tries to listen to a node that fails
)

// cutKey is listened for like a name, but stands for the channel on which nodes tell that a lease was
// cut. No name is empty.
var cutKey = Key{}

func (s *Service) cutChannel() string { return s.opts.Prefix + "node:cut" }

// watchCuts has the nodes tell when a lease is cut, or after a while no longer. What they tell is a
// hint: it comes sooner than the next renewal would find it, if at all.
func (s *Service) watchCuts(wanted bool) { s.waiting.Watch(cutKey, wanted) }

// startListening starts the goroutines that take hints. They end with ctx; s.workers waits for them.
func (s *Service) startListening(ctx context.Context) {
	for i, source := range s.waiting.Listen() {
		l := &listener{svc: s, node: s.nodes[i], source: source}
		s.workers.Go(func() { l.run(ctx) })
	}
}

// A listener keeps the one connection on which a node tells what is released. It is
// opened when somebody waits, and opened again when it is lost.
type listener struct {
	svc     *Service
	node    *node
	source  *waitq.Source[Key, *waitingLock]
	refused bool // the node does not let us, and the log says so
}

// run listens until ctx ends.
func (l *listener) run(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longRedial) {
		if !l.source.Needed() {
			select {
			case <-l.source.Changed():
			case <-ctx.Done():
			}
		}
		if l.listen(ctx) {
			pause = firstPause
		}
		_ = sleep(ctx, pause)
	}
}

// listen follows what is wanted on one connection, until that is lost or ctx ends. It
// reports whether the node answered.
func (l *listener) listen(ctx context.Context) (answered bool) {
	client := l.node.dialled()
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
	for l.follow(ctx, c) && l.node.dialled() == client { // else another server is the node now
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

func (l *listener) channels(keys []Key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		if all[i] = lockKey(l.svc.opts.Prefix, k); k == cutKey {
			all[i] = l.svc.cutChannel()
		}
	}
	return all
}

// keyOf is the key of a channel.
func (l *listener) keyOf(channel string) (k Key, ok bool) {
	if channel == l.svc.cutChannel() {
		return cutKey, true
	}
	return parseLockKey(l.svc.opts.Prefix, channel)
}

func (l *listener) do(ctx context.Context, c rueidis.DedicatedClient, cmd rueidis.Completed) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.Do(ctx, cmd).Error()
	if answer := (*rueidis.RedisError)(nil); errors.As(err, &answer) && !l.refused {
		l.refused = true
		l.svc.opts.Log.Warn("lock node does not tell what is released, so that waiting takes longer", "node", l.node.server.String(), "reason", err)
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
		if h, ok := parseCut(m.Message, l.svc.opts.Prefix); ok {
			l.svc.keepalive.recheckIn(cutPause+l.svc.opts.random.upTo(cutPause), h, true)
		}
		return
	}
	fence, how, _ := strings.Cut(m.Message, " ")
	n, err := strconv.ParseInt(fence, 10, 64)
	k, ok := l.keyOf(m.Channel)
	if err != nil || !ok {
		return
	}
	kind := waitq.Freed
	switch how {
	case "handed":
		kind = waitq.Passed
	case "undo":
		kind = waitq.Undone
	}
	l.source.Released(k, n, kind)
}

// parseCut reads whose lease a node has cut.
func parseCut(message, prefix string) (h holder, ok bool) {
	length, rest, _ := strings.Cut(message, " ")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return h, false
	}
	h.owner = rest[:n]
	h.Key, ok = parseLockKey(prefix, rest[n:])
	return h, ok
}
