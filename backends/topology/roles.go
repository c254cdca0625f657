package topology

import (
	"context"
	"net"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
)

// A role is a node's answer to ROLE; the zero role: it did not answer.
type role struct {
	kind     string   // master or slave
	synced   bool     // of a replica: it is connected to its master and has all of its keys
	offset   int64    // in its replication stream, in bytes
	replicas []string // of a master: the addresses of its replicas
}

// askRoles asks every node for its role. A node that answers with an error keeps the
// role it had.
func (w *Watcher) askRoles(ctx context.Context, addrs []string) []role {
	roles := make([]role, len(addrs))
	refused := make([]bool, len(addrs))
	w.askAll(addrs, func(i int, c rueidis.Client) {
		r := do(ctx, c, "ROLE")
		roles[i] = readRole(r)
		_, refused[i] = rueidis.IsRedisErr(r.Error())
	})
	for i, addr := range addrs {
		if refused[i] {
			roles[i] = w.lastRoles[addr]
		}
		if roles[i].kind != "" {
			w.lastRoles[addr] = roles[i]
		}
	}
	return roles
}

// readRole reads the reply of ROLE; any other reply gives the zero role.
func readRole(reply rueidis.RedisResult) (r role) {
	fields, err := reply.ToArray()
	if err != nil || len(fields) == 0 {
		return role{}
	}
	switch r.kind, _ = fields[0].ToString(); {
	case r.kind == "master" && len(fields) >= 3:
		r.offset, _ = fields[1].AsInt64()
		replicas, _ := fields[2].ToArray()
		for _, m := range replicas {
			if f, err := m.AsStrSlice(); err == nil && len(f) >= 2 {
				r.replicas = append(r.replicas, net.JoinHostPort(f[0], f[1]))
			}
		}
	case r.kind == "slave" && len(fields) >= 5:
		state, _ := fields[3].ToString()
		r.synced = state == "connected"
		r.offset, _ = fields[4].AsInt64()
	default:
		return role{}
	}
	return r
}

// probeStandalone asks the one server for its replicas, and these for their state.
func (w *Watcher) probeStandalone(ctx context.Context) (*Topology, error) {
	master := w.askRoles(ctx, []string{w.seed.String()})[0]
	if master.kind == "" {
		return nil, errNoAnswer
	}
	return &Topology{Shards: []Shard{{Master: w.seed, Replicas: w.syncedReplicas(ctx, master.replicas)}}}, nil
}

// syncedReplicas are the nodes at addrs that are replicas in sync.
func (w *Watcher) syncedReplicas(ctx context.Context, addrs []string) (out []*backends.Server) {
	for i, r := range w.askRoles(ctx, addrs) {
		if r.kind == "slave" && r.synced {
			out = append(out, w.server(addrs[i]))
		}
	}
	return out
}

// probeReplicated asks the servers of the URL for their roles.
func (w *Watcher) probeReplicated(ctx context.Context) (*Topology, error) {
	addrs := w.seed.Addresses()
	roles := w.askRoles(ctx, addrs)
	master, several := chooseMaster(roles, addrs, w.masters)
	if several && !w.severalMasters {
		w.opt.Log.Warn("several servers claim to be the master", "upstream", w.seed.String(), "taken", addrs[master])
	}
	w.severalMasters = several
	var shard Shard
	if master >= 0 {
		shard.Master = w.server(addrs[master])
	}
	answered := false
	for i, r := range roles {
		answered = answered || r.kind != ""
		if r.kind == "slave" && r.synced && !several { // of several masters, whose replica it is is not known
			shard.Replicas = append(shard.Replicas, w.server(addrs[i]))
		}
	}
	if !answered {
		return nil, errNoAnswer
	}
	return &Topology{Shards: []Shard{shard}}, nil
}

// chooseMaster is the index of the node to take for the master, -1 if there is none,
// and whether several claim to be. Of several it is the one with more replicas, then
// the larger offset, then the one at the address before, the last master's. If none
// claims to be, a last master that does not answer now may come back, and stays.
func chooseMaster(roles []role, addrs []string, before string) (master int, several bool) {
	master = -1
	for i, r := range roles {
		switch {
		case r.kind != "master":
		case master < 0:
			master = i
		default:
			several = true
			if outranks(r, roles[master]) || !outranks(roles[master], r) && addrs[i] == before {
				master = i
			}
		}
	}
	for i, r := range roles {
		if master < 0 && r.kind == "" && addrs[i] == before {
			master = i
		}
	}
	return master, several
}

func outranks(a, b role) bool {
	if len(a.replicas) != len(b.replicas) {
		return len(a.replicas) > len(b.replicas)
	}
	return a.offset > b.offset
}

// parseUint reads a decimal number; anything else is 0.
func parseUint(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}
