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
		stage       Stage
		want        Result
	}{
		{"one node says yes", "y", Running, Result{Verdict: Granted, Fence: 7, Stored: 1, Rest: 1 * time.Second, Holds: 1}},
		{"bare majority", "yyynx", Over, Result{Verdict: Granted, Fence: 7, Stored: 3, Rest: 1 * time.Second, Holds: 1}},
		{"majority before all have answered", "y.y.y", Running, Result{Verdict: Granted, Fence: 7, Stored: 3, Rest: 1 * time.Second, Holds: 1}},
		{"the Q-th largest end counts", "yyyyy", Over, Result{Verdict: Granted, Fence: 7, Stored: 5, Rest: 3 * time.Second, Holds: 1}},
		{"half is not a majority", "yynn", Over, Result{Verdict: Split}},
		{"silence is not a no", "yyxxx", Over, Result{Verdict: TooFew}},
		{"silence is not a yes", "nnxxx", Over, Result{Verdict: TooFew}},
		{"the largest fence wins, and too few carry it", "yyhxx", Over, Result{Verdict: Granted, Fence: 9, Stored: 1, Rest: 1 * time.Second, Holds: 1}},
		{"kept when a quorum knows one grant", "kkkyy", Over, Result{Verdict: Granted, Fence: 5, Reentered: true, Seat: seats.None, Stored: 3, Rest: 1 * time.Second, Holds: 2}},
		{"so is a permit, with its seat", "sssyy", Over, Result{Verdict: Granted, Fence: 5, Reentered: true, Seat: 1, Stored: 3, Rest: 1 * time.Second, Holds: 2}},
		{"what has another seat does not count", "SsssS", Over, Result{Verdict: Granted, Fence: 5, Reentered: true, Seat: 1, Stored: 3, Rest: 2 * time.Second, Holds: 2}},
		{"two seats are none", "ssSSy", Over, Result{Verdict: Granted, Fence: 7, Stored: 1, Rest: 1 * time.Second, Holds: 2}},
		{"nor are a seat and none", "kkssS", Over, Result{Verdict: Granted, Fence: 7, Stored: 0, Rest: 1 * time.Second, Holds: 2}},
		{"half with one seat waits", "ssS..", Running, Result{Verdict: Open}},
		{"two earlier grants are none", "kkKKy", Over, Result{Verdict: Granted, Fence: 7, Stored: 1, Rest: 1 * time.Second, Holds: 2}},
		{"a proposed fence is carried by nobody", "kkyxx", Over, Result{Verdict: Granted, Fence: 7, Stored: 1, Rest: 1 * time.Second, Holds: 1}},
		{"a reinstated grant keeps no fence", "tttyy", Over, Result{Verdict: Granted, Fence: 7, Stored: 2, Rest: 1 * time.Second, Holds: 2}},
		{"an undecided re-entry waits", "kky..", Running, Result{Verdict: Open}},
		{"a quorum has the largest fence", "yhhhx", Over, Result{Verdict: Granted, Fence: 9, Stored: 3, Rest: 2 * time.Second, Holds: 1}},
		{"a refusal stores no fence", "yyyNx", Over, Result{Verdict: Granted, Fence: 7, Stored: 3, Rest: 1 * time.Second, Holds: 1}},
		{"held by one owner", "nnnyy", Over, Result{Verdict: Held, Holder: "b", Fence: 8, Rest: 1 * time.Second}},
		{"held is known early", "nnn..", Running, Result{Verdict: Held, Holder: "b", Fence: 8, Rest: 1 * time.Second}},
		{"held under the least fence", "nNnmx", Over, Result{Verdict: Held, Holder: "b", Fence: 7, Rest: 1 * time.Second}},
		{"given back, with a fence", "eeeyx", Over, Result{Verdict: Ended, Fence: 4}},
		{"a fence alone gives nothing back", "eemxx", Over, Result{Verdict: Split}},
		{"two rivals make a split", "nnmmy", Over, Result{Verdict: Split}},
		{"a last vote that can grant is awaited", "yynx.", Running, Result{Verdict: Open}},
		{"one that can refuse", "nnyx.", Running, Result{Verdict: Open}},
		{"one that can say that it was given back", "eeyx.", Running, Result{Verdict: Open}},
		{"one that can say that there are too many holds", "ffyx.", Running, Result{Verdict: Open}},
		{"nobody can win any more", "ynmx.", Running, Result{Verdict: Split}},
		{"too few, but who answers is not blamed", "xxxx.", Running, Result{Verdict: Open}},
		{"nobody has answered", ".....", Running, Result{Verdict: Open}},
		{"nobody has answered in time", ".....", Over, Result{Verdict: TooFew}},
		{"three nodes, one down", "yyx", Over, Result{Verdict: Granted, Fence: 7, Stored: 2, Rest: 1 * time.Second, Holds: 1}},
		{"two nodes need both", "yx", Over, Result{Verdict: TooFew}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Acquire(votesOf(tt.votes), len(tt.votes)/2+1, tt.stage)
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
		stage       Stage
		want        Verdict
		inTheWay    int
		fences      []int64
	}{
		{"a majority grants all", "yy yy xx", Over, Granted, 0, []int64{7, 7}},
		{"each has a fence of its own", "hy yk yk", Over, Granted, 0, []int64{9, 5}},
		{"by its own votes", "yh yy ww", Over, Granted, 0, []int64{7, 9}},
		{"one of them is not decided yet", "yk yy ..", Running, Open, 0, []int64{7, 0}},
		{"a name that is withheld is not granted", "yy wn mw", Over, Split, 0, nil},
		{"nor held", "wn wn yy", Over, Held, 1, nil},
		{"the first that is held is in the way", "wnm wnm yyy", Over, Held, 1, nil},
		{"one is, whatever is due of others", "wn wn ..", Running, Held, 1, nil},
		{"owners of different names are no quorum", "wn nw yy", Over, Split, 0, nil},
		{"nor are different owners of one", "wn wm yy", Over, Split, 0, nil},
		{"some were given back", "ew ew xx", Over, Ended, 0, []int64{4, 0}},
		{"that is known early", "ew ew ..", Running, Ended, 0, []int64{4, 0}},
		{"all were", "ee ee yy", Over, Ended, 0, []int64{4, 4}},
		{"all were, as a last vote shows", "ew ee ..", Running, Open, 0, nil},
		{"some were, as a last vote shows", "we ew ..", Running, Open, 0, nil},
		{"all were or some", "ew ee xx", Over, Split, 0, nil},
		{"all were or some, and none is", "ww ew xx", Over, Split, 0, nil},
		{"too many holds of one", "wf wf yy", Over, Full, 0, nil},
		{"a vote that can decide is awaited", "yy wn ..", Running, Open, 0, nil},
		{"silence is about all names", "yy xx xx", Over, TooFew, 0, nil},
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
			got := AcquireAll(votes, len(words[0]), len(words)/2+1, tt.stage)
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
	if n := testing.AllocsPerRun(100, func() { Acquire(votes, 3, Over) }); n > 0 {
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
		got := Acquire(tt.votes, 2, Over)
		if got.Verdict != tt.want || got.Holder != tt.holder || got.Why != tt.why {
			t.Errorf("%+v: %+v, want %d, %s, %d", tt.votes, got, tt.want, tt.holder, tt.why)
		}
	}
}
