package main

import "github.com/lockproxy/lockproxy/integration/model/explore"

var without = explore.Without[Rules, Config]

// variants are the sound rules without one.
var variants = []explore.Variant[Rules, Config]{
	without("lower", "a node with a larger fence keeps it",
		func(r *Rules) { r.Lower = false }, "L", late()),
	without("earlier", "it takes over a smaller one also if it has seen a larger one before",
		func(r *Rules) { r.Earlier = false }, "V", lapsing()),
	without("own", "it does so in a record that another LOCK numbered",
		func(r *Rules) { r.Own = false }, "L", entering()),
	without("counter", "its counter stays",
		func(r *Rules) { r.Counter = false }, "L", givingBack()),
	without("forget", "an undo leaves the fence",
		func(r *Rules) { r.Forget = false }, "L", rivals()),
	without("alone", "it forgets the fence of a record that was entered again",
		func(r *Rules) { r.Alone = false }, "F", undoing()),
	without("expired", "a counter stays where there was none",
		func(r *Rules) { r.Expired = false }, "F", old()),
	without("carried", "a grant is told before a quorum has its fence",
		func(r *Rules) { r.Carried = false }, "F", undoing()),
	without("floor", "a node takes over a smaller fence also if it may have forgotten a larger one",
		func(r *Rules) { r.Floor = false }, "", nil),
	without("same", "a counter that is not the record's fence is set as well",
		func(r *Rules) { r.Same = false }, "", nil),
}

func sound() *Config { return &Config{Rules: soundRules()} }

// late is a world in which one node gives larger fences, and its vote may come late.
func late() *Config {
	c := sound()
	c.Ahead = true
	return c
}

// rivals is one in which somebody else wants the name too.
func rivals() *Config {
	c := sound()
	c.Rivals = 1
	return c
}

// entering is late where the owner enters again.
func entering() *Config {
	c := late()
	c.Again = true
	return c
}

// givingBack is late where what was granted is given back, and granted to somebody else.
func givingBack() *Config {
	c := late()
	c.Rivals, c.Releases = 1, true
	return c
}

// lapsing is late where leases lapse, and somebody else wants the name.
func lapsing() *Config {
	c := late()
	c.Rivals, c.Lapses = 1, 2
	return c
}

// undoing is one in which two LOCKs of the owner are under way at once, and somebody else comes after them.
func undoing() *Config {
	c := rivals()
	c.Again, c.AtOnce, c.After, c.Behind, c.Releases, c.Out = true, true, true, true, true, true
	return c
}

// old is one in which the counters of the name are gone.
func old() *Config {
	c := rivals()
	c.Old = true
	return c
}

// with is a world with more in it.
func (c *Config) with(more func(c *Config)) *Config {
	more(c)
	return c
}
