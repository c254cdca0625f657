package faults

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A move is a step of the lock's abstract life: a grant, or the end of what the holder
// may count on.
type move struct {
	owner string
	fence int64
	ends  bool
}

// A tenure is who has the lock, and the largest fence there was. It has no owner when
// nobody has it.
type tenure struct {
	owner string
	fence int64
}

// lockModel is one lock: a grant takes it from nobody, under a larger fence than ever.
var lockModel = porcupine.Model{
	Init: func() any { return tenure{} },
	Step: func(state, input, _ any) (bool, any) {
		t, m := state.(tenure), input.(move)
		if m.ends {
			return t == tenure{m.owner, m.fence}, tenure{fence: t.fence}
		}
		return t.owner == "" && m.fence > t.fence, tenure{m.owner, m.fence}
	},
	DescribeOperation: func(input, _ any) string {
		if m := input.(move); m.ends {
			return fmt.Sprintf("%s loses %d", m.owner, m.fence)
		}
		m := input.(move)
		return fmt.Sprintf("%s gets %d", m.owner, m.fence)
	},
}

// linear accuses where no order of grants and ends explains what the clients of a name
// were told. A grant happens between its LOCK and the reply; its end at any time from the
// end of the belief on. Beliefs that were cut short by FORCE or lasted no time at all only
// have their place in the order of fences. It returns what it could not tell within the
// limit, which is for a name.
func (j *judge) linear(limit time.Duration) (undecided []string) {
	for name, all := range j.beliefs {
		grants := firstGrants(all)
		var ops []porcupine.Operation
		for i, b := range grants {
			ends := int64(math.MaxInt64)
			if i+1 < len(grants) { // it was over at the latest when the next was told
				ends = int64(max(grants[i+1].from, b.first, b.until) + 1)
			}
			ops = append(ops,
				porcupine.Operation{ClientId: i, Input: move{b.owner, b.fence, false}, Call: int64(b.first), Return: int64(b.from)},
				porcupine.Operation{ClientId: i, Input: move{b.owner, b.fence, true}, Call: int64(max(b.first, b.until)), Return: ends})
		}
		switch porcupine.CheckOperationsTimeout(lockModel, ops, limit) {
		case porcupine.Illegal:
			j.accuse("%s: no order of the %d grants and their ends explains what clients were told", name, len(grants))
		case porcupine.Unknown:
			undecided = append(undecided, fmt.Sprintf("porcupine could not tell of %d grants of %s", len(grants), name))
		}
	}
	return undecided
}

// firstGrants are beliefs in the order of fences, those of one fence as one.
func firstGrants(all []*belief) []belief {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b *belief) int { return cmp.Or(cmp.Compare(a.fence, b.fence), cmp.Compare(a.from, b.from)) })
	var grants []belief
	for _, b := range sorted {
		if b.fence == 0 { // it is not known
			continue
		}
		if n := len(grants); n > 0 && grants[n-1].fence == b.fence && grants[n-1].owner == b.owner {
			grants[n-1].until = max(grants[n-1].until, b.until)
			continue
		}
		grants = append(grants, *b)
	}
	return grants
}
