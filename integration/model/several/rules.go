package main

import "github.com/lockproxy/lockproxy/integration/model/explore"

// Rules are what proxies and nodes do about several names; those of decision 0031 about one name are always there.
type Rules struct {
	All         bool // a node grants all names of a LOCK or none
	Looked      bool // and writes nothing before it has looked at all of them
	WithheldYes bool // a vote that is withheld, since another name is in the way, is no yes
	WithheldNo  bool // nor a no
	OneOwner    bool // held is told where a quorum names one owner of one name, not where it names any of them
	EachQuorum  bool // each name needs a quorum of its own, not only the first
	EachSettled bool // each name's fence is stored by a quorum before it is told, not only the first name's
	OwnFences   bool // each name is told the fence that its own votes say, not the largest of all
	OwnIDs      bool // each name has a hold id of its own, so that one that is given back is remembered for that name alone
	Smallest    bool // the validity of a LOCK is that of the name with the smallest
	EachUndone  bool // an undo is of all names, not only of the first
	OwnUndone   bool // and of each name by a hold of that name only: what else its owner has of it stays
	Quarantine  bool // a node that forgot does not vote for the longest ttl
	Floor       bool // and not before it has its floor
}

func soundRules() Rules {
	return Rules{All: true, Looked: true, WithheldYes: true, WithheldNo: true, OneOwner: true, EachQuorum: true, EachSettled: true, OwnFences: true,
		OwnIDs: true, Smallest: true, EachUndone: true, OwnUndone: true, Quarantine: true, Floor: true}
}

// Config bounds a search. Times are ticks; a tick is any wait.
type Config struct {
	Rules
	Kinds    string // a letter an owner, see doc.go
	TTL      int
	Drift    int
	Renewals int  // of each name of each LOCK
	Losses   int  // how often a node may forget
	Dups     int  // how often the message of a LOCK may be executed again
	Lossy    bool // votes may be lost
	Ahead    bool // a node has not seen the names, and has stored a larger fence of another one

	locks []lock
}

var without = explore.Without[Rules, Config]

// variants are the sound rules without one.
var variants = []explore.Variant[Rules, Config]{
	without("all", "a node grants what it can, and the names are counted one by one",
		func(r *Rules) { r.All = false }, "M", world("Aab")),
	without("looked", "a node writes a name before it has looked at the others",
		func(r *Rules) { r.Looked = false }, "N", world("Ab")),
	without("withheld-yes", "a vote that is withheld counts as a yes",
		func(r *Rules) { r.WithheldYes = false }, "G", world("Ab")),
	without("withheld-no", "a vote that is withheld counts as a no",
		func(r *Rules) { r.WithheldNo = false }, "T", world("Ab")),
	without("one-owner", "nodes that name different owners make up a quorum that says held",
		func(r *Rules) { r.OneOwner = false }, "T", world("Aab")),
	without("each-quorum", "only the first name needs a quorum",
		func(r *Rules) { r.EachQuorum = false }, "G", world("Ab")),
	without("each-settled", "only the first name's fence is stored by a quorum",
		func(r *Rules) { r.EachSettled = false }, "G", world("A", behind)),
	without("own-fences", "all names are told the largest fence of any of them",
		func(r *Rules) { r.OwnFences = false }, "G", world("Ab")),
	without("own-ids", "all names have one hold id",
		func(r *Rules) { r.OwnIDs = false }, "L", world("H", renewing)),
	without("smallest", "the validity is that of the name with the largest",
		func(r *Rules) { r.Smallest = false }, "G", world("Sb", longer)),
	without("each-undone", "an undo is of the first name only",
		func(r *Rules) { r.EachUndone = false }, "N", world("Ab")),
	without("own-undone", "an undo frees a name, whatever else its owner has of it",
		func(r *Rules) { r.OwnUndone = false }, "X", world("eb")),
	without("quarantine", "a node that forgot votes at once",
		func(r *Rules) { r.Quarantine = false }, "X", world("Hb", losing)),
	without("floor", "and without its floor",
		func(r *Rules) { r.Floor = false }, "F", world("Ab", losing)),
}

// world is a small one with these kinds of owners.
func world(kinds string, more ...func(c *Config)) *Config {
	c := &Config{Rules: soundRules(), Kinds: kinds, TTL: 1}
	for _, f := range more {
		f(c)
	}
	return c
}

func losing(c *Config)   { c.Losses = 1 }
func renewing(c *Config) { c.Renewals, c.TTL = 1, 2 }
func longer(c *Config)   { c.TTL = 2 }
func behind(c *Config)   { c.Ahead = true }
func lossy(c *Config)    { c.Lossy = true }
func twice(c *Config)    { c.Dups = 1 }
func drifting(c *Config) { c.TTL, c.Drift = 2, 1 }
