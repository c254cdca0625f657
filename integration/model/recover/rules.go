package main

import "github.com/lockproxy/lockproxy/integration/model/explore"

// A stage is how far a node is that forgot.
type stage uint8

const (
	voting  stage = iota // it is back, or did not forget
	reading              // it may be copied to
	waiting              // rounds may be under way that counted it
)

// Rules are what proxies and nodes do about a node that forgot.
type Rules struct {
	LockBound   bool  // a LOCK is granted only while it is younger than R
	RenewBound  bool  // so is a RENEW told
	EndBound    bool  // and UNLOCK or FORCE answered
	Wait        bool  // a node that forgot waits for R
	ReadAfter   bool  // and is copied to by what is read after that
	ReadVoters  bool  // of nodes that are not out themselves
	ReadQuorum  bool  // a quorum of them
	Generation  bool  // a copy to a node that has forgotten again does nothing
	AllOwners   bool  // the marker has the holds of all owners that were read
	Latest      bool  // and stays for the longest of them
	Abstains    bool  // under it the node has no vote about the name; else it has a record, which votes
	Vouches     bool  // and for whose fence it vouches
	ByHold      bool  // a release takes its own hold out of the marker
	Tombs       bool  // one that was executed before the marker is there keeps its hold out of it
	Floor       bool  // the node's floor is the largest fence that was read
	BackFloor   bool  // nothing is put back at or under it
	BackOut     bool  // nor while the node is out
	Ghosts      bool  // a record at or under the floor counts as none
	KeepLargest bool  // a node whose memory goes back keeps the largest fence that came with it
	Fallback    bool  // without a copy a node is out for the longest lease
	CarryKnown  bool  // what a quorum has renewed is restored only by a RENEW that began when the node was known to be back
	CarryGen    bool  // and if the node has not forgotten since
	CarrySeen   bool  // and neither has the hold been given back there since, nor a later fence of the name been seen
	CarryEnd    bool  // and not for less time than the marker would stay
	CarryOwn    bool  // and takes no other holds out of the marker
	CarryStamp  bool  // a restored record is a ghost after the next loss
	CarryFrom   stage // how far the node has to be
}

func soundRules() Rules {
	return Rules{LockBound: true, RenewBound: true, EndBound: true, Wait: true, ReadAfter: true, ReadVoters: true, ReadQuorum: true,
		Generation: true, AllOwners: true, Latest: true, Abstains: true, ByHold: true, Tombs: true, Floor: true, BackFloor: true,
		BackOut: true, Ghosts: true, KeepLargest: true, Fallback: true,
		CarryKnown: true, CarryGen: true, CarrySeen: true, CarryEnd: true, CarryOwn: true, CarryStamp: true}
}

// Config bounds a search. Times are ticks; a tick is any wait.
type Config struct {
	Rules
	Kinds    string // a letter an owner, see doc.go
	Nodes    int    // 3 or 5
	TTL      int    // of each LOCK, and the longest there is
	Short    int    // of each RENEW
	Drift    int
	R        int  // how long a round may take
	Renewals int  // of the first LOCK
	Ends     bool // an operator may end it
	Losses   int  // how often a node may forget
	Saves    int  // how often what a node has may be saved; a loss goes back to that
	Lossy    bool // votes may be lost
	Ahead    bool // a node has stored a larger fence, of another name
	Carry    bool // what a quorum has renewed is restored on the others
	Long     bool // a node may be back without a copy

	locks  []lock
	orders [][slots]int
}

var without = explore.Without[Rules, Config]

