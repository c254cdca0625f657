package locks

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const (
	keepEar    = 5 * time.Second      // a name that nobody waits for any more is still listened for
	othersLag  = 3 * time.Millisecond // between the first node that says a name is free and the last of a quorum
	atOnce     = 512                  // names in one SUBSCRIBE
	pingEvery  = 5 * time.Second      // a connection that says nothing may be dead
	longRedial = 2 * time.Second      // between two tries to listen to a node that fails
)

// An ear is a name that is listened for. What it hears is a hint: who has the name the
// nodes say when they are asked. It is guarded by waiting.mu.
type ear struct {
	channel string
	queue   *queue        // nil: nobody waits
	idle    *list.Element // in waiting.idle, when nobody waits
	since   time.Duration // nobody has waited
	on      []bool        // by node: it has confirmed, so that it tells all that is published from then on

	crowded    bool          // other proxies listen for the name too
	turns      int           // releases here in a row
	turnsSince time.Duration // the first of them
	quiet      time.Duration // nobody here asks before
}

func (ws *waiting) channel(at Key) string { return lockKey(ws.prefix, at) }

// hearCuts makes the nodes tell when a lease is cut, or after a while not any more. What
// they tell is a hint: it is heard sooner than by the next renewal, if at all.
func (ws *waiting) hearCuts(wanted bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch e := ws.ears[ws.cuts]; {
	case len(ws.listeners) == 0:
	case wanted && e == nil:
		ws.hear(&ear{channel: ws.cuts})
	case wanted && e.idle != nil:
		ws.idle.Remove(e.idle)
		e.idle = nil
	case !wanted && e != nil && e.idle == nil:
		e.since = ws.now()
		e.idle = ws.idle.PushBack(e)
	}
}

// hear subscribes to the channel of a new ear.
func (ws *waiting) hear(e *ear) {
	e.on = make([]bool, ws.nodes)
	ws.ears[e.channel] = e
	for _, l := range ws.listeners {
		l.change(e.channel)
	}
}

// earOf is the ear of a name, or nil.
func (ws *waiting) earOf(at Key) *ear {
	if len(ws.ears) == 0 { // the common case costs no string
		return nil
	}
	return ws.ears[ws.channel(at)]
}

// silent is for how long nobody here may ask. There may be no ear.
func (e *ear) silent(now time.Duration) time.Duration {
	if e == nil {
		return 0
	}
	return e.quiet - now
}

// hears reports whether a name cannot be released, by a quorum, without a word of it.
func (e *ear) hears(quorum int) bool { return countTrue(e.on) >= quorum }

func countTrue(all []bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

// listen makes the nodes tell when the name of a queue is released, if it does not yet.
func (ws *waiting) listen(q *queue) {
	if q.ear != nil || len(ws.listeners) == 0 {
		return
	}
	q.ear = &ear{channel: q.channel, queue: q}
	ws.hear(q.ear)
}

// attach gives a new queue the ear that is left of an earlier one.
func (ws *waiting) attach(q *queue) {
	if e := ws.ears[q.channel]; e != nil {
		ws.idle.Remove(e.idle)
		e.queue, e.idle = q, nil
		q.ear = e
	}
}

// detach leaves the ear of a queue that ends to the next one, for a while.
func (ws *waiting) detach(q *queue) {
	if e := q.ear; e != nil {
		e.queue, e.since = nil, ws.now()
		e.idle = ws.idle.PushBack(e)
	}
}

// sweep ends the ears that nobody has needed for long.
func (ws *waiting) sweep() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	now := ws.now()
	for el := ws.idle.Front(); el != nil; el = ws.idle.Front() {
		e := el.Value.(*ear)
		if now-e.since < keepEar {
			return
		}
		ws.idle.Remove(el)
		delete(ws.ears, e.channel)
		for _, l := range ws.listeners {
			l.change(e.channel)
		}
	}
}

// confirmed notes that a node tells of a channel from now on. What was published before
// may have been missed: if this makes the quorum, the asker asks once more.
func (ws *waiting) confirmed(node int, channel string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	e := ws.ears[channel]
	if e == nil {
		return
	}
	before := e.hears(ws.quorum)
	e.on[node] = true
	if !before && e.hears(ws.quorum) && e.queue != nil {
		e.queue.stirred = true
		e.queue.tell()
	}
}

// deaf notes that the connection to a node is lost, and what to ask for on the next.
func (ws *waiting) deaf(l *listener) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	l.changed = l.changed[:0]
	for channel, e := range ws.ears {
		e.on[l.node.index] = false
		l.changed = append(l.changed, channel)
	}
}

