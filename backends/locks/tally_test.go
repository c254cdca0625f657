package locks

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/scripts"
)

// ballotsOf reads one letter per node: y granted fence 7, h granted fence 9, k and K
// granted to an owner who was in under fence 5 or 6, t to one of whom the node was told, n held by b, m held by c, x
// failed, . not yet here.
func ballotsOf(letters string) []vote {
	var votes []vote
	for i, l := range letters {
		rest := time.Duration(i+1) * time.Second
		votes = append(votes, map[rune]vote{
			'y': {kind: yes, fence: 7, rest: rest, holds: 1},
			'h': {kind: yes, fence: 9, rest: rest, holds: 1},
			'k': {kind: yes, fence: 7, reentered: 5, rest: rest, holds: 2},
			'K': {kind: yes, fence: 7, reentered: 6, rest: rest, holds: 2},
			't': {kind: yes, fence: 7, reentered: reinstatedFence, rest: rest, holds: 2},
			'n': {kind: no, owner: "b", rest: rest},
			'm': {kind: no, owner: "c", rest: rest},
			'x': {err: errors.New("timeout")},
			'.': {},
		}[l])
	}
	return votes
}

func TestTallyAcquire(t *testing.T) {
	tests := []struct {
		name, votes string
		final       bool
		want        tally
	}{
		{"one node says yes", "y", false, tally{verdict: granted, fence: 7, stored: 1, rest: 1 * time.Second, holds: 1}},
		{"bare majority", "yyynx", true, tally{verdict: granted, fence: 7, stored: 3, rest: 1 * time.Second, holds: 1}},
		{"majority before all have answered", "y.y.y", false, tally{verdict: granted, fence: 7, stored: 3, rest: 1 * time.Second, holds: 1}},
		{"the Q-th largest end counts", "yyyyy", true, tally{verdict: granted, fence: 7, stored: 5, rest: 3 * time.Second, holds: 1}},
		{"half is not a majority", "yynn", true, tally{verdict: split}},
		{"silence is not a no", "yyxxx", true, tally{verdict: tooFew}},
		{"silence is not a yes", "nnxxx", true, tally{verdict: tooFew}},
		{"the largest fence wins, and too few carry it", "yyhxx", true, tally{verdict: granted, fence: 9, stored: 1, rest: 1 * time.Second, holds: 1}},
		{"kept when a quorum knows one grant", "kkkyy", true, tally{verdict: granted, fence: 5, reentered: true, stored: 3, rest: 1 * time.Second, holds: 2}},
		{"two earlier grants are none", "kkKKy", true, tally{verdict: granted, fence: 7, stored: 1, rest: 1 * time.Second, holds: 2}},
		{"a proposed fence is carried by nobody", "kkyxx", true, tally{verdict: granted, fence: 7, stored: 1, rest: 1 * time.Second, holds: 1}},
		{"hearsay keeps no fence", "tttyy", true, tally{verdict: granted, fence: 7, stored: 2, rest: 1 * time.Second, holds: 2}},
		{"an undecided re-entry waits", "kky..", false, tally{verdict: open}},
		{"held by one owner", "nnnyy", true, tally{verdict: held, holder: "b", rest: 1 * time.Second}},
		{"held is known early", "nnn..", false, tally{verdict: held, holder: "b", rest: 1 * time.Second}},
		{"two rivals make a split", "nnmmy", true, tally{verdict: split}},
		{"a last vote that can decide is awaited", "yynn.", false, tally{verdict: open}},
		{"nobody can win any more", "ynmx.", false, tally{verdict: split}},
		{"too few, but who answers is not blamed", "xxx..", false, tally{verdict: open}},
		{"nobody has answered", ".....", false, tally{verdict: open}},
		{"nobody has answered in time", ".....", true, tally{verdict: tooFew}},
		{"three nodes, one down", "yyx", true, tally{verdict: granted, fence: 7, stored: 2, rest: 1 * time.Second, holds: 1}},
		{"two nodes need both", "yx", true, tally{verdict: tooFew}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tallyAcquire(ballotsOf(tt.votes), len(tt.votes)/2+1, tt.final)
			if got != tt.want {
				t.Errorf("%s: %+v, want %+v", tt.votes, got, tt.want)
			}
		})
	}
}

// grantVotes reads one letter per node: y done, r done where a renewal reinstates it, a released before, f
// free, l free after a later grant, t done on a hold that was reinstated, n another's, o this owner's other grant, s
// another version, x failed, . not yet here.
func grantVotes(letters string) []vote {
	var votes []vote
	for _, l := range letters {
		votes = append(votes, map[rune]vote{
			'y': {kind: yes}, 'r': {kind: yes, reinstated: true}, 'a': {kind: duplicate},
			't': {kind: yes, reinstated: true}, 'f': {kind: no, fence: 5}, 'l': {kind: no, fence: 6}, 'n': {kind: no, owner: "b"},
			'o': {kind: no, owner: "me"}, 's': {kind: versionConflict}, 'x': {err: errors.New("timeout")}, '.': {},
		}[l])
	}
	return votes
}

