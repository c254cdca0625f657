// Package copying lets a lock node that has forgotten vote again within seconds, not only after max-ttl.
//
// Such a node may have granted a lock that still runs. So it must not help to grant that to another owner; but which names were
// held it can learn from a quorum of the others, since a lock that somebody relies on is held by a quorum, and meets that one in a
// node that kept its memory. When it knows them, it votes about all other names. About those it is in doubt, and abstains, until
// the holds that were copied are given back or have ended. It does not get the locks themselves: with a copy it would vote for a
// lock that it never granted, and one that was given back could return.
//
// What makes this right: a vote counts only while its round is younger than voters.RoundLimit. When that has passed since the node
// forgot, each lock that was granted with its help is known to a quorum without it, and none is in the making.
//
// Source: RULES.md, Recovery by copy. Model: integration/model/recover. Each step is a script: copy.lua, and held.lua for what the
// others hold. A copy that stops, or that two proxies begin, is safe at every step; the node keeps one at a time.
package copying

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/backends/loglimit"
)

// retryDelay is from the end of one copy to the next for the same loss: one that failed is tried again, and one that was made is
// seen by a probe before that.
const retryDelay = time.Second

// together is for how long a copy waits for another one that may begin soon: nodes that forgot at once are seen by two probes, half a
// second apart, if it was just then, and one reading is what takes time.
const together = 600 * time.Millisecond

// A copier copies for the nodes of a Set. Those that have forgotten at once get what was read once.
type copier struct {
	set    *voters.Set
	retry  map[loss]time.Duration // when a copy may be tried again, on Set.Clock
	failed []loglimit.Limit       // of the lines that a copy for a node failed, since one was done
}

// A loss is one loss of memory of one node.
type loss struct {
	node int
	gen  string
}

func newCopier(s *voters.Set) *copier {
	return &copier{set: s, retry: map[loss]time.Duration{}, failed: make([]loglimit.Limit, len(s.Members))}
}

// Run copies for each node that has forgotten, until ctx ends. It is called at most once.
func Run(ctx context.Context, s *voters.Set) {
	c := newCopier(s)
	for ctx.Err() == nil {
		forgotten, changed := s.Forgotten()
		due, next := c.due(forgotten)
		if len(due) > 0 {
			c.try(ctx, due)
			continue
		}
		var timer <-chan time.Time // never, if there is nothing to wait for
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-changed:
		case <-timer:
		case <-ctx.Done():
		}
	}
}

// due are the losses for which copies may begin. If there are none, or another one may begin soon, next is in how long that is; 0: there
// is none either.
func (c *copier) due(forgotten []voters.Forgotten) (due []voters.Forgotten, next time.Duration) {
	now, kept := c.set.Clock(), map[loss]time.Duration{}
	for _, f := range forgotten {
		l := loss{f.Node, f.Gen}
		kept[l] = c.retry[l]
		switch in := max(kept[l], f.CopyAt) - now; {
		case !f.MayCopy:
		case in <= 0:
			due = append(due, f)
		case next == 0 || in < next:
			next = in
		}
	}
	c.retry = kept
	if 0 < next && next <= together {
		due = nil
	}
	return due, next
}

// try makes copies, and logs what came of them.
func (c *copier) try(ctx context.Context, due []voters.Forgotten) {
	began := c.set.Clock()
	names, errs := copyTo(ctx, c.set, due)
	ended := c.set.Clock()
	for i, f := range due {
		c.retry[loss{f.Node, f.Gen}] = ended + retryDelay
		switch err := errs[i]; {
		case ctx.Err() != nil:
		case errors.Is(err, errElsewhere):
		case err != nil:
			c.logFailed(f.Node, err)
		default:
			c.failed[f.Node] = loglimit.Limit{}
			c.set.Opts.Log.LogAttrs(ctx, slog.LevelInfo, "lock node knows what the others hold", c.nodeAttr(f.Node), slog.Int("names", names), slog.Duration("took", (ended-began).Round(time.Millisecond)))
			c.set.RequestProbe()
		}
	}
}

// logFailed logs that a copy for a node failed, once a minute.
func (c *copier) logFailed(node int, err error) {
	if leftOut, due := c.failed[node].Due(loglimit.OnceAMinute, c.set.LogTime()); due {
		line := []slog.Attr{c.nodeAttr(node), slog.String("reason", strings.ReplaceAll(err.Error(), "\n", "; "))}
		c.set.Opts.Log.LogAttrs(context.Background(), slog.LevelWarn, "lock node does not know yet what the others hold", loglimit.With(line, leftOut)...)
	}
}

func (c *copier) nodeAttr(node int) slog.Attr {
	return slog.String("node", c.set.Members[node].Server.String())
}

// errElsewhere reports that another copy is under way, or that none is needed any more.
var errElsewhere = errors.New("another copy is under way")
