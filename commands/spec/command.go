package spec

import "slices"

// A Command is what COMMAND tells of one command or subcommand. It never changes.
type Command struct {
	Name     string // lower case; of a subcommand with the command's: "config|set"
	Arity    int    // number of arguments, counting the name; negative: at least so many
	Flags    Flags
	Request  Request
	Response Response

	specs      []keySpec
	specsFirst bool                // Keys asks the specs first: some are of keys, and none is variable
	notKeys    bool                // some specs are not of keys
	keyFinder  keyFinder           // Redis's own function, where specs do not suffice; may be nil
	subs       map[string]*Command // by the last part of their names; nil: it has none
}

// finish sets the fields that follow from the name and the specs.
func (c *Command) finish() {
	if c.Flags&Module == 0 {
		c.keyFinder = keyFinders[c.Name]
	}
	keys := func(s keySpec) bool { return !s.notKey }
	c.specsFirst = slices.ContainsFunc(c.specs, keys) && !slices.ContainsFunc(c.specs, func(s keySpec) bool { return s.variable })
	c.notKeys = slices.ContainsFunc(c.specs, func(s keySpec) bool { return s.notKey })
}

// Flags are COMMAND's.
type Flags uint32

// The flags, named as in COMMAND INFO. Only Redis 6.2 has MayReplicate.
const (
	Write Flags = 1 << iota
	ReadOnly
	DenyOOM
	Module
	Admin
	PubSub
	NoScript
	Blocking
	Loading
	Stale
	SkipMonitor
	SkipSlowlog
	Asking
	Fast
	NoAuth
	MayReplicate
	NoMandatoryKeys
	NoAsyncLoading
	NoMulti
	MovableKeys
	AllowBusy
)

// flagWords are the flags in the order of their bits, as Redis spells them.
var flagWords = []string{
	"write", "readonly", "denyoom", "module", "admin", "pubsub", "noscript", "blocking", "loading", "stale",
	"skip_monitor", "skip_slowlog", "asking", "fast", "no_auth", "may_replicate", "no_mandatory_keys",
	"no_async_loading", "no_multi", "movablekeys", "allow_busy",
}

// Request is a Cluster command's request_policy: which nodes it is for.
type Request uint8

const (
	RequestDefault Request = iota // any one node, or that of its keys
	AllNodes
	AllShards
	MultiShard // split by the slots of its keys
	RequestSpecial
)

var requestWords = []string{"-", "all_nodes", "all_shards", "multi_shard", "special"}

// Response is a Cluster command's response_policy: how replies of several nodes
// become one.
type Response uint8

const (
	ResponseDefault Response = iota // all of them, in any order, or in that of the keys
	OneSucceeded
	AllSucceeded
	LogicalAnd
	LogicalOr
	Min
	Max
	Sum
	ResponseSpecial
)

var responseWords = []string{
	"-", "one_succeeded", "all_succeeded", "agg_logical_and", "agg_logical_or", "agg_min", "agg_max", "agg_sum", "special",
}

// A keySpec is one key specification: where keys begin, and how to find them from there.
type keySpec struct {
	begin   begin
	at      int    // the position, or where to begin to look for keyword; negative: from the end, backwards
	keyword string // keys begin behind it

	find  find
	last  int // findRange: the last key, counted from the first; negative: from the end
	limit int // findRange with a negative last: keys end at this part of the rest, 2 being half; 0: no such part
	num   int // findNum: where the number of keys is, counted from the beginning
	first int // findNum: where the first key is, counted so
	step  int // from key to key

	notKey     bool // what it finds has a slot as keys have, and is none
	incomplete bool // there are more keys than it finds
	variable   bool // the access it names depends on the arguments
}

type begin uint8

const (
	beginUnknown begin = iota
	beginIndex
	beginKeyword
)

type find uint8

const (
	findUnknown find = iota
	findRange
	findNum
)

// Takes reports whether the command takes n arguments, counting its name.
func (c *Command) Takes(n int) bool {
	if c.Arity >= 0 {
		return n == c.Arity
	}
	return n >= -c.Arity
}

// HasKeys reports whether some call of the command may have keys.
func (c *Command) HasKeys() bool { return len(c.specs) > 0 || c.keyFinder != nil }