func TestCountOutcome(t *testing.T) {
	tests := []struct {
		name, votes string
		done        func(*vote) bool
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
func notedVotes(letters string) []vote {
	var votes []vote
	for _, l := range letters {
		if l == '!' {
			votes[len(votes)-1].noted = true
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

func TestPlanRepairs(t *testing.T) {
	const aged = missingTimeout
	ours := nodeList{"ours", "our nodes"}
	tests := []struct {
		name, nodes string // v votes (fence 100+i), w does, with a later set, u unregistered, o has an old record, l another list, f without floor, F for max-ttl, q in quarantine, x silent
		missing     time.Duration
		bootstrap   string
		want        string // one letter per node: n new, g forgot, r restored from 104, c from the clock, s told the set, - nothing
		set         string // that nodes are told to be in
	}{
		{"all new", "uuuuu", 0, BootstrapAuto, "nnnnn", "ours our nodes  "},
		{"all new, strictly", "uuuuu", 0, BootstrapStrict, "-----", "ours our nodes  "},
		{"all new, strictly, for long", "uuuuu", startTimeout, BootstrapStrict, "ggggg", "ours our nodes  "},
		{"one has not answered", "uuuux", 0, BootstrapAuto, "-----", "ours our nodes  "},
		{"one never answers", "uuuux", startTimeout, BootstrapAuto, "gggg-", "ours our nodes  "},
		{"one forgot", "uvvvv", aged, BootstrapAuto, "g----", "ours our nodes  "},
		{"one is perhaps being enlisted", "uvvvv", aged / 2, BootstrapAuto, "-----", "ours our nodes  "},
		{"floor from a quorum", "fvvxv", 0, BootstrapAuto, "r----", "ours our nodes  "},
		{"no quorum kept its memory", "ffqvv", 0, BootstrapAuto, "-----", "ours our nodes  "},
		{"and max-ttl is over", "FFFvv", 0, BootstrapAuto, "ccc--", "ours our nodes  "},
		{"one node", "u", 0, BootstrapAuto, "n", "ours our nodes  "},
		{"the later set counts", "uvvwv", aged, BootstrapAuto, "gss-s", "theirs their nodes next next nodes"},
		{"an old record", "ovvvv", 0, BootstrapAuto, "g----", "ours our nodes  "},
		{"all old, strictly", "ooooo", 0, BootstrapStrict, "ggggg", "ours our nodes  "},
		{"new ones beside an old record", "ouuuu", 0, BootstrapAuto, "g----", "ours our nodes  "},
		{"another list, and a quorum with this", "ufvlvv", aged, BootstrapAuto, "------", ""},
		{"another list, and no quorum with this", "ufFlv", startTimeout, BootstrapAuto, "-----", ""},
		{"it missed the last change", "lwwwq", 0, BootstrapAuto, "s----", "theirs their nodes next next nodes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{MaxTTL: time.Minute, Bootstrap: tt.bootstrap}
			var votes []vote
			var missing []time.Duration
			for i, l := range tt.nodes {
				votes = append(votes, map[rune]vote{
					'v': {kind: yes, fence: int64(100 + i), set: &nodeSet{now: ours}}, 'w': {kind: yes, fence: int64(100 + i), set: &nodeSet{2, nodeList{"theirs", "their nodes"}, nodeList{"next", "next nodes"}}},
					'o': {code: unregistered, olderFormat: true, err: errTimeout}, 'l': {code: otherSet, set: &nodeSet{epoch: 1}, err: errTimeout}, 'u': {code: unregistered, wait: 7, replid: "id", err: errTimeout},
					'f': {code: floorless, wait: 1, err: errTimeout}, 'F': {code: floorless, wait: 60_000, err: errTimeout},
					'q': {code: quarantined, err: errTimeout}, 'x': {err: errTimeout},
				}[l])
				missing = append(missing, tt.missing)
			}
			got := []byte("------"[:len(votes)])
			for _, o := range planRepairs(votes, missing, len(votes)/2+1, o, ours) {
				got[o.node] = map[string]byte{"new": 'n', "forgot": 'g', "104": 'r', "0": 'c', "set": 's'}[o.args[0]]
				if o.script != scripts.Restore && strings.Join(o.args[len(o.args)-4:], " ") != tt.set {
					t.Errorf("%s: %q", tt.nodes, o.args)
				}
			}
			if string(got) != tt.want {
				t.Errorf("%s: %s, want %s", tt.nodes, got, tt.want)
			}
		})
	}
}

func TestRefusalReason(t *testing.T) {
	tests := []struct{ msg, want string }{
		{"MISCONF Redis is configured to save RDB snapshots", "MISCONF"},
		{"OOM command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:1.", "OOM"},
		{"ERR Error running script (call to f_ab): @user_script:3: -READONLY You can't write against a read only replica.", "READONLY"},
		{"NOAUTH HELLO must be called with the client already authenticated", "NOAUTH"},
		{"ERR unknown command 'EVALSHA'", "ERR unknown command 'EVALSHA'"},
	}
	for _, tt := range tests {
		if got := refusalReason(tt.msg).Error(); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.msg, got, tt.want)
		}
	}
}
