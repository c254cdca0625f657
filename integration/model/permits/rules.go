package main

import "github.com/lockproxy/lockproxy/integration/model/explore"

// Rules are what proxies and nodes do about permits and their seats; those about readers are always there, see the package readers.
type Rules struct {
	SeatBar     bool // a node refuses a permit whose seat it has given to another owner, who has it still
	WritersBar  bool // and one beside another owner's write record
	ReadersBar  bool // and a writer beside another owner's permit
	Majority    bool // a permit needs a quorum
	Settle      bool // it is told when a quorum has stored its fence
	SameSeat    bool // a node takes over the fence of a LOCK only if its record has the seat that this LOCK proposed
	EntrySeat   bool // a LOCK is told the grant of its owner only if a quorum has that in one seat
	Seated      bool // and one that asks for a permit only if that grant has a seat
	Above       bool // a permit's fence is above all that a node has seen
	Raise       bool // the name's counter becomes a permit's number
	SettleRaise bool // and its fence that is stored after
	BesideLock  bool // a node that grants beside the owner's write record lowers no counter for that record any more
	BesideSet   bool // nor one that stores a permit's fence beside it
	Release     bool // a release raises its sub-name's counter, or is remembered
	BackSeat    bool // no permit is put back where its seat is another owner's
	BackIndex   bool // where one is put back, the seat is its owner's
	BackWriter  bool // none is put back beside another owner's write record
	BackReaders bool // no writer beside another owner's permit
	BackName    bool // and no permit where the name's counter is larger
	BackOwn     bool // nor where its sub-name's is
	RenewGrant  bool // a renewal prolongs only the grant that it names
	InTime      bool // it is told while the validity before runs
	DropLapsed  bool // a record that has lapsed is removed where its seat is given to another
	IndexOwn    bool // who gives a seat back leaves the index if that names another owner
	LookAgain   bool // a node looks for what is in the way also where it has a record of the owner
	Quarantine  bool // a node that forgot does not vote for the longest ttl
	Floor       bool // and not before it has its floor
}

func soundRules() Rules {
	return Rules{SeatBar: true, WritersBar: true, ReadersBar: true, Majority: true, Settle: true, SameSeat: true,
		EntrySeat: true, Seated: true, Above: true, Raise: true, SettleRaise: true, BesideLock: true, BesideSet: true,
		Release: true, BackSeat: true, BackIndex: true, BackWriter: true, BackReaders: true, BackName: true, BackOwn: true, RenewGrant: true,
		InTime: true, DropLapsed: true, IndexOwn: true, LookAgain: true, Quarantine: true, Floor: true}
}

// Config bounds a search. Times are ticks; a tick is any wait.
type Config struct {
	Rules
	Kinds    string // a letter an owner, see doc.go
	TTL      int
	Drift    int
	Renewals int  // of each LOCK
	Losses   int  // how often a node may forget
	Backs    int  // how often a node's clock may be stepped back
	Lossy    bool // votes may be lost
	Ahead    bool // a node has not seen the name, and has stored a larger fence of another one

	locks []lock
}

var without = explore.Without[Rules, Config]