// variants are the sound rules without one.
var variants = []explore.Variant[Rules, Config]{
	without("wait", "a node that forgot waits for less than R",
		func(r *Rules) { r.Wait = false }, "P1", world("ha", 2, renewing)),
	without("lock-bound", "a LOCK is granted as long as its lease runs",
		func(r *Rules) { r.LockBound = false }, "P1", world("aa", 2)),
	without("renew-bound", "a RENEW is told as long as its lease runs",
		func(r *Rules) { r.RenewBound = false }, "P1", world("ha", 3, renewing)),
	without("end-bound", "FORCE is answered whenever a quorum has done it",
		func(r *Rules) { r.EndBound = false }, "Z", world("e", 3, ending, restoring)),
	without("read-after", "a copy reads while the node waits",
		func(r *Rules) { r.ReadAfter = false }, "P1", world("ha", 2, renewing)),
	without("read-quorum", "a copy reads one node less",
		func(r *Rules) { r.ReadQuorum = false }, "P1", world("ha", 2)),
	without("read-voters", "a copy reads nodes that forgot as well",
		func(r *Rules) { r.ReadVoters = false }, "P1", world("ha", 2, losing)),
	without("generation", "a copy goes on to a node that has forgotten again",
		func(r *Rules) { r.Generation = false }, "P1", world("aa", 2, losing)),
	without("latest", "the marker stays for the shortest lease that was read",
		func(r *Rules) { r.Latest = false }, "P1", world("ha", 3, renewing)),
	without("floor", "the node comes back without a floor",
		func(r *Rules) { r.Floor = false }, "P2", world("ha", 2)),
	without("back-floor", "a renewal puts back at or under the floor",
		func(r *Rules) { r.BackFloor = false }, "Z", world("h", 3, ending)),
	without("by-hold", "any release ends the marker",
		func(r *Rules) { r.ByHold = false }, "P1", world("haa", 2)),
	without("tombs", "a release that comes before the marker leaves nothing behind",
		func(r *Rules) { r.Tombs = false }, "M", world("ha", 3)),
	without("all-owners", "the marker has the holds of one owner",
		func(r *Rules) { r.AllOwners = false }, "P1", world("haa", 2)),
	without("abstains", "what was copied is a record, and votes",
		func(r *Rules) { r.Abstains = false }, "Z", world("h", 3, ending)),
	without("vouches", "and for its fence as well",
		func(r *Rules) { r.Abstains, r.Vouches = false, true }, "P2", world("hb", 2)),
	without("fallback", "without a copy a node is out for less than the longest lease",
		func(r *Rules) { r.Fallback = false }, "P1", world("ha", 2, losing, staying)),
	without("ghosts", "a record that came back with an older memory counts",
		func(r *Rules) { r.Ghosts = false }, "Z", world("e", 3, ending, saving)),
	without("largest", "a node whose memory goes back keeps no largest fence",
		func(r *Rules) { r.KeepLargest = false }, "", nil),
	without("back-out", "a node that is out puts records back",
		func(r *Rules) { r.BackOut = false }, "", nil),
	without("back-ghosts", "this too, and they count when it is back",
		func(r *Rules) { r.BackOut, r.Ghosts = false, false }, "Z", world("h", 3, ending)),
	without("carry-known", "a RENEW restores its grant on a node that came back meanwhile",
		func(r *Rules) { r.CarryKnown = false }, "Z", world("e", 4, ending, restoring, slower)),
	without("carry-gen", "or that has forgotten again",
		func(r *Rules) { r.CarryGen = false }, "Z", world("e", 3, ending, restoring, losing)),
	without("carry-seen", "or where the hold was given back since, or a later fence seen",
		func(r *Rules) { r.CarrySeen = false }, "Z", world("e", 3, ending, restoring)),
	without("carry-end", "a restored record may end before the marker",
		func(r *Rules) { r.CarryEnd = false }, "P1", world("ha", 4, renewing, shorter, restoring)),
	without("carry-own", "restoring a grant ends the marker, whoever else has a hold in it",
		func(r *Rules) { r.CarryOwn = false }, "P1", world("ssa", 3, renewing, restoring)),
	without("carry-stamp", "a restored record that came back with an older memory counts",
		func(r *Rules) { r.CarryStamp = false }, "Z", world("e", 3, ending, restoring, losing, saving)),
	without("carry-reading", "a node that is copied to takes it",
		func(r *Rules) { r.CarryFrom = reading }, "", nil),
	without("carry-waiting", "so does one that waits",
		func(r *Rules) { r.CarryFrom = waiting }, "Z", world("e", 3, ending, restoring)),
}

// world is one in which a node forgets once.
func world(kinds string, ttl int, more ...func(c *Config)) *Config {
	c := &Config{Rules: soundRules(), Kinds: kinds, Nodes: 3, TTL: ttl, Short: ttl, R: 1, Losses: 1}
	for _, f := range more {
		f(c)
	}
	return c
}

func renewing(c *Config)  { c.Renewals = 1 }
func ending(c *Config)    { c.Ends, c.Renewals = true, 2 }
func restoring(c *Config) { c.Carry = true }
func shorter(c *Config)   { c.Short = c.TTL - 2 }
func slower(c *Config)    { c.R = 2 }
func losing(c *Config)    { c.Losses = 2 }
func saving(c *Config)    { c.Saves = 1 }
func staying(c *Config)   { c.Long = true }
func lossy(c *Config)     { c.Lossy = true }
func five(c *Config)      { c.Nodes = 5 }
func drifting(c *Config)  { c.Drift = 1 }
