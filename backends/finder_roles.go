package backends

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/redis/rueidis"
)

// A role is what a node says that it is.
type role struct {
	kind     string // master, slave, or empty: it did not answer
	synced   bool   // of a replica: connected to its master, and has all of its keys
	offset   int64  // how much it has written, in bytes of its replication stream
	replicas []string
}

// errSilent is of nodes none of which answers.
var errSilent = errors.New("no node answers")

// askRoles asks every node for its role. One that answers but will not or cannot say
// has the role that it had.
func (f *Finder) askRoles(ctx context.Context, addrs []string) []role {
	now := make([]role, len(addrs))
	alive := make([]bool, len(addrs))
	f.ask(addrs, func(i int, c rueidis.Client) {
		r := within(ctx, c, "ROLE")
		now[i] = readRole(r)
		_, alive[i] = rueidis.IsRedisErr(r.Error())
	})
	for i, addr := range addrs {
		if alive[i] {
			now[i] = f.roles[addr]
		}
		if now[i].kind != "" {
			f.roles[addr] = now[i]
		}
	}
	return now
}

// readRole reads the reply of ROLE; what is not one gives the zero role.
func readRole(r rueidis.RedisResult) (is role) {
	parts, err := r.ToArray()
	if err != nil || len(parts) == 0 {
		return role{}
	}
	switch is.kind, _ = parts[0].ToString(); {
	case is.kind == "master" && len(parts) >= 3:
		is.offset, _ = parts[1].AsInt64()
		following, _ := parts[2].ToArray()
		for _, m := range following {
			if f, err := m.AsStrSlice(); err == nil && len(f) >= 2 {
				is.replicas = append(is.replicas, net.JoinHostPort(f[0], f[1]))
			}
		}
	case is.kind == "slave" && len(parts) >= 5:
		state, _ := parts[3].ToString()
		is.synced = state == "connected"
		is.offset, _ = parts[4].AsInt64()
	default:
		return role{}
	}
	return is
}

// lookStandalone looks for the replicas of the one server.
func (f *Finder) lookStandalone(ctx context.Context) (*Topology, error) {
	own := f.askRoles(ctx, []string{f.seed.name})[0]
	if own.kind == "" {
		return nil, errSilent
	}
	return &Topology{Shards: []Shard{{Master: f.seed, Replicas: f.following(ctx, own.replicas)}}}, nil
}

// following are those of the nodes that are replicas in sync.
func (f *Finder) following(ctx context.Context, addrs []string) (out []*Server) {
	for i, r := range f.askRoles(ctx, addrs) {
		if r.kind == "slave" && r.synced {
			out = append(out, f.server(addrs[i]))
		}
	}
	return out
}

// lookReplicated asks the servers that the URL names who is the master.
func (f *Finder) lookReplicated(ctx context.Context) (*Topology, error) {
	addrs := f.seed.opt.InitAddress
	roles := f.askRoles(ctx, addrs)
	i, more := chooseMaster(roles, addrs, f.masters)
	if more && !f.split {
		f.opt.Log.Warn("more than one server says that it is the master", "upstream", f.seed.String(), "taken", addrs[i])
	}
	f.split = more
	var shard Shard
	if i >= 0 {
		shard.Master = f.server(addrs[i])
	}
	heard := false
	for j, r := range roles {
		heard = heard || r.kind != ""
		if r.kind == "slave" && r.synced && !more { // else nobody knows whom it follows
			shard.Replicas = append(shard.Replicas, f.server(addrs[j]))
		}
	}
	if !heard {
		return nil, errSilent
	}
	return &Topology{Shards: []Shard{shard}}, nil
}

// chooseMaster is the index of the node to take for the master, -1 if there is none.
// Of several that say so it is the one that more replicas follow, then the one that
// has written more, then the one that it was before. Where none does, one that it was
// before and is silent now may come back. more says that there were several.
func chooseMaster(roles []role, addrs []string, before string) (best int, more bool) {
	best = -1
	for i, r := range roles {
		switch {
		case r.kind != "master":
		case best < 0:
			best = i
		default:
			more = true
			if outranks(r, roles[best]) || !outranks(roles[best], r) && addrs[i] == before {
				best = i
			}
		}
	}
	for i, r := range roles {
		if best < 0 && r.kind == "" && addrs[i] == before {
			best = i
		}
	}
	return best, more
}

func outranks(a, b role) bool {
	if len(a.replicas) != len(b.replicas) {
		return len(a.replicas) > len(b.replicas)
	}
	return a.offset > b.offset
}

// number is a decimal number; anything else is 0.
func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}
