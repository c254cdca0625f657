package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

// waitForLeases is a NotYetError while leases from before the last change may run.
func (c *change) waitForLeases(ctx context.Context) error {
	r := c.leasesLeft()
	if r.left > 0 && (r.read < 0 || r.left > readAgain && r.read > readAgain) {
		if err := c.noteLeases(ctx, c.From); err != nil {
			return err
		}
		if err := c.readStep(ctx); err != nil {
			return err
		}
		r = c.leasesLeft()
	}
	if r.left <= 0 {
		return nil
	}
	if r.key != "" {
		r.key = ", that of " + r.key + " longest"
	}
	return &NotYetError{fmt.Sprintf("leases from before the last change of the list may run for %v%s", r.left.Round(time.Second)+time.Second, r.key)}
}

// leasesLeft is what a majority of From says of leases from before the last change.
func (c *change) leasesLeft() remaining {
	var all []remaining
	var reads []time.Duration
	for i := range c.members {
		if m := &c.members[i]; c.in(i, c.From) && m.answered() {
			r := m.remaining()
			all, reads = append(all, r), append(reads, r.read)
		}
	}
	slices.SortFunc(all, func(a, b remaining) int { return cmp.Compare(a.left, b.left) })
	slices.Sort(reads)
	r := all[majority(c.From)-1]
	r.read = reads[len(reads)-majority(c.From)]
	return r
}

// noteLeases asks the voting nodes of a list that have taken the last change, which must be a majority, for how long leases from before it
// run, and tells all nodes of the list.
func (c *change) noteLeases(ctx context.Context, list []*backends.Server) error {
	longest, key, n := time.Duration(0), "", 0
	for i := range c.members {
		if !c.in(i, list) || !c.members[i].voting() {
			continue
		}
		left, its, told, err := c.longestLease(ctx, i)
		if err != nil {
			return err
		}
		if told {
			n++
		}
		if left > longest {
			longest, key = left, its
		}
	}
	if n < majority(list) {
		return &NotYetError{fmt.Sprintf("only %d of %d lock nodes vote and have taken the last change of the list", n, len(list))}
	}
	ms := strconv.FormatInt(longest.Milliseconds()+1, 10)
	votes, err := c.set.AskNodes(ctx, scripts.Change, ignored, func(i int) []string {
		return c.only(i, list, "over", strconv.FormatInt(c.epoch, 10), ms, key)
	})
	if err != nil {
		return err
	}
	return c.requireMajority("took for how long leases run", votes, list)
}

// longestLease is for how long leases from before the last change run on a node at most, and the key of the longest; told is false if the node
// has not taken that change.
func (c *change) longestLease(ctx context.Context, i int) (left time.Duration, key string, told bool, err error) {
	for cursor, tries := "0", 0; ; {
		var next, its string
		var ms int64
		parse := func(m []rueidis.RedisMessage) (vote.Vote, error) {
			if len(m) == 2 {
				return vote.Vote{Kind: vote.No}, nil
			}
			if len(m) != 4 {
				return vote.Vote{}, errors.New("no page of leases")
			}
			return vote.Vote{Kind: vote.Yes}, errors.Join(vote.ReadText(m[1], &next), vote.ReadInts(m[2:], &ms), vote.ReadText(m[3], &its))
		}
		v, err := c.askOne(ctx, i, scripts.Change, parse, "leases", cursor, nodekeys.Literal(c.set.Opts.Prefix)+"[lrd]*", strconv.FormatInt(c.epoch, 10))
		switch {
		case err != nil:
			return 0, "", false, err
		case v.Kind == vote.No:
			return 0, "", false, nil
		case v.Kind == vote.Yes:
			if vote.Millis(ms) > left {
				left, key = vote.Millis(ms), its
			}
			if cursor, tries = next, 0; cursor == "0" {
				return left, key, true, nil
			}
		case tries == pageTries || v.Code != 0:
			return 0, "", false, notYet("", c.set.Members[i].Name(voters.OrTimeout(v.Err)))
		default:
			tries++
		}
	}
}
