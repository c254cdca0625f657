package backends

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
)

// maxSentinels bounds how many sentinels are asked.
const maxSentinels = 15

// A vote is what one sentinel says of the master set; the zero vote: it is silent.
type vote struct {
	master   string
	epoch    uint64 // of the failover that made it the master
	replicas []string
	others   []string // sentinels
}

// lookSentinels asks the sentinels who is the master, and believes them when that
// says so too.
func (f *Finder) lookSentinels(ctx context.Context) (*Topology, error) {
	votes, err := f.askSentinels(ctx)
	if err != nil {
		return nil, err
	}
	named := candidates(votes)
	master := believe(named, f.askRoles(ctx, named))
	shard := Shard{}
	if master != "" {
		shard.Master = f.server(master)
	}
	if f.opt.Replicas {
		shard.Replicas = f.following(ctx, replicasOf(votes, master))
	}
	return &Topology{Shards: []Shard{shard}}, nil
}

// believe is the first of the candidates that says it is the master. While the first
// one of all is silent nobody else is it: an older master may have come back that has
// not been told yet.
func believe(named []string, roles []role) string {
	for i, r := range roles {
		if r.kind == "master" || r.kind == "" && i == 0 {
			return named[i]
		}
	}
	return ""
}

// candidates are the masters that are named, most recent first, then by votes.
func candidates(votes []vote) []string {
	epochs, counts := map[string]uint64{}, map[string]int{}
	var named []string
	for _, v := range votes {
		if v.master == "" {
			continue
		}
		named = append(named, v.master)
		counts[v.master]++
		epochs[v.master] = max(epochs[v.master], v.epoch)
	}
	named = distinct(named)
	slices.SortStableFunc(named, func(a, b string) int {
		return cmp.Or(cmp.Compare(epochs[b], epochs[a]), cmp.Compare(counts[b], counts[a]))
	})
	return named
}

// replicasOf are all nodes that are named, but the master.
func replicasOf(votes []vote, master string) []string {
	var all []string
	for _, v := range votes {
		all = append(all, v.master)
		all = append(all, v.replicas...)
	}
	return slices.DeleteFunc(distinct(all), func(s string) bool { return s == master || s == "" })
}

// askSentinels asks all that are known, listens to them from now on, and learns of
// more. The error is of the last one, if none knows the master set.
func (f *Finder) askSentinels(ctx context.Context) ([]vote, error) {
	votes, faults := make([]vote, len(f.around)), make([]error, len(f.around))
	f.askServers(f.around, f.sentinel, func(i int, c rueidis.Client) {
		votes[i], faults[i] = askSentinel(ctx, c, f.seed.MasterSet())
	})
	known := slices.Clone(f.seed.opt.InitAddress)
	var err error
	for i, addr := range f.around {
		switch {
		case votes[i].master != "":
			known = append(known, addr)
			known = append(known, votes[i].others...)
		case faults[i] != nil:
			err = fmt.Errorf("sentinel %s: %w", addr, faults[i])
		}
	}
	f.around = distinct(known)
	f.around = f.around[:min(len(f.around), max(maxSentinels, len(f.seed.opt.InitAddress)))]
	f.listen(ctx)
	if slices.ContainsFunc(votes, func(v vote) bool { return v.master != "" }) {
		return votes, nil
	}
	return nil, cmp.Or(err, errSilent)
}

// askSentinel asks one. Who does not know the rest, as a stand-in for a sentinel may
// not, is asked for the master's address alone.
func askSentinel(ctx context.Context, c rueidis.Client, set string) (v vote, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	said := c.DoMulti(ctx,
		command(c, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", set), command(c, "SENTINEL", "MASTER", set),
		command(c, "SENTINEL", "REPLICAS", set), command(c, "SENTINEL", "SENTINELS", set))
	addr, err := said[0].AsStrSlice()
	switch {
	case rueidis.IsRedisNil(err):
		return v, errors.New("knows no master set " + set)
	case err != nil:
		return v, err
	case len(addr) != 2:
		return v, errors.New("names no host and port")
	}
	v.master = net.JoinHostPort(addr[0], addr[1])
	if is, err := said[1].AsStrMap(); err == nil {
		v.epoch = number(is["config-epoch"])
	}
	v.replicas, v.others = addresses(said[2]), addresses(said[3])
	return v, nil
}

// addresses are those in a list of servers, without those known to be down.
func addresses(r rueidis.RedisResult) (out []string) {
	list, _ := r.ToArray()
	for _, m := range list {
		is, err := m.AsStrMap()
		if err == nil && is["port"] != "0" && !strings.Contains(is["flags"], "_down") {
			out = append(out, net.JoinHostPort(is["ip"], is["port"]))
		}
	}
	return out
}

// sentinel is the sentinel at addr.
func (f *Finder) sentinel(addr string) *Server {
	s := f.seed.At(addr)
	s.opt.Username, s.opt.Password = f.opt.SentinelUser, f.opt.SentinelPassword
	return s
}

// listen makes sure that all sentinels that are known, and no others, are listened to.
func (f *Finder) listen(ctx context.Context) {
	for addr, stop := range f.watched {
		if !slices.Contains(f.around, addr) {
			stop()
			delete(f.watched, addr)
		}
	}
	for _, addr := range f.around {
		if f.watched[addr] != nil {
			continue
		}
		watch, stop := context.WithCancel(ctx)
		f.watched[addr] = stop
		f.watches.Go(func() { f.watch(watch, f.sentinel(addr)) })
	}
}

// watch is in a hurry whenever the sentinel says that a master has changed, until ctx
// ends. What is missed while it cannot be reached the next look finds.
func (f *Finder) watch(ctx context.Context, s *Server) {
	var c rueidis.Client
	for ctx.Err() == nil {
		if c == nil {
			c, _ = s.Client(impatient)
		}
		if c != nil {
			_ = c.Receive(ctx, c.B().Subscribe().Channel("+switch-master").Build(), func(rueidis.PubSubMessage) { f.Hurry() })
		}
		sleep(ctx, time.Second)
	}
	if c != nil {
		c.Close()
	}
}
