// Package hints takes what lock nodes publish: that a lock was released, or a lease cut. A hint may be lost or wrong. It also has
// the notices that proxies leave at the nodes for each other.
package hints

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

const (
	subscribeBatch = 512             // channels in one SUBSCRIBE
	pingEvery      = 5 * time.Second // a connection without messages may be dead
	longRedial     = 2 * time.Second // longest pause between two tries to listen to a node that fails
)

// Listen starts the goroutines that take hints from the nodes of a Set and pass them on to the host. They end with ctx;
// Set.Close waits for them. It is called once at most.
func Listen(ctx context.Context, s *voters.Set, host *locks.Host) {
	for i, source := range host.Lines.Listen() {
		l := &Listener{Set: s, Keepalive: host.Keepalive, Source: source, node: s.Members[i]}
		s.Start(func() { l.run(ctx) })
	}
}

// A Listener keeps the one connection on which a node tells of releases. It is
// opened when a caller waits for a lock, and opened again when it is lost.
type Listener struct {
	Set       *voters.Set
	Keepalive *locks.Keepalive
	Source    *locks.Source

	node    *voters.Node
	refused bool // the node answered a subscription with an error, which has been logged
}

// run listens until ctx ends.
func (l *Listener) run(ctx context.Context) {
	for pause := voters.FirstPause; ctx.Err() == nil; pause = min(2*pause, longRedial) {
		if !l.Source.Needed() {
			select {
			case <-l.Source.Changed():
			case <-ctx.Done():
			}
		}
		if l.listen(ctx) {
			pause = voters.FirstPause
		}
		_ = locks.Sleep(ctx, pause)
	}
}

// listen keeps one connection subscribed to what is wanted, until it is lost or ctx
// ends. It reports whether the node answered.
func (l *Listener) listen(ctx context.Context) (answered bool) {
	client := l.node.Dialled()
	if client == nil {
		return false
	}
	c, giveBack := client.Dedicate()
	defer giveBack()
	defer c.Close()
	lost := c.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: l.Message, OnSubscription: l.Subscribed})
	defer l.Source.Lost()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for l.follow(ctx, c) && l.node.Dialled() == client { // else another server is the node now
		answered = true
		select {
		case <-l.Source.Changed():
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
func (l *Listener) follow(ctx context.Context, c rueidis.DedicatedClient) bool {
	wanted, unwanted := l.Source.Changes()
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

// cutChannel is the channel on which nodes tell that a lease was cut.
func (l *Listener) cutChannel() string { return l.Set.Opts.Prefix + "node:cut" }

func (l *Listener) channels(keys []locks.Key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		if all[i] = nodekeys.Lock(l.Set.Opts.Prefix, k); k == locks.CutKey {
			all[i] = l.cutChannel()
		}
	}
	return all
}

// keyOf is the key of a channel.
func (l *Listener) keyOf(channel string) (k locks.Key, ok bool) {
	if channel == l.cutChannel() {
		return locks.CutKey, true
	}
	return nodekeys.Parse(l.Set.Opts.Prefix, channel)
}

func (l *Listener) do(ctx context.Context, c rueidis.DedicatedClient, cmd rueidis.Completed) error {
	ctx, cancel := context.WithTimeout(ctx, voters.CallTimeout)
	defer cancel()
	err := c.Do(ctx, cmd).Error()
	if answer := (*rueidis.RedisError)(nil); errors.As(err, &answer) && !l.refused {
		l.refused = true
		l.Set.Opts.Log.Warn("lock node does not tell what is released, so that waiting takes longer", "node", l.node.Server.String(), "reason", err)
	}
	l.refused = l.refused && err != nil
	return err
}

// Subscribed notes that the node tells of a key from now on.
func (l *Listener) Subscribed(m rueidis.PubSubSubscription) {
	if k, ok := l.keyOf(m.Channel); ok && m.Kind == "subscribe" {
		l.Source.Confirm(k)
	}
}

// cutPause is how long a session waits, or up to twice as long, before it renews a lease that a node says was cut: the
// renewal that cut it is still on its way to the other nodes, and another one meanwhile would make both start again.
const cutPause = 5 * time.Millisecond

// Message reads what the scripts publish.
func (l *Listener) Message(m rueidis.PubSubMessage) {
	if m.Channel == l.cutChannel() {
		l.cut(m.Message)
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
	case "cut":
		kind = locks.Shortened
	}
	l.Source.Released(k, n, kind)
}

// cut reads that a lease ends earlier than before.
func (l *Listener) cut(message string) {
	pause := cutPause + l.Set.Opts.Random.UpTo(cutPause)
	message, forced := strings.CutPrefix(message, "forced ")
	message, gaveBack := strings.CutPrefix(message, "given ")
	fence := int64(0)
	if gaveBack {
		var word string
		word, message, _ = strings.Cut(message, " ")
		fence, _ = strconv.ParseInt(word, 10, 64)
	}
	switch h, ok := parseCut(message, l.Set.Opts.Prefix); {
	case !ok:
	case gaveBack:
		l.Keepalive.NoteGivenBack(pause, h, fence)
	case forced: // the same without it follows
		l.Keepalive.NoteForced(h)
	default:
		l.Keepalive.RecheckIn(pause, h, true)
	}
}

// parseCut reads whose lease a node has cut.
func parseCut(message, prefix string) (h locks.Holder, ok bool) {
	length, rest, _ := strings.Cut(message, " ")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return h, false
	}
	h.Owner = rest[:n]
	h.Key, ok = nodekeys.Parse(prefix, rest[n:])
	return h, ok
}
