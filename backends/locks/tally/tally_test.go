package tally

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// votesOf reads one letter per node: y granted fence 7, h granted fence 9, k and K
// granted to an owner who was in under fence 5 or 6, s and S to one who was in under fence 5 with the seat 1 or 2, t to one whose grant a renewal has reinstated there, n and N held by b under fence 8 or 7, m held by c, w
// withheld, e given back before, f refused since the owner has too many holds, x failed, . not yet here.
func votesOf(letters string) []vote.Vote {
	var votes []vote.Vote
	for i, l := range letters {
		rest := time.Duration(i+1) * time.Second
		votes = append(votes, map[rune]vote.Vote{
			'y': {Kind: vote.Yes, Fence: 7, Rest: rest, Holds: 1},
			'h': {Kind: vote.Yes, Fence: 9, Rest: rest, Holds: 1},
			'k': {Kind: vote.Yes, Fence: 7, Reentered: 5, Rest: rest, Holds: 2},
			'K': {Kind: vote.Yes, Fence: 7, Reentered: 6, Rest: rest, Holds: 2},
			's': {Kind: vote.Yes, Fence: 7, Reentered: 5, Rest: rest, Holds: 2, Grant: "g/1"},
			'S': {Kind: vote.Yes, Fence: 7, Reentered: 5, Rest: rest, Holds: 2, Grant: "h/2"},
			't': {Kind: vote.Yes, Fence: 7, Reentered: -1, Rest: rest, Holds: 2},
			'n': {Kind: vote.No, Owner: "b", Fence: 8, Rest: rest},
			'N': {Kind: vote.No, Owner: "b", Fence: 7, Rest: rest},
			'm': {Kind: vote.No, Owner: "c", Fence: 4, Rest: rest},
			'w': {Kind: vote.Withheld},
			'e': {Kind: vote.AlreadyReleased, Fence: 4},
			'f': {Kind: vote.TooMany},
			'x': {Err: errors.New("timeout")},
			'.': {},
		}[l])
	}
	return votes
}

