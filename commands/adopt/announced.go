package adopt

import (
	"context"
	"errors"
	"slices"

	"github.com/lockproxy/lockproxy/commands/adopt/peers"
)

// Peers are the other proxies; a *peers.Announcer knows them.
type Peers interface {
	// May returns nil if the keys of the pattern with this index may be adopted now.
	May(pattern int) error
	// AnyOn reports whether another proxy has a key in the mode on, or may have.
	AnyOn(ctx context.Context, db int, key string) (bool, error)
}

// checkPeers refuses a call while another proxy has the keys of its pattern in a mode that does not go with ours: what is
// a lock here is an ordinary key there.
func (a *Adoption) checkPeers(c *Call) error {
	if a.opt.Peers == nil {
		return nil
	}
	err := a.opt.Peers.May(slices.Index(a.patterns, c.pattern))
	if conflict := (*peers.ConflictError)(nil); errors.As(err, &conflict) {
		return c.refused(PeerConflict, conflict.Why)
	}
	return err
}
