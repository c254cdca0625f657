package tally

import (
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// readVotes reads one letter per node: a held by alice under fence 5, A under fence 6, d by two holds, e with a second one that has
// ended, b held by bob under fence 5, r read by somebody, - free, x failed.
func readVotes(letters string) []vote.Vote {
	var votes []vote.Vote
	hold, second, ended := vote.NodeHold{ID: "1", Rest: time.Second}, vote.NodeHold{ID: "2", Rest: time.Second}, vote.NodeHold{ID: "2"}
	of := func(owner string, fence int64, holds ...vote.NodeHold) vote.Vote {
		return vote.Vote{Kind: vote.Yes, Owner: owner, Fence: fence, Read: &vote.Reading{Holds: holds}}
	}
	for _, l := range letters {
		votes = append(votes, map[rune]vote.Vote{
			'a': of("alice", 5, hold), 'A': of("alice", 6, hold), 'd': of("alice", 5, hold, second), 'e': of("alice", 5, hold, ended),
			'b': of("bob", 5, hold), 'r': {Kind: vote.Yes, Read: &vote.Reading{Readers: 1}}, '-': of("", 0), 'x': {Err: errors.New("timeout")},
		}[l])
	}
	return votes
}

func TestOwnerBy(t *testing.T) {
	for votes, want := range map[string]struct {
		owner string
		n     int
		fence int64
		who   Ownership
	}{
		"aaaxx": {"alice", 3, 5, HeldByOne},
		"aaAxx": {"alice", 3, 5, BeingGranted},
		"abbbx": {"bob", 3, 5, HeldByOne},
		"aa--x": {"alice", 2, 5, MaybeHeld},
		"aab--": {"alice", 2, 5, HeldByNobody},
		"a---x": {"alice", 1, 5, HeldByNobody},
		"--xxx": {"", 0, 0, MaybeHeld},
		"---xx": {"", 0, 0, HeldByNobody},
	} {
		owner, n, fence, who := OwnerBy(readVotes(votes), 3)
		if owner != want.owner || n != want.n || fence != want.fence || who != want.who {
			t.Errorf("%s: %q by %d, fence %d, %d, want %+v", votes, owner, n, fence, who, want)
		}
	}
}

func TestReaders(t *testing.T) {
	for votes, want := range map[string]struct{ maybe, agree bool }{
		"rrrxx": {false, true},
		"---xx": {false, true},
		"rr--x": {true, false},
		"r---x": {false, true},
		"r--xx": {true, false},
		"--xxx": {false, false},
	} {
		if maybe, agree := MaybeRead(readVotes(votes), 3), AgreeOnReaders(readVotes(votes), 3); maybe != want.maybe || agree != want.agree {
			t.Errorf("%s: maybe %v, agree %v, want %+v", votes, maybe, agree, want)
		}
	}
}

func TestStable(t *testing.T) {
	for votes, want := range map[string]bool{
		"xaaax": true, "---": true, "aae": true, "xxx": true,
		"aaA": false, "aab": false, "a--": false, "-aa": false, "aad": false,
	} {
		if got := Stable(readVotes(votes)); got != want {
			t.Errorf("%s: %v", votes, got)
		}
	}
}

// TestBetweenRounds: a node where a renewal has reinstated the grant does not vouch for its fence.
func TestBetweenRounds(t *testing.T) {
	for votes, want := range map[string]bool{"aaAxx": true, "aaaAA": false, "aAxxx": false, "aabAx": true, "aabbA": true, "bbA--": false} {
		if got := BetweenRounds(readVotes(votes), 3, "alice"); got != want {
			t.Errorf("%s: %v", votes, got)
		}
	}
	votes := readVotes("aaAxx")
	votes[0].Read.Reinstated = true
	if BetweenRounds(votes, 3, "alice") {
		t.Error("a reinstated grant counts")
	}
}

// TestRelease_Rest: what the votes on a release by alice say about other owners, about later grants of hers, and about her other holds.
func TestRelease_Rest(t *testing.T) {
	no := func(owner string, fence int64) vote.Vote { return vote.Vote{Kind: vote.No, Owner: owner, Fence: fence} }
	late := vote.Release{TooLate: true}
	rival, noRival := vote.Vote{Kind: vote.No, Owner: "bob", Release: late}, vote.Vote{Kind: vote.No, Owner: "alice", Release: late}
	free := vote.Vote{Kind: vote.No, Release: late}
	done, repeated := vote.Vote{Kind: vote.Yes}, vote.Vote{Kind: vote.Duplicate}
	more, unknown := vote.Vote{Kind: vote.Yes, Holds: 1}, vote.Vote{Kind: vote.Yes, Holds: vote.UnknownHolds}
	for _, tt := range []struct {
		name        string
		votes       []vote.Vote
		lost, later bool // of two nodes, and later than fence 5
		over        bool // of two nodes
		nothing     int
	}{
		{"done", []vote.Vote{done, more, {}}, false, false, true, 1},
		{"done where the grant may not be known", []vote.Vote{done, unknown, repeated}, false, false, false, 2},
		{"another has it since", []vote.Vote{rival, rival, {}}, true, false, false, 2},
		{"another has it since on one node", []vote.Vote{rival, free, noRival}, false, false, false, 2},
		{"another has it", []vote.Vote{no("bob", 6), no("bob", 6), no("bob", 6)}, false, false, false, 3},
		{"the owner has a later grant", []vote.Vote{no("alice", 6), no("alice", 5), {}}, false, true, false, 0},
		{"the owner has this grant", []vote.Vote{no("alice", 5), {Kind: vote.Yes, Owner: "alice", Fence: 6}, {}}, false, false, false, 1},
	} {
		lost, later := LostToRival(tt.votes, 2, "alice"), HasLater(tt.votes, "alice", 5)
		over, nothing := RequestOver(tt.votes, 2), LeftNothing(tt.votes, "alice")
		if lost != tt.lost || later != tt.later || over != tt.over || nothing != tt.nothing {
			t.Errorf("%s: lost %v, later %v, over %v, nothing on %d nodes, want %+v", tt.name, lost, later, over, nothing, tt)
		}
	}
}
