// Package store chooses where locks are kept: on lock nodes, which decide by majority, or in etcd.
package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/check"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/etcd"
	"github.com/lockproxy/lockproxy/backends/locks/quorum"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// A Choice is where locks are kept. The zero value is on lock nodes.
type Choice struct{ etcd *etcd.Target }

// Read reads the setting. Its error repeats nothing that may be a password.
func (c *Choice) Read(text string) error {
	if text == "nodes" {
		c.etcd = nil
		return nil
	}
	if !etcd.IsURL(text) {
		return errors.New("is neither nodes nor the URL of an etcd; write etcd://host:2379,host:2379,host:2379/prefix, or etcds:// for TLS")
	}
	t, err := etcd.Parse(text)
	c.etcd = &t
	return err
}

// IsEtcd reports whether locks are kept in etcd, and not on lock nodes.
func (c Choice) IsEtcd() bool { return c.etcd != nil }

// Secure reports whether that is an etcd behind TLS.
func (c Choice) Secure() bool { return c.etcd != nil && c.etcd.Secure }

// String names the etcd, without user or password; empty: locks are kept on lock nodes.
func (c Choice) String() string {
	if c.etcd == nil {
		return ""
	}
	return "etcd: " + c.etcd.String()
}

// ofNodes are the settings that mean something for lock nodes only.
var ofNodes = []string{"lock-node", "bootstrap", "restart-grace", "replica-acks", "fence-retention", "key-prefix"}

// Faults are those between the choice and other settings, by whether these were given. both is true if adopted locks are
// also to be kept at the upstream.
func (c Choice) Faults(given func(name string) bool, both bool) (bad []error) {
	if c.etcd == nil {
		return nil
	}
	if names := slices.DeleteFunc(slices.Clone(ofNodes), func(n string) bool { return !given(n) && !given(n+"-file") }); len(names) > 0 {
		bad = append(bad, fmt.Errorf("lock-store: etcd keeps the locks, so %s means nothing: leave it out; what the keys in etcd begin with is behind the last / of the URL", strings.Join(names, ", ")))
	}
	if both {
		bad = append(bad, errors.New("lock-store, adopt: mode=both is for moving from the upstream to lock nodes, and etcd has none: use mode=on"))
	}
	return bad
}

// New makes the store. For etcd only the times of nodes are used; t may be nil.
func (c Choice) New(nodes voters.Options, t *backends.TLS, log *slog.Logger) (locks.Store, error) {
	if c.etcd == nil {
		return quorum.New(quorum.Options{Options: nodes})
	}
	return c.newEtcd(nodes, t, log)
}

// Members returns a function that looks at the members of etcd, nil if locks are on lock nodes. Options and t are those of New.
func (c Choice) Members(nodes voters.Options, t *backends.TLS) func(context.Context) []check.Member {
	if c.etcd == nil {
		return nil
	}
	return func(ctx context.Context) (all []check.Member) {
		s, err := c.newEtcd(nodes, t, slog.New(slog.DiscardHandler))
		if err != nil {
			return []check.Member{{Address: c.etcd.String(), Err: err}}
		}
		for _, l := range s.Look(ctx) {
			all = append(all, check.Member{
				Address: l.Address, Err: l.Err, Damaged: l.Damaged, Denied: l.Denied, Refused: l.Refused, Version: l.Version, Cluster: l.Cluster, ID: l.Member, Leader: l.Leader,
				Learner: l.Learner, Alarms: l.Alarms, Size: l.Size, Quota: l.Quota, RoundTrips: l.Trips, Secure: c.Secure(), Credential: c.etcd.User != "",
			})
		}
		_ = s.Close() // it has begun nothing
		return all
	}
}

func (c Choice) newEtcd(nodes voters.Options, t *backends.TLS, log *slog.Logger) (*etcd.Store, error) {
	o := etcd.Options{Target: *c.etcd, MaxTTL: nodes.MaxTTL, NodeTimeout: nodes.NodeTimeout, Log: log}
	if t != nil {
		o.TLS = func() *tls.Config { return t.ClientConfig() }
	}
	return etcd.New(o)
}

// ErrNoNodes is the error of what is done with lock nodes only.
var ErrNoNodes = errors.New("locks are kept in etcd, so there are no lock nodes; its members are changed with etcdctl member")
