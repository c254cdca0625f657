package quorum

import (
	"errors"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// grantVotes reads one letter per node: y done, r done where a renewal reinstates it, a released before, f
// free, l free after a later grant, t done on a hold that was reinstated, n another's, o this owner's other grant, s
// another version, x failed, . not yet here.
func grantVotes(letters string) []voters.Vote {
	var votes []voters.Vote
	for _, l := range letters {
		votes = append(votes, map[rune]voters.Vote{
			'y': {Kind: voters.Yes}, 'r': {Kind: voters.Yes, Reinstated: true}, 'a': {Kind: voters.Duplicate},
			't': {Kind: voters.Yes, Reinstated: true}, 'f': {Kind: voters.No, Fence: 5}, 'l': {Kind: voters.No, Fence: 6}, 'n': {Kind: voters.No, Owner: "b"},
			'o': {Kind: voters.No, Owner: "me"}, 's': {Kind: voters.VersionConflict}, 'x': {Err: errors.New("timeout")}, '.': {},
		}[l])
	}
	return votes
}

func TestCountOutcome(t *testing.T) {
	tests := []struct {
		name, votes string
		done        func(*voters.Vote) bool
		final       bool
		want        outcome
	}{
		{"a quorum moved", "yy.y.", didRenew, false, applied},
		{"put back counts", "yrrxx", didRenew, true, applied},
		{"half did not", "yyxxx", didRenew, true, undecided},
		{"a quorum is free", "fffyy", didRenew, true, lost},
		{"the silent could have", "ffyyx", didRenew, true, undecided},
		{"the silent may still", "ffyy.", didRenew, false, pending},
		{"another has it", "nnnxx", didRenew, true, otherOwner},
		{"this owner's next grant has it", "oooxx", didRenew, true, lost},
		{"renewed elsewhere", "yyssx", didRenew, true, conflict},
		{"too few, but who answers is not blamed", "xxx..", didRenew, false, pending},
		{"nobody", "xxxxx", didRenew, true, undecided},
		{"released", "yyyxx", didRelease(5), true, applied},
		{"repeated", "aayxx", didRelease(0), true, applied},
		{"free, and nobody after", "yffxx", didRelease(5), true, applied},
		{"free, and somebody after", "yllfx", didRelease(5), true, undecided},
		{"free, and somebody after on a quorum", "ylllf", didRelease(5), true, lost},
		{"what was put back is no proof", "yytxx", didRelease(0), true, undecided},
		{"unless the validity runs", "yytxx", didRelease(5), true, applied},
		{"lapsed", "fffff", didRelease(0), true, lost},
		{"released to another", "nnnaa", didRelease(0), true, otherOwner},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := countOutcome(grantVotes(tt.votes), len(tt.votes)/2+1, tt.final, "me", tt.done); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.votes, got, tt.want)
			}
		})
	}
}

func TestReleaseOutcome(t *testing.T) {
	tests := []struct {
		name, votes string
		fence       int64
		final       bool
		want        outcome
	}{
		{"a rival tries on the last node", "yynxx", 5, true, applied},
		{"it is known at the Q-th answer", "yyn..", 5, false, applied},
		{"an old proposal of a rival's", "yylxx", 5, true, applied},
		{"the lease may have been shortened", "y!y!n!xx", 5, true, undecided},
		{"noted on one of a quorum", "yyn!xx", 5, true, undecided},
		{"noted where nobody has it since", "y!y!f!xx", 5, true, applied},
		{"a note beside a quorum without", "yyn!nx", 5, true, applied},
		{"another hold of the owner", "yyoxx", 5, true, undecided},
		{"given back elsewhere", "oooxx", 5, true, lost},
		{"no validity is remembered", "yynxx", 0, true, undecided},
		{"too few answer", "yyxxx", 5, true, undecided},
		{"too few yet", "yy...", 5, false, pending},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := releaseOutcome(notedVotes(tt.votes), 3, tt.final, "me", tt.fence); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.votes, got, tt.want)
			}
		})
	}
}

// notedVotes are grantVotes, of which those before a ! have a note.
func notedVotes(letters string) []voters.Vote {
	var votes []voters.Vote
	for _, l := range letters {
		if l == '!' {
			votes[len(votes)-1].Noted = true
			continue
		}
		votes = append(votes, grantVotes(string(l))...)
	}
	return votes
}

func TestRenewOutcome(t *testing.T) {
	tests := []struct {
		name, votes string
		final       bool
		want        outcome
	}{
		{"put back where it was lost", "yrrxx", true, applied},
		{"put back where it may have lapsed", "yry!xx", true, undecided},
		{"a quorum has it still", "y!yy!rx", true, applied},
		{"the last one may have it", "y!yr..", false, pending},
		{"it lapsed on a quorum", "y!rrff", true, lost},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := renewOutcome(notedVotes(tt.votes), 3, tt.final, "me"); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.votes, got, tt.want)
			}
		})
	}
}
