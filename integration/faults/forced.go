package faults

// afterForce accuses renewals that were sent when FORCE had taken the lock away. Only of who had it for itself, since FORCE takes it from readers only
// if nobody has; and not where another LOCK of the owner was
// under way, or not granted, which may have come after FORCE.
func (j *judge) afterForce() {
	forces := map[string]history{}
	taken := map[*Event]map[ownerOf]int64{} // fences, by FORCE
	for _, e := range j.events {
		if e.Op == opForce && e.answered() {
			forces[e.Name] = append(forces[e.Name], e)
			taken[e] = map[ownerOf]int64{}
		}
	}
	for _, e := range j.events { // by Start
		if e.Op != opLock || e.Reply == held {
			continue
		}
		for _, f := range forces[e.Name] {
			k := ownerOf{e.Name, e.Owner}
			switch {
			case e.Start > f.End:
			case e.Reply == granted && e.End < f.Start:
				taken[f][k] = max(taken[f][k], e.Granted)
			default:
				taken[f][k] = never
			}
		}
	}
	for _, e := range j.events {
		if e.Op != opRenew || e.Reply != carried || e.Blind || e.Fence == 0 {
			continue
		}
		for _, f := range forces[e.Name] {
			if e.Start > f.End && e.Fence == taken[f][ownerOf{e.Name, e.Owner}] {
				j.accuse("%s: fence %d of %s was renewed after FORCE took it away", e.Name, e.Fence, e.Owner)
			}
		}
	}
}

// never is no fence, and above all.
const never = 1 << 62
