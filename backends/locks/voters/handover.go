package voters

import (
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/scripts"
)

// HandOver asks all nodes for a release, whose round it returns, and right behind that for an acquire of the same name,
// which has a round of its own: in one script call wherever both are to be sent.
func (s *Set) HandOver(release, acquire ScriptCall, enough func([]Vote) bool) *Round {
	release.Round = s.Begin(AskRelease, enough)
	acquire.behind, acquire.handOver = release.Round, joinArgs(release.Args, acquire.Args)
	s.fanOut.Lock()
	defer s.fanOut.Unlock()
	for _, n := range s.Members {
		n.Push(release, acquire)
	}
	return release.Round
}

// joinArgs is the command that does what two do, which call release and acquire with the same keys.
func joinArgs(release, acquire []string) []string {
	return slices.Concat([]string{"EVALSHA", scripts.Handover.SHA1}, release[2:ownArgs],
		[]string{strconv.Itoa(len(release) - ownArgs)}, release[ownArgs:], acquire[ownArgs:])
}

// commandsOf are the commands that calls are sent as: two calls as one, if one is to run behind the other and still does;
// else each is one.
func commandsOf(calls []ScriptCall) iter.Seq2[int, []ScriptCall] {
	return func(yield func(int, []ScriptCall) bool) {
		for i := 0; len(calls) > 0; i++ {
			k := 1
			if len(calls) > 1 && calls[1].behind != nil && calls[1].behind == calls[0].Round {
				k = 2
			}
			if !yield(i, calls[:k]) {
				return
			}
			calls = calls[k:]
		}
	}
}

// readHandOver reads the two votes in a reply of handover.
func readHandOver(res rueidis.RedisResult, release, acquire Parse) (Vote, Vote) {
	m, err := res.ToArray()
	if err == nil && len(m) != 2 {
		err = fmt.Errorf("not a reply of this script: %d values where 2 were expected", len(m))
	}
	if err != nil {
		return Vote{Err: err}, Vote{Err: err}
	}
	return readVote(m[0], release), readVote(m[1], acquire)
}