// heard notes that a node released a name: the grant with this fence.
func (ws *waiting) heard(node int, channel string, fence int64, how string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	e := ws.ears[channel]
	if e == nil || e.queue == nil {
		return
	}
	q := e.queue
	if how == "handed" { // on to somebody who waits there, and who may have left
		if fence < q.known.fence { // that is whom this proxy knows
			return
		}
		q.known.doubtful = true
		if w := q.first(); w.again != 0 {
			w.again = min(w.again, ws.now()+ws.poll)
			q.tell()
		}
		return
	}
	q.heard[node] = max(q.heard[node], fence)
	if fence < q.known.fence { // released before what is known was learnt
		return
	}
	q.known.doubtful = true
	// Where fewer than a quorum undo, nobody had the name.
	if how != "undo" && q.soon == 0 {
		q.soon = ws.now() + othersLag
	}
	q.tell()
}

// freed reports whether a quorum has released what the asker was told of.
func (q *queue) freed(quorum int) bool {
	n := 0
	for _, f := range q.heard {
		if f > 0 && f >= q.known.fence {
			n++
		}
	}
	return n >= quorum
}

// A listener keeps the one connection on which a node tells what is released. It is
// opened when somebody waits, and opened again when it is lost. Its goroutine is Run's.
type listener struct {
	node *node
	ws   *waiting

	refused bool          // the node does not let us, and the log says so
	changed []string      // channels that may have to be subscribed to or left; guarded by waiting.mu
	kick    chan struct{} // there are; holds one
}

// change notes that a channel is wanted now, or is not. The caller has waiting.mu.
func (l *listener) change(channel string) {
	l.changed = append(l.changed, channel)
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// run listens until ctx ends.
func (l *listener) run(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longRedial) {
		if !l.ws.hasEars() {
			select {
			case <-l.kick:
			case <-ctx.Done():
			}
		}
		if l.listen(ctx) {
			pause = firstPause
		}
		_ = sleep(ctx, pause)
	}
}

func (ws *waiting) hasEars() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.ears) > 0
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
	defer l.ws.deaf(l)
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for l.follow(ctx, c) && l.node.dialled() == client { // else another server is the node now
		answered = true
		select {
		case <-l.kick:
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
	wanted, unwanted := l.changes()
	for some := range slices.Chunk(wanted, atOnce) {
		if l.do(ctx, c, c.B().Subscribe().Channel(some...).Build()) != nil {
			return false
		}
	}
	for some := range slices.Chunk(unwanted, atOnce) {
		if l.do(ctx, c, c.B().Unsubscribe().Channel(some...).Build()) != nil {
			return false
		}
	}
	return true
}

func (l *listener) do(ctx context.Context, c rueidis.DedicatedClient, cmd rueidis.Completed) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.Do(ctx, cmd).Error()
	if answer := (*rueidis.RedisError)(nil); errors.As(err, &answer) && !l.refused {
		l.refused = true
		l.node.svc.opts.Log.Warn("lock node does not tell what is released, so that waiting takes longer", "node", l.node.server.String(), "reason", err)
	}
	l.refused = l.refused && err != nil
	return err
}

// changes are the channels to subscribe to, and those to leave.
func (l *listener) changes() (wanted, unwanted []string) {
	l.ws.mu.Lock()
	defer l.ws.mu.Unlock()
	for _, channel := range l.changed {
		if l.ws.ears[channel] != nil {
			wanted = append(wanted, channel)
		} else {
			unwanted = append(unwanted, channel)
		}
	}
	l.changed = nil
	return wanted, unwanted
}

func (l *listener) subscription(m rueidis.PubSubSubscription) {
	if m.Kind == "subscribe" {
		l.ws.confirmed(l.node.index, m.Channel)
	}
}

// cutPause is how long a session waits, up to twice, when the first node says that its lease was cut: the renewal
// that does so is still on its way to the others, and one that came between would make both begin anew.
const cutPause = 5 * time.Millisecond

// message reads what the scripts publish.
func (l *listener) message(m rueidis.PubSubMessage) {
	if m.Channel == l.ws.cuts {
		if h, ok := parseCut(m.Message, l.ws.prefix); ok {
			s := l.node.svc
			s.keepalive.recheckIn(cutPause+s.opts.random.upTo(cutPause), h, true)
		}
		return
	}
	fence, how, _ := strings.Cut(m.Message, " ")
	n, err := strconv.ParseInt(fence, 10, 64)
	if err != nil {
		return
	}
	l.ws.heard(l.node.index, m.Channel, n, how)
}

// parseCut reads whose lease a node has cut.
func parseCut(message, prefix string) (h holder, ok bool) {
	length, rest, _ := strings.Cut(message, " ")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return h, false
	}
	key, ours := strings.CutPrefix(rest[n:], lockPrefix(prefix))
	db, name, found := strings.Cut(key, ":")
	h.DB, err = strconv.Atoi(db)
	h.Name, h.owner = name, rest[:n]
	return h, ours && found && err == nil
}

// beginListening starts what hears of releases. It ends with ctx, and s.lanes waits for it.
func (s *Service) beginListening(ctx context.Context) {
	ws := &s.waiting
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, n := range s.nodes {
		l := &listener{node: n, ws: ws, kick: make(chan struct{}, 1)}
		ws.listeners = append(ws.listeners, l)
		s.workers.Go(func() { l.run(ctx) })
	}
}
