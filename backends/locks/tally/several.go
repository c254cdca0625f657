package tally

import (
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// An AllResult is the result of an acquisition of several names.
type AllResult struct {
	Verdict  Verdict
	Names    []Result // of each
	InTheWay int      // Held: which of them
}

// AcquireAll counts the votes of an acquisition of several names, which are those of all nodes on each name. It is granted if each of
// them is by its own votes. Since a node grants all of them or none, a node that withholds a name because of another one
// says neither yes nor no to it.
func AcquireAll(byName [][]voters.Vote, q int, final bool) AllResult {
	t := AllResult{Names: make([]Result, len(byName))}
	var of [TooFew + 1]int // how many names have a verdict
	for i, votes := range byName {
		t.Names[i] = Acquire(votes, q, final)
		if of[t.Names[i].Verdict]++; t.Names[i].Verdict == Held && of[Held] == 1 {
			t.InTheWay = i
		}
	}
	switch {
	case of[Granted] == len(byName):
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

// ByName are the votes on each of several names. A node that did not vote did not vote on any of them.
func ByName(votes []voters.Vote, names int) [][]voters.Vote {
	all := make([][]voters.Vote, names)
	for k := range all {
		all[k] = slices.Clone(votes)
		for i := range votes {
			if len(votes[i].Names) > 0 {
				all[k][i] = votes[i].Names[k]
			}
		}
	}
	return all
}
