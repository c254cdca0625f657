package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/check"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/migrate"
	"github.com/lockproxy/lockproxy/commands/adopt/peers"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
)

// newAnnouncer makes the announcer, which tells other proxies which keys are locks here. Each time it asks the upstream
// for its replication ids it notes the upstream's version in heard.
func newAnnouncer(o options, svc *locks.Service, up *upstream.Upstream, heard *idiom.Heard, log *slog.Logger) *peers.Announcer {
	host, _ := os.Hostname()
	return peers.New(peers.Options{
		Board: svc, Patterns: o.announced(), Proxy: strings.TrimSpace(host + " " + o.listen), Log: log,
		Upstream: func(ctx context.Context) []string { return replicationIDs(ctx, up, heard, o.upstreamConns == 0) },
	})
}

// announced returns the patterns in the form that other proxies are told.
func (o *options) announced() (all []peers.Pattern) {
	for _, p := range o.adopt {
		all = append(all, p.Announced())
	}
	return all
}

// announceOnce announces the proxy before it serves clients, so that the first need not be refused.
func announceOnce(ctx context.Context, a *peers.Announcer) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	a.Announce(ctx)
}

// identifyTimeout bounds asking all masters who they are.
const identifyTimeout = time.Second

// replicationIDs returns the ids of the upstream's masters, as far as they tell the proxy's own user; also their former
// ids, which proxies that have not seen a failover yet still use. heard gets their versions. forget closes the
// connections that this opened.
func replicationIDs(ctx context.Context, up *upstream.Upstream, heard *idiom.Heard, forget bool) (ids []string) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	id := up.DefaultIdentity()
	var servers []string
	for _, master := range up.View().Masters() {
		c, err := master.Shared(ctx, id, upstream.MainClass, 0)
		if err != nil {
			continue
		}
		reply, err := c.Ask(ctx, resp.AppendCommand(nil, "INFO", "replication"), maxReplication)
		server, alsoErr := c.Ask(ctx, resp.AppendCommand(nil, "INFO", "server"), maxReplication)
		upstream.Return(c)
		if err == nil {
			ids = append(ids, parseReplicationIDs(string(reply))...)
		}
		if alsoErr == nil {
			servers = append(servers, string(server))
		}
	}
	heard.Note(servers)
	if forget {
		up.Forget(id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// maxReplication is how long a reply to INFO replication may be, in bytes; each replica has a line.
const maxReplication = 1 << 20

// parseReplicationIDs reads them out of INFO replication. A server that never followed another one has zeros as its
// former id.
func parseReplicationIDs(info string) (ids []string) {
	for line := range strings.Lines(info) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		if (k == "master_replid" || k == "master_replid2") && strings.Trim(v, "0") != "" {
			ids = append(ids, v)
		}
	}
	return ids
}

// newMigration returns nil if no key is a lock.
func newMigration(o options, svc *locks.Service, up *upstream.Upstream, others *peers.Announcer) *migrate.Checker {
	if len(o.adopt) == 0 {
		return nil
	}
	return migrate.New(migrate.Options{Patterns: o.adopt, Nodes: svc, Upstream: &migrate.Masters{Of: up}, Peers: others.Peers})
}

// conflicts returns the conflicts of announced proxies with each other, and with one that had these settings, for check.
func (o *options) conflicts(upstream []string, announced []check.Announcement) []string {
	var notices []locks.Notice
	for _, a := range announced {
		notices = append(notices, locks.Notice(a))
	}
	return peers.Judge(&peers.Record{Format: peers.Format, Upstream: upstream, Patterns: o.announced()}, notices)
}

// shownProxies are the other proxies for LOCKCTL NODES.
func shownProxies(a *peers.Announcer) (all []lockcmd.Proxy) {
	for _, p := range a.Peers() {
		shown := lockcmd.Proxy{ID: p.ID, Name: p.Proxy, SameUpstream: p.Same, Conflict: strings.Join(p.Clashes, "; "), Warning: strings.Join(p.Warnings, "; ")}
		for _, pattern := range p.Patterns {
			shown.Adopts = append(shown.Adopts, pattern.String())
		}
		all = append(all, shown)
	}
	return all
}
