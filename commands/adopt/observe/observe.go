package observe

import (
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// The bounds of what is kept.
const (
	maxKeys          = 10_000
	maxRows          = 1_000
	maxShapes        = 4_096 // of scripts
	maxUnknown       = 100   // scripts of which only the SHA-1 is known
	maxSubscriptions = 100   // patterns of keyspace events
)

// A Pattern is one of --adopt, as far as its keys are reported on.
type Pattern struct {
	Glob      string
	Literal   string // every key begins with it
	Match     func(db int, key string) bool
	Mode      Mode
	As        idiom.Strictness
	NoExpiry  time.Duration // the lease of a lock without an end; idiom.Forever: it has none; 0: it is refused
	Deadlines idiom.Unit    // of values that say when the lock ends

	FenceOf func(db int, key string) (lock string) // of which lock a key is the fence, empty: of none; nil: none is
}

// A Mode is what is done with the keys of a row.
type Mode uint8

// The modes.
const (
	Reported Mode = iota // ordinary keys: no pattern matches, or one that is off
	Observed             // ordinary keys of a pattern with mode=observe
	Adopted              // they are locks
)

func (m Mode) String() string { return [...]string{"report", "observe", "on"}[m] }

// Options are read once by New.
type Options struct {
	All            bool          // look at all traffic, not only at keys of patterns
	Patterns       []Pattern     // the first that matches a key counts
	MinTTL, MaxTTL time.Duration // of leases
	Now            func() time.Time
	Dialect        func() idiom.Dialect // the upstream's, called for every command that is looked at; nil: not known
}

// An Observer looks at commands and replies, and reports.
type Observer struct {
	opt     Options
	watches bool
	scripts *idiom.Scripts
	seed    maphash.Seed
	began   time.Time

	// followed counts, by hash, the keys that are followed: most commands are of none, and this says so without
	// a lock.
	followed [1 << 18]atomic.Int32

	mu      sync.Mutex
	keys    *simplelru.LRU[uint64, *key]
	rows    *simplelru.LRU[rowID, *row]
	unknown *simplelru.LRU[string, *row] // by SHA-1
	shapes  *simplelru.LRU[shapeID, *scriptShape]
	waiting []subscription // patterns of keyspace events that clients have subscribed to
	events  int64          // subscriptions to __keyevent
	unseen  Unseen
}

// New makes an Observer.
func New(o Options) (*Observer, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	ob := &Observer{opt: o, watches: o.All, scripts: idiom.NewScripts(), seed: maphash.MakeSeed(), began: o.Now()}
	for _, p := range o.Patterns {
		ob.watches = ob.watches || p.Mode == Observed
	}
	var errs [4]error
	ob.keys, errs[0] = simplelru.NewLRU(maxKeys, ob.forget)
	ob.rows, errs[1] = simplelru.NewLRU[rowID, *row](maxRows, nil)
	ob.unknown, errs[2] = simplelru.NewLRU[string, *row](maxUnknown, nil)
	ob.shapes, errs[3] = simplelru.NewLRU[shapeID, *scriptShape](maxShapes, nil)
	return ob, errors.Join(errs[:]...)
}

// Watches reports whether ordinary traffic is looked at, and not only calls on adopted keys.
func (o *Observer) Watches() bool { return o.watches }

// A Client is a connection of a client. It is used by one goroutine at a time, but for Close.
type Client struct {
	ID int64 // unlike those of others

	closed  atomic.Bool
	library string
	name    string
	reads   tracking
	watched string // the lock that it WATCHes; empty: none
	tx      transaction
	did     idiom.Op // what the command that is looked at has done to its lock; zero: its reply tells
}

// Close notes that the connection has closed.
func (c *Client) Close() { c.closed.Store(true) }

// Where says how a command is sent.
type Where uint8

// The ways in which a command can be sent.
const (
	Plain     Where = iota // with one reply, which can be seen
	InMulti                // it is queued
	Uncounted              // on a connection on which replies are not counted
	Decided                // to the lock nodes: its key is adopted
)

// A kind is what a command may be, by its name alone.
type kind uint8

const (
	other kind = iota
	set
	setNX
	script
	scripting // SCRIPT
	client
	subscribe
	several // of several keys
)

func kindOf(name []byte) kind {
	switch len(name) {
	case 3:
		switch {
		case resp.Is(name, "SET"):
			return set
		case resp.Is(name, "DEL"):
			return several
		}
	case 4:
		switch {
		case resp.Is(name, "EVAL"):
			return script
		case resp.Is(name, "MGET"):
			return several
		}
	case 5:
		switch {
		case resp.Is(name, "SETNX"):
			return setNX
		case resp.Is(name, "WATCH"), resp.Is(name, "TOUCH"):
			return several
		}
	case 6:
		switch name[0] | 0x20 {
		case 'c':
			if resp.Is(name, "CLIENT") {
				return client
			}
		case 's':
			if resp.Is(name, "SCRIPT") {
				return scripting
			}
		case 'u', 'e':
			if resp.Is(name, "UNLINK") || resp.Is(name, "EXISTS") {
				return several
			}
		}
	case 7:
		if name[0]|0x20 == 'e' && (resp.Is(name, "EVALSHA") || resp.Is(name, "EVAL_RO")) {
			return script
		}
	case 9, 10:
		switch {
		case resp.Is(name, "SUBSCRIBE"), resp.Is(name, "PSUBSCRIBE"):
			return subscribe
		case resp.Is(name, "EVALSHA_RO"):
			return script
		}
	}
	return other
}

// Command notes a command that is about to be sent. args has at least the name, and is not kept. The Tap must be given the
// beginning of the reply; it is nil if the reply is of no interest. For a command of a key that is not followed nothing is
// allocated.
func (o *Observer) Command(c *Client, where Where, db, proto int, args [][]byte) *Tap {
	if where == InMulti {
		o.inMulti(c, db, proto, args)
		return nil
	}
	if c.tx != (transaction{}) {
		c.tx = transaction{}
	}
	return o.command(c, where, db, proto, args)
}

func (o *Observer) command(c *Client, where Where, db, proto int, args [][]byte) *Tap {
	if len(args) < 2 {
		if c.watched != "" && (resp.Is(args[0], "UNWATCH") || resp.Is(args[0], "RESET")) {
			c.watched = ""
		}
		if c.reads != (tracking{}) && resp.Is(args[0], "RESET") {
			c.reads = tracking{}
		}
		return nil
	}
	k := kindOf(args[0])
	if c.reads.on && k != client {
		c.reads.this, c.reads.next = c.reads.next, asTracked
	}
	switch k {
	case set:
		if o.opt.All && hasNX(args) {
			return o.look(c, where, db, proto, k, args)
		}
	case setNX:
		if o.opt.All {
			return o.look(c, where, db, proto, k, args)
		}
	case script:
		if o.opt.All || o.mayFollowAny(db, args[2:]) {
			return o.look(c, where, db, proto, k, args)
		}
		return nil
	case scripting:
		o.NoteScript(args)
		return nil
	case client:
		c.note(args)
		return nil
	case subscribe:
		o.noteSubscribe(args[1:])
		return nil
	case several:
		if o.mayFollowAny(db, args[1:]) {
			return o.look(c, where, db, proto, k, args)
		}
		return nil
	}
	if o.mayFollow(db, args[1]) {
		return o.look(c, where, db, proto, k, args)
	}
	return nil
}

// Note is Command for a command whose whole reply is known (nil: there is none to be seen), and what it did to its lock;
// the zero did: nothing, or the reply tells. A nil Observer notes nothing.
func (o *Observer) Note(c *Client, where Where, db, proto int, args [][]byte, reply []byte, did idiom.Op) {
	if o == nil {
		return
	}
	c.did = did
	if t := o.Command(c, where, db, proto, args); t != nil {
		t.Reply(reply)
	}
	c.did = idiom.Op{}
}

// hasNX reports whether a SET, which may be too short, has the option NX.
func hasNX[T string | []byte](args []T) bool {
	for _, a := range args[min(3, len(args)):] {
		if len(a) == 2 && a[0]|0x20 == 'n' && a[1]|0x20 == 'x' {
			return true
		}
	}
	return false
}

// maxLooked is how many arguments of a command are looked at.
const maxLooked = 64

func (o *Observer) mayFollowAny(db int, args [][]byte) bool {
	for _, a := range args[:min(len(args), maxLooked)] {
		if o.mayFollow(db, a) {
			return true
		}
	}
	return false
}

// mayFollow reports whether a key may be one that is followed. It does not allocate.
func (o *Observer) mayFollow(db int, key []byte) bool {
	if o.opt.All {
		if h := o.hash(db, key); o.slot(h).Load() > 0 && o.isKey(h) {
			return true
		}
	}
	for i := range o.opt.Patterns {
		if p := &o.opt.Patterns[i]; p.Mode != Reported && len(key) >= len(p.Literal) && string(key[:len(p.Literal)]) == p.Literal {
			return true
		}
	}
	return false
}

// slot is the counter of a key's hash.
func (o *Observer) slot(hash uint64) *atomic.Int32 { return &o.followed[hash>>46] }

func (o *Observer) isKey(hash uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keys.Contains(hash)
}

func (o *Observer) hash(db int, key []byte) uint64 {
	return maphash.Bytes(o.seed, key) + uint64(db)*0x9e3779b97f4a7c15
}

// pattern is that of a key; nil: none matches.
func (o *Observer) pattern(db int, key string) *Pattern {
	for i := range o.opt.Patterns {
		if p := &o.opt.Patterns[i]; p.Match(db, key) {
			return p
		}
	}
	return nil
}

// follows reports whether a key is followed already, or is to be since a pattern matches it.
func (o *Observer) follows(db int, key string) bool {
	if p := o.pattern(db, key); p != nil && p.Mode != Reported {
		return true
	}
	h := o.hash(db, []byte(key))
	return o.slot(h).Load() > 0 && o.isKey(h)
}

// NoteScript notes SCRIPT LOAD. It ignores SCRIPT FLUSH: the texts of scripts stay known here. A nil Observer notes nothing.
func (o *Observer) NoteScript(args [][]byte) {
	if o != nil && len(args) == 3 && resp.Is(args[0], "SCRIPT") && resp.Is(args[1], "LOAD") {
		o.know(string(args[2]))
	}
}

// know remembers the text of a script, which then has no row of its own any more.
func (o *Observer) know(text string) *idiom.Script {
	s := o.scripts.Know(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unknown.Remove(s.SHA)
	return s
}
