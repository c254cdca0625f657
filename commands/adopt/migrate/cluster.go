package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// In a Cluster slots move from one master to another, key by key, while they are looked through. A key that is on its way
// must not look absent: what cannot be found out in time is an error.
const (
	clusterTries = 25 // to find the master of a key, or to have looked at every master
	clusterPause = 40 * time.Millisecond
	clusterWait  = 3 * time.Second // for all masters to say which there are
)

// askOwner has the master of a key run a command, wherever the key is on its way. An error reply is a reply, but one that
// says to ask elsewhere or later: that is an error if it lasts.
func (m *Masters) askOwner(ctx context.Context, db int, args ...string) (reply []byte, err error) {
	master, asking := m.Of.View().FirstMaster(), false
	for try := range clusterTries {
		if try > 2 {
			if err := pause(ctx, clusterPause); err != nil {
				return nil, err
			}
		}
		if asking {
			reply, err = m.askImporting(ctx, db, master, args)
		} else {
			reply, err = m.ask(ctx, db, master, args...)
		}
		if err != nil {
			return nil, err
		}
		slot, addr, redirected := relay.ParseRedirection(reply)
		addr = relay.AbsoluteAddr(addr, master)
		next := master
		switch {
		case redirected && resp.HasCode(reply, "ASK"):
			next, asking = m.Of.MasterAt(addr), true
		case redirected:
			next, asking = m.Of.Moved(slot, addr), false
		case resp.HasCode(reply, "TRYAGAIN"), resp.HasCode(reply, "CLUSTERDOWN"):
			masters := m.Of.View().Masters()
			if asking = false; len(masters) > 0 {
				next = masters[try%len(masters)]
			}
		default:
			return reply, nil
		}
		if next == nil {
			return nil, errors.New("the upstream is closed")
		}
		err = ofMaster(master, refusal(reply))
		master = next
	}
	return nil, err
}

// askImporting has a master run a command on a key of a slot that is on the way to it.
func (m *Masters) askImporting(ctx context.Context, db int, master *upstream.Pool, args []string) ([]byte, error) {
	conn, r, err := dial(ctx, master.Server(), m.Of.DefaultIdentity(), "2", db)
	if err != nil {
		return nil, ofMaster(master, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := tell(conn, r, []string{"ASKING"}); err != nil {
		return nil, ofMaster(master, err)
	}
	reply, err := tell(conn, r, args)
	return reply, ofMaster(master, err)
}

// everyMaster calls look with all masters, until these were all that there are.
func (m *Masters) everyMaster(ctx context.Context, look func(masters []*upstream.Pool) (all bool, err error)) (all bool, err error) {
	for range clusterTries {
		masters := m.Of.View().Masters()
		if all, err = look(masters); err != nil || !all {
			return all, err
		}
		if err = m.haveAll(ctx, masters); err == nil {
			return true, nil
		}
		m.Of.Refresh()
		if err := pause(ctx, clusterPause); err != nil {
			return false, err
		}
	}
	return false, err
}

// haveAll returns nil if these are all masters that have slots, or are about to get some, as each of them says.
func (m *Masters) haveAll(ctx context.Context, masters []*upstream.Pool) error {
	asked, named := map[string]bool{}, map[string]bool{}
	for _, master := range masters {
		reply, err := m.ask(ctx, 0, master, "CLUSTER", "NODES")
		if err != nil {
			return err
		}
		if refused := refusal(reply); refused != nil {
			return ofMaster(master, refused)
		}
		for line := range strings.Lines(string(resp.Bulk(reply))) {
			f := strings.Fields(line)
			if len(f) < 8 {
				continue
			}
			if slices.Contains(strings.Split(f[2], ","), "myself") {
				asked[f[0]] = true
			}
			for _, slots := range f[8:] {
				if _, to, leaves := strings.Cut(strings.TrimSuffix(slots, "]"), "->-"); leaves {
					named[to] = true
				} else if slots[0] != '[' {
					named[f[0]] = true
				}
			}
		}
	}
	for id := range named {
		if !asked[id] {
			return fmt.Errorf("there are other masters now than were looked at: %s is one", id)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
