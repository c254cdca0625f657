package main

import "github.com/lockproxy/lockproxy/integration/model/explore"

var without = explore.Without[Rules, Config]

// variants are the sound rules without one.
var variants = []explore.Variant[Rules, Config]{
	without("own-ends", "as it was: LOCK prolongs all holds",
		func(r *Rules) { r.OwnEnds = false }, "E", reenteringLong()),
	without("bare-retries", "retries of a release carry the other holds, with the rests of the first sending",
		func(r *Rules) { r.BareRetries = false }, "E", reentering()),
	without("trust-hold", "UNLOCK goes by memory if any remembered validity of the grant runs",
		func(r *Rules) { r.TrustHold = false }, "P4", renewedElsewhere()),
	without("trust-noted", "the same, but releases that bring the end of the lease forward are noted first",
		func(r *Rules) { r.TrustHold, r.NoteRelease, r.NodeChecks = false, true, true }, "P4", renewedElsewhere()),
	without("trust-all", "UNLOCK ALL goes by memory if the validity of one of the holds runs",
		func(r *Rules) { r.TrustAll = false }, "P4", unlockingAll()),
	without("note-renewal", "a RENEW may shorten without a note",
		func(r *Rules) { r.NoteBefore = false }, "P4", shortened()),
	without("spares-locks", "a RENEW that reads shortens holds of LOCKs under way",
		func(r *Rules) { r.SparesLocks = false }, "P1", renewingMeanwhile()),
	without("capped", "the same, but LOCK tells no more than what its proxy remembers of other holds, if a RENEW was asked for meanwhile",
		func(r *Rules) { r.SparesLocks, r.CapsLocks = false, true }, "P1", renewingMeanwhile()),
	without("names-maybe", "a RENEW that reads names the holds that a quorum of those it heard has",
		func(r *Rules) { r.NamesMaybe = false }, "P1", renewingPartly()),
	without("names-all", "a RENEW goes by memory where nodes have holds that it does not name",
		func(r *Rules) { r.NamesAll = false }, "P1", renewingApart()),
	without("fresh-notes", "FRESH is sent without a note",
		func(r *Rules) { r.FreshNotes = false }, "P4", startingAfresh()),
	without("noted-refuses", "a node with a note of the grant puts it back",
		func(r *Rules) { r.NotedRefuses = false }, "P6", lapsing()),
	without("told-votes", "records that were put back count beside a vote that says noted",
		func(r *Rules) { r.ToldVotes = false }, "P6", lapsing()),
	without("marks", "holds that were given back are not marked",
		func(r *Rules) { r.Marks = false }, "P6", renewingTwo()),
	without("takes-over", "a release leaves holds that its proxy does not know as they are", func(r *Rules) { r.TakesOver = false }, "", nil),
	without("bound-added", "a hold is added with whatever end the message says", func(r *Rules) { r.BoundAdded = false }, "", nil),
	without("raises", "a RENEW leaves holds that it does not name as they are", func(r *Rules) { r.Raises = false }, "", nil),
}

func sound() *Config {
	return &Config{Rules: soundRules(), Rival: 1, Long: 2, Quarantine: 3, Unlocks: 2, AtOnce: true, OneByOne: true}
}

// twoHolds is a world in which A begins with a long and a short hold.
func twoHolds() *Config {
	c := sound()
	c.First, c.Second, c.Both = 2, 1, true
	return c
}

// renewedElsewhere is one in which a proxy remembers a longer validity of one hold than the other that made it.
func renewedElsewhere() *Config {
	c := sound()
	c.First, c.Second, c.Both, c.Elsewhere = 1, 1, true, true
	return c
}

// renewingTwo is twoHolds with a renewal.
func renewingTwo() *Config {
	c := twoHolds()
	c.Renewals, c.Unlocks = 1, 1
	return c
}

// renewingPartly is renewingTwo where both holds are short, and one node lacks the second.
func renewingPartly() *Config {
	c := renewingTwo()
	c.First, c.Partly = 1, true
	return c
}

// renewingApart is renewingPartly where the second hold was made through a proxy that A uses no more.
func renewingApart() *Config {
	c := renewingPartly()
	c.Apart, c.OneProxy = true, true
	return c
}

// unlockingAll is twoHolds with UNLOCK ALL.
func unlockingAll() *Config {
	c := twoHolds()
	c.All = true
	return c
}

// shortened is one in which A shortens the lease of its only hold, and unlocks it.
func shortened() *Config {
	c := sound()
	c.First, c.Long, c.Renewals, c.Unlocks = 2, 1, 1, 1
	return c
}

// lapsing is shortened with a second renewal, a long one, and nobody else wants the name.
func lapsing() *Config {
	c := shortened()
	c.Long, c.Short, c.Rival, c.Renewals, c.Unlocks = 2, 1, 0, 2, 0
	return c
}

// renewingMeanwhile is one in which A renews while it takes a second hold, through a
// proxy that has forgotten the first and so renews by reading.
func renewingMeanwhile() *Config {
	c := sound()
	c.First, c.Second, c.Long, c.Renewals, c.Unlocks = 1, 2, 1, 1, 0
	c.OneByOne, c.OneProxy, c.Forgotten = false, true, true
	return c
}

// startingAfresh is one in which A has a long hold and takes a short one afresh.
func startingAfresh() *Config {
	c := sound()
	c.First, c.Fresh, c.Unlocks = 2, 1, 1
	return c
}

// reentering is one in which A takes a short second hold, and nobody else wants the name.
func reentering() *Config {
	c := sound()
	c.First, c.Second, c.Rival, c.Unlocks, c.CountEnds = 2, 1, 0, 1, true
	return c
}

// reenteringLong is one in which the second hold ends last.
func reenteringLong() *Config {
	c := reentering()
	c.Second = 2
	return c
}