func TestAcquire(t *testing.T) {
	tests := []struct {
		name, votes string
		final       bool
		want        Result
	}{
		{"one node says yes", "y", false, Result{Verdict: Granted, Fence: 7, Stored: 1, Rest: 1 * time.Second, Holds: 1}},
		{"bare majority", "yyynx", true, Result{Verdict: Granted, Fence: 7, Stored: 3, Rest: 1 * time.Second, Holds: 1}},
		{"majority before all have answered", "y.y.y", false, Result{Verdict: Granted, Fence: 7, Stored: 3, Rest: 1 * time.Second, Holds: 1}},
		{"the Q-th largest end counts", "yyyyy", true, Result{Verdict: Granted, Fence: 7, Stored: 5, Rest: 3 * time.Second, Holds: 1}},
		{"half is not a majority", "yynn", true, Result{Verdict: Split}},
		{"silence is not a no", "yyxxx", true, Result{Verdict: TooFew}},
		{"silence is not a yes", "nnxxx", true, Result{Verdict: TooFew}},
		{"the largest fence wins, and too few carry it", "yyhxx", true, Result{Verdict: Granted, Fence: 9, Stored: 1, Rest: 1 * time.Second, Holds: 1}},
		{"kept when a quorum knows one grant", "kkkyy", true, Result{Verdict: Granted, Fence: 5, Reentered: true, Seat: seats.None, Stored: 3, Rest: 1 * time.Second, Holds: 2}},
		{"so is a permit, with its seat", "sssyy", true, Result{Verdict: Granted, Fence: 5, Reentered: true, Seat: 1, Stored: 3, Rest: 1 * time.Second, Holds: 2}},
		{"what has another seat does not count", "SsssS", true, Result{Verdict: Granted, Fence: 5, Reentered: true, Seat: 1, Stored: 3, Rest: 2 * time.Second, Holds: 2}},
		{"two seats are none", "ssSSy", true, Result{Verdict: Granted, Fence: 7, Stored: 1, Rest: 1 * time.Second, Holds: 2}},
		{"nor are a seat and none", "kkssS", true, Result{Verdict: Granted, Fence: 7, Stored: 0, Rest: 1 * time.Second, Holds: 2}},
		{"half with one seat waits", "ssS..", false, Result{Verdict: Open}},
		{"two earlier grants are none", "kkKKy", true, Result{Verdict: Granted, Fence: 7, Stored: 1, Rest: 1 * time.Second, Holds: 2}},
		{"a proposed fence is carried by nobody", "kkyxx", true, Result{Verdict: Granted, Fence: 7, Stored: 1, Rest: 1 * time.Second, Holds: 1}},
		{"a reinstated grant keeps no fence", "tttyy", true, Result{Verdict: Granted, Fence: 7, Stored: 2, Rest: 1 * time.Second, Holds: 2}},
		{"an undecided re-entry waits", "kky..", false, Result{Verdict: Open}},
		{"a quorum has the largest fence", "yhhhx", true, Result{Verdict: Granted, Fence: 9, Stored: 3, Rest: 2 * time.Second, Holds: 1}},
		{"a refusal stores no fence", "yyyNx", true, Result{Verdict: Granted, Fence: 7, Stored: 3, Rest: 1 * time.Second, Holds: 1}},
		{"held by one owner", "nnnyy", true, Result{Verdict: Held, Holder: "b", Fence: 8, Rest: 1 * time.Second}},
		{"held is known early", "nnn..", false, Result{Verdict: Held, Holder: "b", Fence: 8, Rest: 1 * time.Second}},
		{"held under the least fence", "nNnmx", true, Result{Verdict: Held, Holder: "b", Fence: 7, Rest: 1 * time.Second}},
		{"given back, with a fence", "eeeyx", true, Result{Verdict: Ended, Fence: 4}},
		{"a fence alone gives nothing back", "eemxx", true, Result{Verdict: Split}},
		{"two rivals make a split", "nnmmy", true, Result{Verdict: Split}},
		{"a last vote that can grant is awaited", "yynx.", false, Result{Verdict: Open}},
		{"one that can refuse", "nnyx.", false, Result{Verdict: Open}},
		{"one that can say that it was given back", "eeyx.", false, Result{Verdict: Open}},
		{"one that can say that there are too many holds", "ffyx.", false, Result{Verdict: Open}},
		{"nobody can win any more", "ynmx.", false, Result{Verdict: Split}},
		{"too few, but who answers is not blamed", "xxxx.", false, Result{Verdict: Open}},
		{"nobody has answered", ".....", false, Result{Verdict: Open}},
		{"nobody has answered in time", ".....", true, Result{Verdict: TooFew}},
		{"three nodes, one down", "yyx", true, Result{Verdict: Granted, Fence: 7, Stored: 2, Rest: 1 * time.Second, Holds: 1}},
		{"two nodes need both", "yx", true, Result{Verdict: TooFew}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Acquire(votesOf(tt.votes), len(tt.votes)/2+1, tt.final)
			if got != tt.want {
				t.Errorf("%s: %+v, want %+v", tt.votes, got, tt.want)
			}
		})
	}
}

