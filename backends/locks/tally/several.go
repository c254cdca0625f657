package tally

import "github.com/lockproxy/lockproxy/backends/locks/vote"

// An AllResult is the result of an acquisition of several names.
type AllResult struct {
	Verdict  Verdict
	Names    []Result // of each
	InTheWay int      // Held: which of them
}

// AcquireAll counts the votes of an acquisition of so many names. It is granted if each of them is by its own votes. Since a
// node grants all of them or none, a node that withholds a name because of another one says neither yes nor no to it. It is
// over if one of the names was given back, and a quorum says of each other one whether it was: a node may not have heard of
// that yet.
func AcquireAll(votes []vote.Vote, names, q int, stage Stage) AllResult {
	t := AllResult{Names: make([]Result, names)}
	var of [TooFew + 1]int // how many names have a verdict
	there := 0             // how many were not given back, as a quorum says
	one := make([]vote.Vote, len(votes))
	for i := range t.Names {
		for k := range votes {
			one[k] = *OfName(&votes[k], i)
		}
		t.Names[i] = Acquire(one, q, stage)
		if len(one)-vote.CountKind(one, vote.Silent)-vote.CountKind(one, vote.AlreadyReleased) >= q {
			there++
		}
		if of[t.Names[i].Verdict]++; t.Names[i].Verdict == Held && of[Held] == 1 {
			t.InTheWay = i
		}
	}
	if of[Ended]+there < names {
		of[Ended] = 0
	}
	switch {
	case of[Granted] == names:
		t.Verdict = Granted
	case of[Held] > 0:
		t.Verdict = Held
	default:
		for _, v := range [...]Verdict{Ended, Full, Open, Split, TooFew} {
			if of[v] > 0 {
				t.Verdict = v
				break
			}
		}
	}
	return t
}

// OfName is a node's vote on one of several names. A node that did not vote did not vote on any of them.
func OfName(v *vote.Vote, name int) *vote.Vote {
	if len(v.Names) == 0 {
		return v
	}
	return &v.Names[name]
}
