package locks

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// A Queue is the line for one name at this proxy.
type Queue struct {
	Key
	Waiters int
	Longest time.Duration // how long the head of the line has waited
	Next    string        // the owner that the head waits for
	Holder  string        // the last that it was told of; empty: nobody
}

// Queues are the longest queues at this proxy, at most so many, and how many there are.
func (s *Service) Queues(most int) (longest []Queue, total int) {
	lines, total := s.waiting.Longest(most, Key.compare)
	for _, l := range lines {
		longest = append(longest, Queue{
			Key: l.Key, Waiters: l.Len, Longest: l.Head.Waiting, Next: l.Head.Value.Owner, Holder: l.Known.Holder,
		})
	}
	return longest, total
}

// A NamesRequest asks for names that may be held.
type NamesRequest struct {
	DB    int    // or AllDBs
	Match string // as in ListRequest
	Looks int    // how many times a node is asked for at most 1000 keys, all nodes together; 0: 100
}

// Names goes through the names as List does, without asking who has them: that costs a
// quorum read of each, see Holdings. A name is one that some node has a record of: it is held, or
// was a moment ago, or somebody tries to get it. complete is false if there was not enough of Looks
// to see all. The names come in no order, and each once. Errors are those of List.
func (s *Service) Names(ctx context.Context, r NamesRequest) (names []Key, complete bool, err error) {
	seen := map[Key]struct{}{}
	at, err := parseCursor("", len(s.nodes))
	for looks := cmp.Or(r.Looks, 100); looks > 0 && err == nil; looks-- {
		var places []Key
		places, at, err = s.namesFrom(ctx, ListRequest{DB: r.DB, Match: r.Match, Count: listMost}, at)
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

// namesFrom takes a slot of its own, so that locks need not wait for all of Names.
func (s *Service) namesFrom(ctx context.Context, r ListRequest, at cursor) ([]Key, cursor, error) {
	if err := s.acquireSlotToList(ctx); err != nil {
		return nil, at, err
	}
	defer s.releaseSlot()
	return s.scanSome(ctx, r, at)
}

// Holdings asks a quorum who has each of these names. Those that nobody has are left out.
// The error is a *QuorumError or that of ctx.
func (s *Service) Holdings(ctx context.Context, names []Key) (held []Holding, err error) {
	for some := range slices.Chunk(names, maxBatch/2) {
		if held, err = s.addHoldings(ctx, some, held); err != nil {
			return nil, err
		}
	}
	return held, nil
}

func (s *Service) addHoldings(ctx context.Context, names []Key, held []Holding) ([]Holding, error) {
	if err := s.acquireSlotToList(ctx); err != nil {
		return nil, err
	}
	defer s.releaseSlot()
	all, err := s.readAll(ctx, names)
	if err != nil {
		return nil, err
	}
	for i, votes := range all {
		if countKind(votes, yes) < s.quorum {
			return nil, s.quorumError("LOCKCTL", names[i].Name, votes)
		}
		h, err := s.listed(ctx, votes, names[i])
		if err != nil {
			return nil, err
		}
		if h.Owner != "" {
			held = append(held, h)
		}
	}
	return held, nil
}
