package main

import "github.com/lockproxy/lockproxy/integration/model/explore"

// Rules are what proxies and nodes do about readers beside what they do about any lock.
type Rules struct {
	ReadersBar    bool // a node refuses a writer while it has another owner's read record
	WritersBar    bool // and a reader while it has another owner's write record
	Majority      bool // a reader needs a quorum
	Settle        bool // a reader is told when a quorum has stored its fence
	Own           bool // a reader's number is above its sub-name's counter
	Raise         bool // the name's counter becomes a reader's number that is larger
	SettleRaises  bool // and the reader's fence that is stored after
	First         bool // a node without a counter of the name gives a new number
	AboveFloor    bool // and so does one that may have forgotten the counter of the sub-name
	BesideLock    bool // a node that grants beside the owner's write record lowers no counter for that record any more
	BesideSettle  bool // nor one that stores a reader's fence beside it
	ReleaseRaises bool // a reader's release raises its sub-name's counter, or is remembered
	BackReaders   bool // no writer is put back beside another owner's read record
	BackCounter   bool // nor where the name's counter is larger
	BackWriter    bool // no reader is put back beside another owner's write record
	BackName      bool // nor where the name's counter is larger
	BackOwn       bool // nor where its sub-name's is
	BackRaises    bool // where one is put back, the name's counter is raised to its fence
	InTime        bool // a renewal is told while the validity before runs
	Quarantine    bool // a node that forgot does not vote for the longest ttl
	Floor         bool // and not before it has its floor
}

func soundRules() Rules {
	return Rules{ReadersBar: true, WritersBar: true, Majority: true, Settle: true, Own: true, Raise: true, SettleRaises: true,
		First: true, AboveFloor: true, BesideLock: true, BesideSettle: true, ReleaseRaises: true, BackReaders: true,
		BackCounter: true, BackWriter: true, BackName: true, BackOwn: true, BackRaises: true, InTime: true,
		Quarantine: true, Floor: true}
}

// Config bounds a search. Times are ticks; a tick is any wait.
type Config struct {
	Rules
	Kinds    string // a letter an owner, see doc.go
	TTL      int
	Drift    int
	Renewals int  // of each LOCK
	Losses   int  // how often a node may forget
	Lossy    bool // votes may be lost
	Ahead    bool // a node has not seen the name, and has stored a larger fence of another one
	Intents  bool // writers that readers refuse leave intents

	locks []lock
}

var without = explore.Without[Rules, Config]

// variants are the sound rules without one.
var variants = []explore.Variant[Rules, Config]{
	without("readers-bar", "a node lets a writer in beside another owner's readers",
		func(r *Rules) { r.ReadersBar = false }, "P1", world("rw")),
	without("writers-bar", "a node lets a reader in beside another owner's writer",
		func(r *Rules) { r.WritersBar = false }, "P1", world("rw")),
	without("majority", "a reader needs one node",
		func(r *Rules) { r.Majority = false }, "P1", world("rw")),
	without("settle", "a reader is told before a quorum has stored its fence",
		func(r *Rules) { r.Settle = false }, "F1", world("rww")),
	without("own", "a reader's number is the name's counter alone",
		func(r *Rules) { r.Own = false }, "F3", world("a")),
	without("raise", "a reader's larger number does not become the name's counter",
		func(r *Rules) { r.Raise = false }, "F1", world("aw")),
	without("settle-raises", "nor does its fence, where it is stored afterwards",
		func(r *Rules) { r.SettleRaises = false }, "F1", world("rww")),
	without("first", "a node without a counter of the name gives the largest fence that it has",
		func(r *Rules) { r.First = false }, "", nil),
	without("above-floor", "a node that forgot gives its floor",
		func(r *Rules) { r.AboveFloor = false }, "F3", world("ho", renewing, losing)),
	without("beside-lock", "an undo forgets a writer's fence also if its owner was let in as a reader since",
		func(r *Rules) { r.BesideLock = false }, "F1", world("bw")),
	without("beside-settle", "or if a reader's fence was stored since",
		func(r *Rules) { r.BesideSettle = false }, "F1", world("bw")),
	without("release-raises", "a reader's release leaves nothing behind",
		func(r *Rules) { r.ReleaseRaises = false }, "Z", world("h", renewing)),
	without("back-readers", "a writer is put back beside other readers",
		func(r *Rules) { r.BackReaders = false }, "P1", world("rw", renewing)),
	without("back-counter", "a writer is put back also where a later fence was seen",
		func(r *Rules) { r.BackCounter = false }, "Z", world("hw", renewing)),
	without("back-writer", "a reader is put back beside another writer",
		func(r *Rules) { r.BackWriter = false }, "", nil),
	without("back-name", "a reader is put back also where a later fence of the name was seen",
		func(r *Rules) { r.BackName = false }, "", nil),
	without("back-own", "or of its sub-name",
		func(r *Rules) { r.BackOwn = false }, "Z", world("h", renewing)),
	without("back-raises", "the name's counter stays where a reader is put back",
		func(r *Rules) { r.BackRaises = false }, "", nil),
	without("back-any", "a reader is put back also there and beside another writer",
		func(r *Rules) { r.BackName, r.BackWriter = false, false }, "P1", world("hw", renewing)),
	without("back-late", "a reader is put back also where a later fence of the name was seen, and a renewal is told also if the validity before has ended",
		func(r *Rules) { r.BackName, r.InTime = false, false }, "F2", world("hw", renewing)),
	without("in-time", "a renewal is told also if the validity before has ended",
		func(r *Rules) { r.InTime = false }, "", nil),
	without("quarantine", "a node that forgot votes at once",
		func(r *Rules) { r.Quarantine = false }, "P1", world("rw", losing)),
	without("floor", "and without its floor",
		func(r *Rules) { r.Floor = false }, "F2", world("rw", losing)),
}

// world is a small one with these kinds of owners.
func world(kinds string, more ...func(c *Config)) *Config {
	c := &Config{Rules: soundRules(), Kinds: kinds, TTL: 1}
	for _, f := range more {
		f(c)
	}
	return c
}

func losing(c *Config)    { c.Losses = 1 }
func renewing(c *Config)  { c.Renewals, c.TTL = 1, 2 }
func behind(c *Config)    { c.Ahead = true }
func lossy(c *Config)     { c.Lossy = true }
func intending(c *Config) { c.Intents = true }
func drifting(c *Config)  { c.TTL, c.Drift = 2, 1 }
