// Package migrate finds what is in the way of the next mode, while programs move from locks at the upstream to locks at the
// lock nodes, or back: which proxies are in which mode, and which locks are in one of the two places alone.
//
// It changes nothing. What it finds is of a moment: a lock is looked at twice, a second apart, since a call in the mode
// both changes one place after the other. Programs that go past the proxies are seen by the locks that they have; Watch
// sees also those that they have for a short time.
package migrate

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/commands/adopt/peers"
)

// Nodes say who has which locks; *locks.Service does.
type Nodes interface {
	Read(context.Context, locks.Key) (locks.Reading, error)
	Names(context.Context, locks.NamesRequest) (names []locks.Key, complete bool, err error)
}

// Upstream says which keys it has.
type Upstream interface {
	// Keys are those that match, of all masters, most of them at most.
	Keys(ctx context.Context, db int, match string, most int) (keys []string, complete bool, err error)
	// Values are what a key has: the value of a string, the fields of a hash, the members of a sorted set, or one empty value if it is of another type, which
	// is in the way of a lock all the same; none: there is no such key.
	Values(ctx context.Context, db int, key string) ([]string, error)
	// Left is how long a key has until it ends; ends is false if it never does, or is not there.
	Left(ctx context.Context, db int, key string) (left time.Duration, ends bool, err error)
	// Watch passes on the names of keys that change and begin with a prefix, until the context ends.
	Watch(ctx context.Context, db int, prefix string, changed func(key string)) error
}

// Options are read once by New.
type Options struct {
	Patterns []*pattern.Pattern
	Nodes    Nodes
	Upstream Upstream
	Peers    func() []peers.Peer // the other proxies; nil: there are none
}

// mostKeys is how many keys of a pattern are looked at in each place.
const mostKeys = 2000

// secondLook is when a lock that is in one place alone is looked at again.
const secondLook = time.Second

// A Checker looks for what is in the way. It is safe for concurrent use.
type Checker struct{ opt Options }

// New makes a Checker.
func New(o Options) *Checker { return &Checker{o} }

// A Report is what was found, a row for each pattern that may have keys in the database.
type Report struct {
	DB   int
	Rows []Row
}

// A Row is what was found about one pattern.
type Row struct {
	Pattern, Mode string
	Proxies       []Proxy // the others of the same upstream
	Upstream      Alone   // locks that the upstream alone has
	Nodes         Alone   // locks that the nodes alone have
	Steps         []Step
}

// A Proxy is in which mode another proxy has the keys of a pattern.
type Proxy struct {
	Name, Mode string
	Since      time.Duration // how long it has been known so, at least
}

// Alone are locks that are in one place.
type Alone struct {
	Count    int
	Example  string // one of the keys; empty: there is none
	Complete bool   // all keys have been looked at
}

// A Step is what may come next.
type Step struct {
	To       string   // a mode
	InTheWay []string // empty: nothing is known to be
}

// Text is the step as a sentence.
func (s *Step) Text() string {
	if len(s.InTheWay) == 0 {
		return "safe to go " + s.To
	}
	return "not safe to go " + s.To + ": " + join(s.InTheWay)
}

var _ Upstream = (*Masters)(nil)

// Masters are those of an upstream, asked as the proxy's own user.
type Masters struct{ Of *upstream.Upstream }
