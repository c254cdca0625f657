package hints

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
var noticeTimeouts = voters.Timeouts{Node: time.Second / 4, Quorum: time.Second}

// Post is that of locks.Noticeboard: it stores a notice at the nodes, and returns those of all proxies that a majority has between
// them. The error is a *locks.QuorumError, or that of ctx.
func Post(ctx context.Context, s *voters.Set, r locks.PostRequest) ([]locks.Notice, error) {
	slot := s.AcquireSlot
	if r.Unused {
		slot = s.AcquireSlotToList
	}
	if err := slot(ctx); err != nil {
		return nil, err
	}
	defer s.ReleaseSlot()
	if r.Unused && s.Unused() {
		return nil, locks.ErrUnused
	}
	key := s.Opts.Prefix + noticesKey
	keys := nodekeys.Keys{Lock: key + ":" + r.ID, Fences: key, Node: s.Opts.Prefix + "node"}
	round := s.Ask(voters.AskAnnounce, voters.ScriptCall{
		Args:  s.Command(scripts.Announce, keys, r.ID, r.Text, voters.MS(max(r.Keep, time.Millisecond))),
		Parse: vote.ParseAnnounce, Expires: s.Clock() + noticeTimeouts.Quorum,
	}, voters.WaitForAll)
	err := round.Wait(ctx, noticeTimeouts)
	votes := s.CloseAnswered(round, true, err)
	var all []locks.Notice
	for i := range votes {
		for _, n := range votes[i].Notices {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	if err == nil && !s.Agree(votes) {
		err = s.QuorumError("LOCKCTL", "", votes)
	}
	return all, err
}
