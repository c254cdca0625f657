package faults

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// permits is how many may have one of a name at a time.
const permits = 2

// maySit has half of those that read ask for a permit.
func (w *worker) maySit(e *Event) {
	if e.Shared && w.chance(2) {
		e.Permits = permits
	}
}

// shares are the options of a LOCK that reads.
func (e *Event) shares() []string {
	switch {
	case e.Permits > 0:
		return []string{"PERMITS", strconv.Itoa(e.Permits)}
	case e.Shared:
		return []string{"SHARED"}
	}
	return nil
}

// permitted accuses more owners than there are permits that believed at one time to have one, and permits whose fence is not
// above that of all that were told before their owner asked.
func (j *judge) permitted() {
	all := map[string][]*belief{}
	for _, readings := range j.beliefs {
		for _, b := range readings {
			if b.permit {
				all[whole(b.name)] = append(all[whole(b.name)], b)
			}
		}
	}
	for name, sitters := range all {
		slices.SortFunc(sitters, func(a, b *belief) int { return cmp.Compare(a.from, b.from) })
		for i, b := range sitters {
			j.atOnce(name, sitters[:i], b)
		}
	}
}

// atOnce judges a permit by those that were told before.
func (j *judge) atOnce(name string, before []*belief, b *belief) {
	ends := map[string]instant{} // of the others that had one when b was told that it has
	for _, other := range before {
		if other.owner == b.owner {
			continue
		}
		if other.until > b.from && b.until > b.from {
			ends[other.owner] = max(ends[other.owner], other.until)
		}
		if b.fence <= other.fence && other.from < j.asked(b) && !b.unsure {
			j.accuse("%s: %s has a permit under fence %d, after %s was told that it has one under %d", name, b.owner, b.fence, other.owner, other.fence)
		}
	}
	switch {
	case len(ends) < permits:
	case j.unsafe:
		j.overlaps++
	default:
		first := b.until
		for _, end := range ends {
			first = min(first, end)
		}
		j.accuse("%s: %s has a permit under fence %d, and %d others have one, of %d, all valid for %v", name, b.owner, b.fence, len(ends), permits,
			time.Duration(first-b.from))
	}
}
