package tally

import (
	"errors"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// grantVotes reads one letter per node: y done, r done where a renewal reinstates it, a released before, f
// free, e free and never granted, l free after a later grant, t done on a hold that was reinstated, n another's, o this owner's other grant, s
// another version, h without the hold, 1 and 2 without it since that release, x failed, . not yet here.
func grantVotes(letters string) []vote.Vote {
	var votes []vote.Vote
	for _, l := range letters {
		votes = append(votes, map[rune]vote.Vote{
			'y': {Kind: vote.Yes}, 'r': {Kind: vote.Yes, Reinstated: true}, 'a': {Kind: vote.Duplicate},
			't': {Kind: vote.Yes, Reinstated: true}, 'f': {Kind: vote.No, Fence: 5}, 'e': {Kind: vote.No}, 'l': {Kind: vote.No, Fence: 6}, 'n': {Kind: vote.No, Owner: "b"},
			'1': {Kind: vote.VersionConflict, Release: vote.Release{Other: "one"}}, '2': {Kind: vote.VersionConflict, Release: vote.Release{Other: "two"}},
			'o': {Kind: vote.No, Owner: "me"}, 's': {Kind: vote.VersionConflict}, 'h': {Kind: vote.MissingHold}, 'x': {Err: errors.New("timeout")}, '.': {},
		}[l])
	}
	return votes
}

func TestCountOutcome(t *testing.T) {
	tests := []struct {
		name, votes string
		done        func(*vote.Vote) bool
		stage       Stage
		want        Outcome
	}{
		{"a quorum moved", "yy.y.", Renewed, Running, Applied},
		{"where it was reinstated counts", "yrrxx", Renewed, Over, Applied},
		{"half did not", "yyxxx", Renewed, Over, Undecided},
		{"a quorum is free", "fffyy", Renewed, Over, Lost},
		{"the silent could have", "ffyyx", Renewed, Over, Undecided},
		{"the silent may still", "ffyy.", Renewed, Running, Pending},
		{"another has it", "nnnxx", Renewed, Over, OtherOwner},
		{"this owner's next grant has it", "oooxx", Renewed, Over, Lost},
		{"renewed elsewhere", "yysxx", Renewed, Over, Conflict},
		{"given back elsewhere", "yyhxx", Renewed, Over, Conflict},
		{"renewed elsewhere, but the rest may still", "yss..", Renewed, Running, Pending},
		{"the last one may have another version", "ssff.", Renewed, Running, Pending},
		{"the last one may have another owner", "nnff.", Renewed, Running, Pending},
		{"a quorum is free, whatever is due", "fff..", Renewed, Running, Lost},
		{"half of an even number has another version or none", "sffx", Renewed, Over, Lost},
		{"of two nodes one is free", "fx", Renewed, Over, Undecided},
		{"too few, but who answers is not blamed", "xxxx.", Renewed, Running, Pending},
		{"those due are not awaited", "yy...", Renewed, Over, Undecided},
		{"those that failed are not due", "yyxxx", Renewed, Running, Undecided},
		{"nobody", "xxxxx", Renewed, Over, Undecided},
		{"released", "yyyxx", didRelease(5), Over, Applied},
		{"repeated", "aayxx", didRelease(0), Over, Applied},
		{"free, and nobody after", "yffxx", didRelease(5), Over, Applied},
		{"never granted is no release", "yeexx", didRelease(0), Over, Undecided},
		{"free, and somebody after", "yllfx", didRelease(5), Over, Undecided},
		{"free, and somebody after on a quorum", "ylllf", didRelease(5), Over, Lost},
		{"a reinstated hold is no proof", "yytxx", didRelease(0), Over, Undecided},
		{"unless the validity runs", "yytxx", didRelease(5), Over, Applied},
		{"lapsed", "fffff", didRelease(0), Over, Lost},
		{"released to another", "nnnaa", didRelease(0), Over, OtherOwner},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := countOutcome(grantVotes(tt.votes), len(tt.votes)/2+1, tt.stage, "me", tt.done); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.votes, got, tt.want)
			}
		})
	}
}

func TestReleaseOutcome(t *testing.T) {
	tests := []struct {
		name, votes string
		fence       int64
		stage       Stage
		want        Outcome
	}{
		{"a rival tries on the last node", "yynxx", 5, Over, Applied},
		{"it is known at the Q-th answer", "yyn..", 5, Running, Applied},
		{"an old proposal of a rival's", "yylxx", 5, Over, Applied},
		{"the lease may have been shortened", "y!y!n!xx", 5, Over, Undecided},
		{"noted on one of a quorum", "yyn!xx", 5, Over, Undecided},
		{"noted where nobody has it since", "y!y!f!xx", 5, Over, Applied},
		{"a note beside a quorum without", "yyn!nx", 5, Over, Applied},
		{"another UNLOCK on one of a quorum", "yysxx", 5, Over, Conflict},
		{"another hold of the owner", "yyoxx", 5, Over, Undecided},
		{"given back elsewhere", "oooxx", 5, Over, Lost},
		{"no validity is remembered", "yynxx", 0, Over, Undecided},
		{"too few answer", "yyxxx", 5, Over, Undecided},
		{"too few yet", "yy...", 5, Running, Pending},
		{"a quorum names another release", "111..", 5, Running, Conflict},
		{"a quorum may yet name one", "112..", 5, Running, Pending},
		{"the last one decides", "1122.", 5, Running, Pending},
		{"it cannot be asked", "1122x", 5, Running, Conflict},
		{"a quorum cannot name one, whatever is due", "12sx.", 5, Running, Conflict},
		{"other versions are not awaited", "sss..", 5, Running, Conflict},
		{"those due are not awaited at the end", "112..", 5, Over, Conflict},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Release(notedVotes(tt.votes), 3, tt.stage, "me", tt.fence); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.votes, got, tt.want)
			}
		})
	}
}

// notedVotes are grantVotes, of which those before a ! have a note.
func notedVotes(letters string) []vote.Vote {
	var votes []vote.Vote
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
		stage       Stage
		want        Outcome
	}{
		{"reinstated where it was lost", "yrrxx", Over, Applied},
		{"reinstated where it may have lapsed", "yry!xx", Over, Undecided},
		{"a quorum has it still", "y!yy!rx", Over, Applied},
		{"the last one may have it", "y!yr..", Running, Pending},
		{"it lapsed on a quorum", "y!rrff", Over, Lost},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Renew(notedVotes(tt.votes), 3, tt.stage, "me"); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.votes, got, tt.want)
			}
		})
	}
}
