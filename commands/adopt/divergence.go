package adopt

import (
	"context"
	"log/slog"
	"slices"

	"github.com/lockproxy/lockproxy/backends/loglimit"
)

// A divergence is how upstream and nodes differ about a lock, where both must agree.
type divergence uint8

const (
	nodesHeld     divergence = iota // the upstream granted it, the nodes have another's
	nodesLack                       // the upstream changed it, the nodes have no grant of that value
	upstreamLacks                   // the nodes have a grant of that value, the upstream has not
	unclear                         // the upstream's reply is none of the call's
	numDivergences
)

var divergenceNames = [numDivergences]string{"nodes_held", "nodes_lack", "upstream_lacks", "unclear"}

// diverged counts and logs that upstream and nodes differ about the lock of a call, once a minute for each pattern and
// sort. g is the grant at the nodes, as far as it is known.
func (a *Adoption) diverged(ctx context.Context, conn Connection, c *Call, how divergence, g guess) {
	a.divergences[slices.Index(a.patterns, c.pattern)][how].Add(1)
	name := divergenceNames[how]
	leftOut, due := a.lineDue(c.pattern.Glob, "divergence "+name)
	if !due {
		return
	}
	if g.owner != "" && g.fence == 0 { // a refusal of an acquisition names only the owner
		if read, err := a.read(ctx, newBurst().basis(), lockKey(conn, c)); err == nil {
			g = read
		}
	}
	line := append(conn.About(), slog.String("how", name), slog.String("lock", brief(c.Key())), slog.String("pattern", c.pattern.Glob),
		slog.String("command", c.command), slog.Int64("fence", g.fence), slog.String("made", g.made.info()))
	a.opt.Log.LogAttrs(ctx, slog.LevelWarn, "adopted key: upstream and lock nodes differ", loglimit.With(line, leftOut)...)
}
