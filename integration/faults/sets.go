package faults

import (
	"strings"
)

func isFenced(name string) bool { return strings.HasPrefix(name, fencedNames) }

// An rmw is one read, and the write of what was read and one element.
type rmw struct {
	read, write *Event
	clean       bool // the owner had the lock from before the one till after the other
}

// A setReport is what became of the elements of all sets.
type setReport struct {
	added int // writes that were acknowledged
	lost  int // of them, behind no fence, that a paused or late holder explains
}

// sets compares what the sets hold at the end, by key, with what clients were told. It
// accuses of everything behind a fence that is missing, or there against its refusal, and
// of what was lost though all who wrote at that time had the lock.
func (j *judge) sets(final map[string][]string) setReport {
	var r setReport
	all := j.updates()
	for key, updates := range all {
		there := map[string]int{}
		for _, v := range final[key] {
			there[v]++
		}
		for _, u := range updates {
			w := u.write
			n := there[w.Value]
			switch {
			case n > 1:
				j.accuse("%s: %s is there %d times", key, w.Value, n)
			case w.Reply == stale && isFenced(w.Name):
				if n > 0 {
					j.accuse("%s: %s is there, though fence %d was refused", key, w.Value, w.Fence)
				}
			case w.Reply != carried:
			case n == 1:
				r.added++
			case isFenced(w.Name):
				j.accuse("%s: %s, written under fence %d, is lost", key, w.Value, w.Fence)
			case !u.explained(updates) && !j.unsafe:
				j.accuse("%s: %s of %s is lost, and everybody who wrote had the lock", key, w.Value, w.Owner)
			default:
				r.added++
				r.lost++
			}
		}
	}
	return r
}

// updates pairs reads with writes, by key.
func (j *judge) updates() map[string][]*rmw {
	reads := map[string]*Event{}
	all := map[string][]*rmw{}
	for _, e := range j.events {
		switch e.Op {
		case opRead:
			reads[e.Value] = e
		case opWrite:
			r := reads[e.Value]
			if r == nil {
				continue
			}
			b := j.within(e)
			all[e.Key] = append(all[e.Key], &rmw{r, e, b != nil && b.from <= r.Start})
		}
	}
	return all
}

// explained reports whether u, or somebody who read before it was written and wrote
// after, wrote without having the lock.
func (u *rmw) explained(all []*rmw) bool {
	if !u.clean {
		return true
	}
	for _, o := range all {
		if !o.clean && o.read.Start <= u.write.End && (!o.write.answered() || o.write.End >= u.write.Start) {
			return true
		}
	}
	return false
}
