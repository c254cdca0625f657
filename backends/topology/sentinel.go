package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
)

// maxSentinels bounds how many sentinels are asked.
const maxSentinels = 15

// A sentinelReport is one sentinel's answer about the master set; the zero report: it
// did not answer.
type sentinelReport struct {
	master    string
	epoch     uint64 // of the failover that made it the master
	replicas  []string
	sentinels []string // the other ones
}

// probeSentinels asks the sentinels for the master, and takes the one they name if it
// says itself that it is a master.
func (w *Watcher) probeSentinels(ctx context.Context) (*Topology, error) {
	reports, err := w.askSentinels(ctx)
	if err != nil {
		return nil, err
	}
	named := candidates(reports)
	master := confirmedMaster(named, w.askRoles(ctx, named))
	shard := Shard{}
	if master != "" {
		shard.Master = w.server(master)
	}
	if w.opt.Replicas {
		shard.Replicas = w.syncedReplicas(ctx, replicasOf(reports, master))
	}
	return &Topology{Shards: []Shard{shard}}, nil
}

// confirmedMaster is the first of the candidates with the role of a master. While the
// very first does not answer, no other is it: an older master may have come back that
// has not been demoted yet.
func confirmedMaster(named []string, roles []role) string {
	for i, r := range roles {
		if r.kind == "master" || r.kind == "" && i == 0 {
			return named[i]
		}
	}
	return ""
}

// candidates are the masters in the reports, by epoch, then by the number of reports.
func candidates(reports []sentinelReport) []string {
	epochs, counts := map[string]uint64{}, map[string]int{}
	var named []string
	for _, r := range reports {
		if r.master == "" {
			continue
		}
		named = append(named, r.master)
		counts[r.master]++
		epochs[r.master] = max(epochs[r.master], r.epoch)
	}
	named = backends.Distinct(named)
	slices.SortStableFunc(named, func(a, b string) int {
		return cmp.Or(cmp.Compare(epochs[b], epochs[a]), cmp.Compare(counts[b], counts[a]))
	})
	return named
}

// replicasOf are all servers in the reports except the master.
func replicasOf(reports []sentinelReport, master string) []string {
	var all []string
	for _, r := range reports {
		all = append(all, r.master)
		all = append(all, r.replicas...)
	}
	return slices.DeleteFunc(backends.Distinct(all), func(s string) bool { return s == master || s == "" })
}

// askSentinels asks all known sentinels, and adds those that they name to the targets
// and the subscriptions. It is an error if none knows the master set.
func (w *Watcher) askSentinels(ctx context.Context) ([]sentinelReport, error) {
	reports, faults := make([]sentinelReport, len(w.targets)), make([]error, len(w.targets))
	w.askServers(w.targets, w.sentinel, func(i int, c rueidis.Client) {
		reports[i], faults[i] = askSentinel(ctx, c, w.seed.MasterSet())
	})
	seeds := w.seed.Addresses()
	known := seeds
	var err error
	for i, addr := range w.targets {
		switch {
		case reports[i].master != "":
			known = append(known, addr)
			known = append(known, reports[i].sentinels...)
		case faults[i] != nil:
			err = fmt.Errorf("sentinel %s: %w", addr, faults[i])
		}
	}
	w.targets = backends.Distinct(known)
	w.targets = w.targets[:min(len(w.targets), max(maxSentinels, len(seeds)))]
	w.subscribeAll(ctx)
	if slices.ContainsFunc(reports, func(r sentinelReport) bool { return r.master != "" }) {
		return reports, nil
	}
	return nil, cmp.Or(err, errNoAnswer)
}

// askSentinel asks one sentinel. Only the master's address is required: a stand-in for
// a sentinel may answer nothing else.
func askSentinel(ctx context.Context, c rueidis.Client, set string) (r sentinelReport, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	replies := c.DoMulti(ctx,
		command(c, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", set), command(c, "SENTINEL", "MASTER", set),
		command(c, "SENTINEL", "REPLICAS", set), command(c, "SENTINEL", "SENTINELS", set))
	addr, err := replies[0].AsStrSlice()
	switch {
	case rueidis.IsRedisNil(err):
		return r, errors.New("knows no master set " + set)
	case err != nil:
		return r, err
	case len(addr) != 2:
		return r, errors.New("names no host and port")
	}
	r.master = net.JoinHostPort(addr[0], addr[1])
	if fields, err := replies[1].AsStrMap(); err == nil {
		r.epoch = parseUint(fields["config-epoch"])
	}
	r.replicas, r.sentinels = addresses(replies[2]), addresses(replies[3])
	return r, nil
}

// addresses are those in a sentinel's list of servers, except of servers that are down.
func addresses(reply rueidis.RedisResult) (out []string) {
	list, _ := reply.ToArray()
	for _, m := range list {
		fields, err := m.AsStrMap()
		if err == nil && fields["port"] != "0" && !strings.Contains(fields["flags"], "_down") {
			out = append(out, net.JoinHostPort(fields["ip"], fields["port"]))
		}
	}
	return out
}

// sentinel is the sentinel at addr.
func (w *Watcher) sentinel(addr string) *backends.Server {
	return w.seed.At(addr).WithCredentials(w.opt.SentinelUser, w.opt.SentinelPassword)
}

// subscribeAll starts the missing subscriptions to the targets, and cancels those to
// other sentinels.
func (w *Watcher) subscribeAll(ctx context.Context) {
	for addr, cancel := range w.subscribed {
		if !slices.Contains(w.targets, addr) {
			cancel()
			delete(w.subscribed, addr)
		}
	}
	for _, addr := range w.targets {
		if w.subscribed[addr] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		w.subscribed[addr] = cancel
		w.subscriptions.Go(func() { w.subscribe(ctx, w.sentinel(addr)) })
	}
}

// subscribe calls Refresh at each +switch-master of a sentinel until ctx ends. While
// the sentinel cannot be reached, it retries every second.
func (w *Watcher) subscribe(ctx context.Context, s *backends.Server) {
	var c rueidis.Client
	for ctx.Err() == nil {
		if c == nil {
			c, _ = s.Client(probeOptions)
		}
		if c != nil {
			_ = c.Receive(ctx, c.B().Subscribe().Channel("+switch-master").Build(), func(rueidis.PubSubMessage) { w.Refresh() })
		}
		sleep(ctx, time.Second)
	}
	if c != nil {
		c.Close()
	}
}
