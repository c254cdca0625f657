package pubsub

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// keyspacePrefix begins the channels in which a node tells of its own keys.
const keyspacePrefix = "__key"

func isKeyspace(channel []byte) bool { return bytes.HasPrefix(channel, []byte(keyspacePrefix)) }

// needsAllMasters reports whether each master has messages of its own for a subscription.
func needsAllMasters(kind string, name []byte) bool {
	return kind != shards && isKeyspace(name) || kind == patterns && mayMatchKeyspace(string(name))
}

// mayMatchKeyspace reports whether a pattern may match keyspace channels.
func mayMatchKeyspace(pattern string) bool {
	plain := strings.IndexAny(pattern, `*?[\\`)
	return plain >= 0 && strings.HasPrefix(keyspacePrefix, pattern[:plain])
}

// followMastersLocked has followMasters look after a subscription that these masters have confirmed. Others that came meanwhile lack it:
// before the confirmation they were not asked for it.
func (l *subscriber) followMastersLocked(have []*upstream.Pool) {
	if l.lookAgain == nil {
		l.lookAgain = make(chan struct{}, 1)
		l.redirector.Go(l.followMasters)
		return
	}
	for _, m := range l.up.View().Masters() {
		if !slices.Contains(have, m) {
			select {
			case l.lookAgain <- struct{}{}:
			default:
			}
		}
	}
}

// followMasters keeps subscribing on new masters to what every master is subscribed to,
// until Close or the end of the session.
func (l *subscriber) followMasters() {
	for {
		view, changed := l.up.Changed()
		again := time.Duration(0)
		for key, pools := range l.missingMasters(view.Masters()) {
			if l.addMasters(key, pools) != nil {
				again = time.Second
			}
		}
		var later <-chan time.Time
		if again > 0 {
			later = time.After(again)
		}
		select {
		case <-changed:
		case <-l.lookAgain:
		case <-later:
		case <-l.closing:
			return
		case <-l.ctx.Done():
			return
		}
	}
}

// missingMasters are the masters that subscriptions to all of them lack, by kind and name.
func (l *subscriber) missingMasters(masters []*upstream.Pool) map[string][]*upstream.Pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := map[string][]*upstream.Pool{}
	for key, have := range l.pools {
		kind, name, _ := strings.Cut(key, " ")
		if l.closed || !needsAllMasters(kind, []byte(name)) || !l.confirmed.has(kind, name) {
			continue
		}
		for _, m := range masters {
			if !slices.Contains(have, m) {
				missing[key] = append(missing[key], m)
			}
		}
	}
	return missing
}

// addMasters extends a subscription to further masters.
func (l *subscriber) addMasters(key string, pools []*upstream.Pool) error {
	kind, name, _ := strings.Cut(key, " ")
	l.mu.Lock()
	id := l.id
	l.pools[key] = append(slices.Clone(l.pools[key]), pools...) // before their first message
	l.mu.Unlock()
	err := l.change(l.ctx, id, strings.ToUpper(kind)+"SUBSCRIBE", []byte(name), pools, false)
	l.mu.Lock()
	stays := l.confirmed.has(kind, name)
	if !stays {
		delete(l.pools, key)
	} else if err != nil {
		l.pools[key] = slices.DeleteFunc(slices.Clone(l.pools[key]), func(p *upstream.Pool) bool { return slices.Contains(pools, p) })
	}
	l.mu.Unlock()
	if err == nil && !stays { // the client has left it meanwhile
		return l.change(l.ctx, id, strings.ToUpper(kind)+"UNSUBSCRIBE", []byte(name), pools, false)
	}
	return err
}

// moveShard subscribes again to a shard channel whose slot has moved.
func (l *subscriber) moveShard(name string) {
	l.up.Refresh()
	for tries := range 100 {
		if tries > 0 {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-l.ctx.Done():
				return
			}
		}
		pool := l.up.View().Master(spec.Slot([]byte(name)))
		id, wanted := l.wantsShard(name)
		if !wanted {
			return
		}
		if pool == nil {
			continue
		}
		if pool, err := l.changeShard(l.ctx, id, "SSUBSCRIBE", []byte(name), pool, false); err == nil {
			l.mu.Lock()
			l.pools[shards+" "+name] = []*upstream.Pool{pool}
			l.mu.Unlock()
			if _, wanted = l.wantsShard(name); !wanted { // the client has left it meanwhile
				l.changeShard(l.ctx, id, "SUNSUBSCRIBE", []byte(name), pool, false)
			}
			return
		}
	}
	l.replies.Disconnect() // better than silence
}

// wantsShard reports whether the client is subscribed to a shard channel, and who it is.
func (l *subscriber) wantsShard(name string) (id upstream.Identity, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id, l.confirmed.has(shards, name) && !l.closed
}

// changeShard is change for a shard channel on the master of its slot, or on the one to
// which that redirects; it returns which. A node that no longer serves the slot has ended
// its subscriptions.
func (l *subscriber) changeShard(ctx context.Context, id upstream.Identity, command string, name []byte, pool *upstream.Pool, shown bool) (*upstream.Pool, error) {
	for tries := 0; ; tries++ {
		err := l.change(ctx, id, command, name, []*upstream.Pool{pool}, shown)
		var refused *upstream.RefusedError
		if !errors.As(err, &refused) || !resp.HasCode(refused.Reply, "MOVED") {
			return pool, err
		}
		slot, addr, ok := relay.ParseRedirection(refused.Reply)
		if !ok || tries == relay.MaxRedirects {
			return pool, &upstream.RefusedError{Reply: []byte(relay.SlotUncovered)}
		}
		to := l.up.Moved(slot, relay.AbsoluteAddr(addr, pool))
		if to == nil {
			return pool, &upstream.DownError{Err: relay.ErrLost}
		}
		if command == "SUNSUBSCRIBE" {
			if l.mu.Lock(); shown {
				l.confirmToClientLocked(strings.ToLower(command), name)
			}
			l.mu.Unlock()
			return pool, nil
		}
		pool = to
	}
}
