package main

import "github.com/lockproxy/lockproxy/integration/model/explore"

// Rules are what proxies and nodes do about holds that a node lacks. soundRules is the
// set to build.
type Rules struct {
	Carry    bool // messages about a grant, but for retries of releases, carry the holds that the proxy knows, and a node that has the grant adds those it lacks
	Any      bool // without Carry: a renewal is applied where at least one of its holds is, not only where all are
	Marks    bool // a node marks holds as given back: it adds them no more, and refuses to acquire them
	Outlive  bool // marks outlive the record
	Told     bool // records that were put back where the name was free count in no read and no release
	ByID     bool // a grant is named by the attempt that numbered it, besides its fence
	Spares   bool // no mark where a release removed the hold, freed the record by that and raised the counter above the fence
	NoAbsent bool // too much: no mark either where the hold was not there
	NoLeft   bool // too much: no mark either where the release leaves other holds
}

func soundRules() Rules {
	return Rules{Carry: true, Marks: true, Outlive: true, Told: true, ByID: true, Spares: true}
}

// Config bounds a search.
type Config struct {
	Rules
	Holds    int // the owner takes, at most 3, of which it has one at the start
	Renewals int // the owner may ask for
	Losses   int // how often a node may forget
	OneProxy bool
	NoRival  bool
}

var without = explore.Without[Rules, Config]

// variants are the sound rules without one.
var variants = []explore.Variant[Rules, Config]{
	without("carry", "as it was: a renewal is applied where all of its holds are",
		func(r *Rules) { r.Carry = false }, "L", world(3, 0, 0, oneProxy, noRival)),
	without("any", "the same, but where at least one of its holds is",
		func(r *Rules) { r.Carry, r.Any = false, true }, "", nil),
	without("marks", "nothing is remembered of holds that were given back",
		func(r *Rules) { r.Marks = false }, "W", world(2, 1, 0, noRival)),
	without("outlive", "marks go with the record",
		func(r *Rules) { r.Outlive = false }, "", nil),
	without("told", "records that were put back count like any other",
		func(r *Rules) { r.Told = false }, "W", world(2, 1, 1, noRival)),
	without("by-id", "a grant is named by its fence alone",
		func(r *Rules) { r.ByID = false }, "", nil),
	without("no-absent", "no mark where the hold was not there",
		func(r *Rules) { r.NoAbsent = true }, "W", world(2, 0, 0, oneProxy, noRival)),
	without("no-left", "no mark where the release leaves other holds",
		func(r *Rules) { r.NoLeft = true }, "W", world(2, 1, 0, oneProxy, noRival)),
}

func world(holds, renewals, losses int, but ...func(*Config)) *Config {
	c := &Config{Rules: soundRules(), Holds: holds, Renewals: renewals, Losses: losses}
	for _, f := range but {
		f(c)
	}
	return c
}

func oneProxy(c *Config) { c.OneProxy = true }
func noRival(c *Config)  { c.NoRival = true }
