package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
)

// What an upstream may be, for Options.Mode.
const (
	ModeAuto       = "auto"       // from its URL and its INFO
	ModeStandalone = "standalone" // one server, with its replicas if Options.Replicas
	ModeReplicated = "replicated" // the addresses are a master and its replicas, which may swap roles
	ModeSentinel   = "sentinel"   // the addresses are sentinels
	ModeCluster    = "cluster"    // the addresses are nodes of a Cluster
)

// CheckMode returns an error if an upstream's URL contradicts the mode.
func CheckMode(seed *backends.Server, mode string) error {
	switch {
	case mode == ModeSentinel && seed.MasterSet() == "":
		return errors.New("sentinel needs a master set; write redis://host:26379?master_set=name")
	case mode != ModeSentinel && mode != ModeAuto && seed.MasterSet() != "":
		return fmt.Errorf("the upstream's URL names a master set, which only sentinels have; not %s", mode)
	case mode == ModeStandalone && !seed.Single():
		return errors.New("a standalone upstream is one server, the upstream's URL names several addresses")
	case mode == ModeReplicated && seed.Single():
		return errors.New("replicated needs the addresses of all servers; write redis://host:port?addr=host:port&addr=host:port")
	}
	return nil
}

// modeOfURL guesses the mode from the URL alone. A Cluster looks like one of the
// others until it is asked.
func modeOfURL(seed *backends.Server) string {
	switch {
	case seed.MasterSet() != "":
		return ModeSentinel
	case !seed.Single():
		return ModeReplicated
	}
	return ModeStandalone
}

// detectMode asks the addresses of the URL for INFO and sets mode and modeKnown. A
// server that refuses INFO is taken for no Cluster: as one it would be of no use.
func (w *Watcher) detectMode(ctx context.Context) error {
	addrs := w.seed.Addresses()
	replies := make([]rueidis.RedisResult, len(addrs))
	w.askAll(addrs, func(i int, c rueidis.Client) { replies[i] = do(ctx, c, "INFO", "server") })
	var fault error
	for i, r := range replies {
		text, err := r.ToString()
		switch {
		case isClusterNode(text):
			w.mode, w.modeKnown = ModeCluster, true
			return nil
		case err == nil || isRefusal(err):
			if err != nil && !w.modeKnown {
				w.opt.Log.Info("upstream refuses INFO; its mode is a guess", "asked", addrs[i], "taken for", w.mode, "error", err)
			}
			w.modeKnown = true
		default:
			fault = fmt.Errorf("%s: %w", addrs[i], err)
		}
	}
	if w.modeKnown {
		return nil
	}
	return fault
}

// isClusterNode reports whether the server section of INFO is that of a Cluster node:
// redis_mode of Redis, server_mode of Valkey.
func isClusterNode(info string) bool {
	return strings.Contains(info, "redis_mode:cluster") || strings.Contains(info, "server_mode:cluster")
}

// isRefusal reports whether err is an error reply that will not pass by itself, as
// LOADING does.
func isRefusal(err error) bool {
	reply, ok := rueidis.IsRedisErr(err)
	if !ok {
		return false
	}
	word, _, _ := strings.Cut(reply.Error(), " ")
	return word != "LOADING" && word != "BUSY" && word != "MASTERDOWN"
}