// variants are the sound rules without one.
var variants = []explore.Variant[Rules, Config]{
	without("seat-bar", "a node gives a seat that is another owner's",
		func(r *Rules) { r.SeatBar = false }, "S", world("pp")),
	without("writers-bar", "a node grants a permit beside another owner's writer",
		func(r *Rules) { r.WritersBar = false }, "P", world("pw")),
	without("readers-bar", "a node lets a writer in beside another owner's permit",
		func(r *Rules) { r.ReadersBar = false }, "P", world("pw")),
	without("majority", "a permit needs one node",
		func(r *Rules) { r.Majority = false }, "S", world("pp")),
	without("settle", "a permit is told before a quorum has stored its fence",
		func(r *Rules) { r.Settle = false }, "F", world("pq", behind)),
	without("same-seat", "a node takes over the fence of a LOCK that proposed another seat, and so that seat, if it is free",
		func(r *Rules) { r.SameSeat = false }, "S", world("gp")),
	without("entry-seat", "a LOCK is told the grant of its owner that a quorum has in several seats",
		func(r *Rules) { r.EntrySeat = false }, "S", world("tp")),
	without("seated", "a LOCK that asks for a permit is told a grant without a seat",
		func(r *Rules) { r.Seated = false }, "K", world("x")),
	without("above", "a permit has the fence of the name as it stands",
		func(r *Rules) { r.Above = false }, "F", world("pp")),
	without("raise", "a permit's number does not become the name's counter",
		func(r *Rules) { r.Raise = false }, "F1", world("pw")),
	without("settle-raise", "nor does its fence, where it is stored afterwards",
		func(r *Rules) { r.SettleRaise = false }, "F1", world("pww")),
	without("beside-lock", "an undo forgets a writer's fence also if its owner was granted a permit since",
		func(r *Rules) { r.BesideLock = false }, "F1", world("mw")),
	without("beside-settle", "or if a permit's fence was stored since",
		func(r *Rules) { r.BesideSet = false }, "F1", world("mw")),
	without("release", "a release of a permit leaves nothing behind",
		func(r *Rules) { r.Release = false }, "Z", world("h", renewing)),
	without("back-seat", "a permit is put back also where its seat is another owner's",
		func(r *Rules) { r.BackSeat = false }, "S", world("hp", renewing)),
	without("back-index", "a permit is put back, and the seat stays whose it was",
		func(r *Rules) { r.BackIndex = false }, "S", world("hp", renewing)),
	without("back-writer", "a permit is put back beside another writer",
		func(r *Rules) { r.BackWriter = false }, "P", world("hw", renewing)),
	without("back-readers", "a writer is put back beside another owner's permit",
		func(r *Rules) { r.BackReaders = false }, "P", world("pw", renewing)),
	without("back-name", "a permit is put back also where a later fence of the name was seen",
		func(r *Rules) { r.BackName = false }, "", nil),
	without("back-own", "or of its sub-name",
		func(r *Rules) { r.BackOwn = false }, "Z", world("h", renewing)),
	without("renew-grant", "a renewal prolongs another grant with the same fence",
		func(r *Rules) { r.RenewGrant = false }, "", nil),
	without("in-time", "a renewal is told also if the validity before has ended",
		func(r *Rules) { r.InTime = false }, "", nil),
	without("back-late", "a permit is put back also where a later fence of the name was seen, and a renewal is told also if the validity before has ended",
		func(r *Rules) { r.BackName, r.InTime = false, false }, "R", world("hp", renewing)),
	without("drop-lapsed", "a record that has lapsed stays where its seat is given to another",
		func(r *Rules) { r.DropLapsed = false }, "", nil),
	without("index-own", "who gives a seat back takes it out of the index, whoever that names",
		func(r *Rules) { r.IndexOwn = false }, "", nil),
	without("revived-index", "this too, and a record that has lapsed stays where its seat is given to another",
		func(r *Rules) { r.IndexOwn, r.DropLapsed = false, false }, "S", world("hpp", stepping)),
	without("look-again", "an owner whose record a node has enters whatever else it has",
		func(r *Rules) { r.LookAgain = false }, "P", world("cw", stepping)),
	without("revived", "this too, and a record that has lapsed stays where its seat is given to another",
		func(r *Rules) { r.DropLapsed, r.LookAgain = false, false }, "S", world("cp", stepping)),
	without("quarantine", "a node that forgot votes at once",
		func(r *Rules) { r.Quarantine = false }, "S", world("pp", losing)),
	without("floor", "and without its floor",
		func(r *Rules) { r.Floor = false }, "F", world("pp", losing)),
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
func stepping(c *Config) { c.Backs = 1 }
func renewing(c *Config) { c.Renewals, c.TTL = 1, 2 }
func behind(c *Config)   { c.Ahead = true }
func lossy(c *Config)    { c.Lossy = true }
func drifting(c *Config) { c.TTL, c.Drift = 2, 1 }
