package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

// noticesKey is that of the ids of all notices, below the prefix. A notice has its id behind a colon.
const noticesKey = "adopt"

// noticeTimeouts are longer than those of locks: no client waits, and every node is to be heard.
var noticeTimeouts = voters.Timeouts{Node: listTimeout / 4, Quorum: listTimeout}

// Post implements locks.Noticeboard.
func (s *Store) Post(ctx context.Context, r locks.PostRequest) ([]locks.Notice, error) {
	slot := s.set.AcquireSlot
	if r.Unused {
		slot = s.set.AcquireSlotToList
	}
	if err := slot(ctx); err != nil {
		return nil, err
	}
	defer s.set.ReleaseSlot()
	if r.Unused && s.set.Unused() {
		return nil, locks.ErrUnused
	}
	key := s.set.Opts.Prefix + noticesKey
	keys := nodekeys.Keys{Lock: key + ":" + r.ID, Fences: key, Node: s.set.Opts.Prefix + "node"}
	round := s.set.Ask(voters.AskAnnounce, voters.ScriptCall{
		Args:  s.set.Command(scripts.Announce, keys, r.ID, r.Text, voters.MS(max(r.Keep, time.Millisecond))),
		Parse: vote.ParseAnnounce, Expires: s.Now() + listTimeout,
	}, voters.WaitForAll)
	err := round.Wait(ctx, noticeTimeouts)
	votes := s.set.CloseAnswered(round, true, err)
	var all []locks.Notice
	for i := range votes {
		for _, n := range votes[i].Notices {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	if err == nil && !s.set.Agree(votes) {
		err = s.set.QuorumError("LOCKCTL", "", votes)
	}
	return all, err
}
