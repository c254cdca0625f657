package main

import "github.com/lockproxy/lockproxy/integration/model/explore"

var without = explore.Without[Rules, Config]

// variants are the sound rules without one.
var variants = []explore.Variant[Rules, Config]{
	without("notes", "a replacement is sent without a note",
		func(r *Rules) { r.Notes = false }, "P4", unlockingBeside()),
	without("only-there", "a node where the name is free grants a replacement",
		func(r *Rules) { r.OnlyThere = false }, "P5", twice()),
	without("exact", "a node drops whatever grant is there",
		func(r *Rules) { r.Exact = false }, "P1", beside()),
	without("told", "records that were put back count beside a vote that says noted",
		func(r *Rules) { r.Told = false }, "P6", renewing()),
	without("quarantine", "nodes that forgot vote",
		func(r *Rules) { r.VotesOnly = false }, "P1", forgetting()),
	without("once", "an UNLOCK that must not have been done before is like any other",
		func(r *Rules) { r.Once = false }, "", nil),
	without("forgets", "a node neither notes nor marks what it drops",
		func(r *Rules) { r.Marks, r.NotesDrop = false, false }, "P5", unlockingOnce()),
	without("in-time", "an UNLOCK that goes by memory may be answered when that validity has ended",
		func(r *Rules) { r.InTime = false }, "P4", unlockingForgotten()),
	without("notes-drop", "a node does not note what it drops",
		func(r *Rules) { r.NotesDrop = false }, "", nil),
	without("marks", "the hold that is dropped is not marked",
		func(r *Rules) { r.Marks = false }, "", nil),
	without("bounds", "a RENEW is told when the validity has ended",
		func(r *Rules) { r.Bounds = false }, "", nil),
	without("guard", "a renewal puts the grant back also where a later fence was seen",
		func(r *Rules) { r.Guard = false }, "", nil),
	without("refuses", "a node with a note puts the grant back",
		func(r *Rules) { r.Refuses = false }, "", nil),
}

func sound() *Config {
	return &Config{Rules: soundRules(), First: 2, Others: 1, Quarantine: 2, AtOnce: true}
}

// beside is a world in which somebody else wants the lock too.
func beside() *Config {
	c := sound()
	c.Rival = true
	return c
}

// renewing is one in which the grant is renewed meanwhile.
func renewing() *Config {
	c := sound()
	c.Renewals = 1
	return c
}

// unlocking is one in which the owner unlocks by what its proxy remembers.
func unlocking() *Config {
	c := sound()
	c.Unlocks = true
	return c
}

// unlockingBeside is unlocking where somebody else wants the lock too.
func unlockingBeside() *Config {
	c := unlocking()
	c.Rival = true
	return c
}

// unlockingForgotten is unlocking where a node forgets.
func unlockingForgotten() *Config {
	c := unlocking()
	c.Losses = 1
	return c
}

// unlockingOnce is one in which the UNLOCK must not have been done before.
func unlockingOnce() *Config {
	c := sound()
	c.Unlocks, c.UnlockOnce = true, true
	return c
}

// twice is one in which two replace the same grant.
func twice() *Config {
	c := sound()
	c.Second = 1
	return c
}

// chain is one in which the second replaces the first, and messages are executed repeatedly.
func chain() *Config {
	c := sound()
	c.Second, c.Dup = 2, true
	return c
}

// forgetting is one in which a node forgets.
func forgetting() *Config {
	c := sound()
	c.Losses, c.Rival = 1, true
	return c
}