// TestAcquireAll: each name is decided by its own votes. A word is what one node says of each name.
func TestAcquireAll(t *testing.T) {
	tests := []struct {
		name, votes string
		final       bool
		want        Verdict
		inTheWay    int
		fences      []int64
	}{
		{"a majority grants all", "yy yy xx", true, Granted, 0, []int64{7, 7}},
		{"each has a fence of its own", "hy yk yk", true, Granted, 0, []int64{9, 5}},
		{"by its own votes", "yh yy ww", true, Granted, 0, []int64{7, 9}},
		{"one of them is not decided yet", "yk yy ..", false, Open, 0, []int64{7, 0}},
		{"a name that is withheld is not granted", "yy wn mw", true, Split, 0, nil},
		{"nor held", "wn wn yy", true, Held, 1, nil},
		{"the first that is held is in the way", "wnm wnm yyy", true, Held, 1, nil},
		{"one is, whatever is due of others", "wn wn ..", false, Held, 1, nil},
		{"owners of different names are no quorum", "wn nw yy", true, Split, 0, nil},
		{"nor are different owners of one", "wn wm yy", true, Split, 0, nil},
		{"some were given back", "ew ew xx", true, Ended, 0, []int64{4, 0}},
		{"that is known early", "ew ew ..", false, Ended, 0, []int64{4, 0}},
		{"all were", "ee ee yy", true, Ended, 0, []int64{4, 4}},
		{"all were, as a last vote shows", "ew ee ..", false, Open, 0, nil},
		{"some were, as a last vote shows", "we ew ..", false, Open, 0, nil},
		{"all were or some", "ew ee xx", true, Split, 0, nil},
		{"all were or some, and none is", "ww ew xx", true, Split, 0, nil},
		{"too many holds of one", "wf wf yy", true, Full, 0, nil},
		{"a vote that can decide is awaited", "yy wn ..", false, Open, 0, nil},
		{"silence is about all names", "yy xx xx", true, TooFew, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var votes []vote.Vote
			words := strings.Fields(tt.votes)
			for _, word := range words {
				v := vote.Vote{Kind: vote.Yes, Names: votesOf(word)}
				if v.Names[0].Kind == vote.Silent {
					v = v.Names[0]
				}
				votes = append(votes, v)
			}
			got := AcquireAll(votes, len(words[0]), len(words)/2+1, tt.final)
			if got.Verdict != tt.want || got.InTheWay != tt.inTheWay {
				t.Errorf("%s: %+v, want %d because of %d", tt.votes, got, tt.want, tt.inTheWay)
			}
			for i, fence := range tt.fences {
				if got.Names[i].Fence != fence {
					t.Errorf("%s: fence %d of name %d, want %d", tt.votes, got.Names[i].Fence, i, fence)
				}
			}
		})
	}
}

// TestAcquire_AllocatesNothing: votes are counted whenever one comes.
func TestAcquire_AllocatesNothing(t *testing.T) {
	votes := votesOf("yyknx")
	for i := range votes {
		votes[i].Grant = "DFL5MF323L76XAPT2EET4QY466"
	}
	if n := testing.AllocsPerRun(100, func() { Acquire(votes, 3, true) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAcquire_Obstacles: readers are in the way, whichever of them each node names. That the owner reads as well counts if one
// node says so.
func TestAcquire_Obstacles(t *testing.T) {
	t.Parallel()
	no := func(owner string, why locks.Obstacle, rest time.Duration) vote.Vote {
		return vote.Vote{Kind: vote.No, Owner: owner, Why: why, Rest: rest}
	}
	alice, bob := no("alice", locks.Readers, 2*time.Second), no("bob", locks.Readers, 3*time.Second)
	permit := no("alice", locks.Permits, time.Second)
	upgrade, intent, writer := no("alice", locks.Upgrade, time.Second), no("", locks.Intent, time.Second), no("carol", locks.Held, time.Second)
	for _, tt := range []struct {
		votes  []vote.Vote
		want   Verdict
		holder string
		why    locks.Obstacle
	}{
		{[]vote.Vote{alice, bob, {}}, Held, "bob", locks.Readers},
		{[]vote.Vote{upgrade, bob, {}}, Held, "bob", locks.Upgrade},
		{[]vote.Vote{bob, upgrade, writer}, Held, "bob", locks.Upgrade},
		{[]vote.Vote{intent, intent, alice}, Held, "", locks.Intent},
		{[]vote.Vote{permit, permit, {}}, Held, "alice", locks.Permits},
		{[]vote.Vote{permit, no("bob", locks.Permits, time.Second), {}}, Split, "", locks.Held},
		{[]vote.Vote{writer, writer, upgrade}, Held, "carol", locks.Held},
		{[]vote.Vote{writer, intent, alice}, Split, "", locks.Held},
	} {
		got := Acquire(tt.votes, 2, true)
		if got.Verdict != tt.want || got.Holder != tt.holder || got.Why != tt.why {
			t.Errorf("%+v: %+v, want %d, %s, %d", tt.votes, got, tt.want, tt.holder, tt.why)
		}
	}
}
