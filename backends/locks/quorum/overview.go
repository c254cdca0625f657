package quorum

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// Names implements locks.Inspector.
func (s *Store) Names(ctx context.Context, r locks.NamesRequest) (names []locks.Key, complete bool, err error) {
	seen := map[locks.Key]struct{}{}
	at, err := parseCursor("", len(s.set.Members))
	for looks := cmp.Or(r.Looks, 100); looks > 0 && err == nil; looks-- {
		var places []locks.Key
		places, at, err = s.namesFrom(ctx, locks.ListRequest{DB: r.DB, Match: r.Match, Count: listMost}, at)
		for _, p := range places {
			if _, ok := seen[p]; !ok {
				seen[p] = struct{}{}
				names = append(names, p)
			}
		}
		if at.String() == "0" {
			return names, err == nil, err
		}
	}
	return names, false, err
}

// namesFrom is one step of Names. It takes a slot of its own, so that locks need not wait for all steps.
func (s *Store) namesFrom(ctx context.Context, r locks.ListRequest, at cursor) ([]locks.Key, cursor, error) {
	if err := s.set.AcquireSlotToList(ctx); err != nil {
		return nil, at, err
	}
	defer s.set.ReleaseSlot()
	page, _, next, err := s.scanSome(ctx, r, at)
	return append(page.Keys, page.Sets...), next, err
}

// Holdings implements locks.Inspector.
func (s *Store) Holdings(ctx context.Context, names []locks.Key) (held []locks.Holding, err error) {
	for some := range slices.Chunk(names, voters.MaxBatch/2) {
		if err := s.set.AcquireSlotToList(ctx); err != nil {
			return nil, err
		}
		err := s.eachHeld(ctx, some, func(_ int, h locks.Holding, _ []vote.Vote) { held = append(held, h) })
		s.set.ReleaseSlot()
		if err != nil {
			return nil, err
		}
	}
	return held, nil
}
