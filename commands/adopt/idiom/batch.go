package idiom

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// A Batch is a script on several locks that does the same to each: it renews a Hash that has the lock's own field, and
// answers a list with an element for each lock. Nothing depends on another lock, so each is decided by itself, as a
// Call. All its methods are safe for concurrent use.
type Batch struct {
	script  *Script
	dialect Dialect
	keys    []string
	args    []string
	at      map[string]int // where a key stands among keys
	proto   int
	fields  []string // by key: the field that the script reads

	// what the script does to each lock, and answers, if nobody has it, its own field has it, or another one
	absent, mine, other []part
}

// A part is what a batch does to one lock.
type part struct {
	ttl   time.Duration // renewed for; 0: nothing is done
	reply lua.Reply
}

// Batch makes a batch of a script. It refuses, with a *Refusal, a script that does anything but renew the locks whose
// fields it names, or for which one lock depends on another. If known, calls with as many keys and arguments are known not
// to depend on each other, and that is not tried again.
func (s *Script) Batch(d Dialect, keys, args []string, proto int, readOnly, known bool) (*Batch, error) {
	if s.refused != nil {
		return nil, s.refused
	}
	b := &Batch{script: s, dialect: d, keys: keys, args: args, at: map[string]int{}, proto: proto}
	for i, key := range keys {
		b.at[key] = i
	}
	switch {
	case readOnly || s.noWrites:
		return nil, refusef("several locks in a script that may not write")
	case len(b.at) < len(keys):
		return nil, refusef("a lock that is named twice")
	}
	now := time.Now()
	err := b.learn(now)
	if err == nil && !known {
		err = b.mix(now)
	}
	if err != nil {
		return nil, asRefusal(err)
	}
	return b, nil
}

// Call makes the call for the i-th key of the batch: what the batch does to that, with its element of the reply.
func (b *Batch) Call(i int) *Call {
	key := b.keys[i]
	return &Call{
		key: key, values: []string{b.fields[i]}, proto: b.proto, dialect: b.dialect, adopted: func(other string) bool { return other == key },
		run: func(w *world) (lua.Reply, error) { return b.runOne(i, w) },
	}
}

// CallOn makes a call of a script of which only the key lock is looked at. If the script is a Batch it is the part for
// that key.
func (s *Script) CallOn(d Dialect, lock string, keys, args []string, proto int, readOnly bool, fenceOf FenceKey) (*Call, error) {
	call, err := s.CallFenced(keys, args, proto, readOnly, func(key string) bool { return key == lock }, fenceOf)
	if call != nil {
		call.Speak(d)
	}
	i := slices.Index(keys, lock)
	if call == nil || len(keys) < 2 || i < 0 {
		return call, err
	}
	if _, err := call.Run(State{}, time.Now()); err == nil {
		return call, nil
	}
	if b, err := s.Batch(d, keys, args, proto, readOnly, false); err == nil {
		return b.Call(i), nil
	}
	return call, nil
}

// Only returns the keys and arguments of a call of the script on some of its keys alone, in their order. ok reports
// whether the script does the same to them then.
func (b *Batch) Only(some []int) (keys, args []string, ok bool) {
	before := len(b.args) - len(b.keys)
	if before < 0 || !slices.Equal(b.args[before:], b.fields) {
		return nil, nil, false
	}
	args = slices.Clone(b.args[:before])
	for _, i := range some {
		keys, args = append(keys, b.keys[i]), append(args, b.fields[i])
	}
	fewer, err := b.script.Batch(b.dialect, keys, args, b.proto, false, false)
	if err != nil {
		return nil, nil, false
	}
	for at, i := range some {
		if fewer.fields[at] != b.fields[i] || !b.equal(fewer.absent[at], b.absent[i]) || !b.equal(fewer.mine[at], b.mine[i]) || !b.equal(fewer.other[at], b.other[i]) {
			return nil, nil, false
		}
	}
	return keys, args, true
}

// runOne does to the i-th lock what the batch does to it.
func (b *Batch) runOne(i int, w *world) (lua.Reply, error) {
	p := b.absent[i]
	switch {
	case w.notHash():
		return wrongType, nil
	case w.is.Kind == Hash && w.is.Value == b.fields[i]:
		p = b.mine[i]
	case w.is.Kind == Hash:
		p = b.other[i]
	}
	if p.ttl != 0 {
		w.setEnd(p.ttl)
	}
	return p.reply, nil
}

// learn runs the script over locks that are all absent, mine and another's, and so finds out what it does to each.
func (b *Batch) learn(now time.Time) (err error) {
	n := len(b.keys)
	b.fields = make([]string, n)
	if b.absent, err = b.try(make([]State, n), now); err != nil {
		return err
	}
	own := make([]State, n)
	for i := range own {
		if own[i] = b.state(i, 1); b.fields[i] == "" {
			return refusef("a lock of several without a field")
		}
	}
	if b.mine, err = b.try(own, now); err != nil {
		return err
	}
	if b.other, err = b.try(slices.Repeat([]State{othersHash}, n), now); err != nil {
		return err
	}
	for i := range n {
		if b.absent[i].ttl != 0 || b.other[i].ttl != 0 || b.mine[i].ttl == 0 {
			return refusef("several locks that are not only extended by their holders")
		}
	}
	return nil
}

// state returns the state of the i-th lock if its own field has it.
func (b *Batch) state(i, count int) State {
	return State{Kind: Hash, Value: b.fields[i], Count: count, Left: sampleLeft}
}

var othersHash = State{Kind: Hash, Value: sampleOther, Count: 1, Left: sampleLeft}

// mix runs the script over mixtures of states in which any two locks differ. What it does to a lock must be what it
// does where all are like that one.
func (b *Batch) mix(now time.Time) error {
	n := len(b.keys)
	for bit := 1; bit < 2*n; bit *= 2 {
		for _, set := range []bool{false, true} {
			states, want := make([]State, n), make([]part, n)
			for i := range n {
				switch isSet := (i&bit != 0) == set; {
				case isSet:
					states[i], want[i] = b.state(i, 2), b.mine[i]
				case i%3 == 0:
					states[i], want[i] = othersHash, b.other[i]
				default:
					want[i] = b.absent[i]
				}
			}
			got, err := b.try(states, now)
			if err != nil {
				return err
			}
			if !slices.EqualFunc(got, want, b.equal) {
				return refusef("several locks that depend on each other")
			}
		}
	}
	return nil
}

func (b *Batch) equal(x, y part) bool {
	return x.ttl == y.ttl && bytes.Equal(appendReply(nil, x.reply, b.proto), appendReply(nil, y.reply, b.proto))
}

// try runs the script over these states of its locks.
func (b *Batch) try(states []State, now time.Time) ([]part, error) {
	worlds := make([]*world, len(b.keys))
	for i, key := range b.keys {
		worlds[i] = &world{key: key, was: states[i], is: states[i], now: now, inScript: true, dialect: b.dialect}
	}
	reply, err := b.script.parsed.Run(b.dialect.lua(), b.keys, b.args, func(args []string) (lua.Reply, error) {
		i, isLock := 0, false
		if len(args) > 1 {
			i, isLock = b.at[args[1]]
		}
		if !isLock {
			return nil, refusef("%s beside several locks", args[0])
		}
		name := strings.ToUpper(args[0])
		if len(args) > 2 && (name == "HEXISTS" || name == "HGET" || name == "HSTRLEN") {
			if b.fields[i] != "" && b.fields[i] != args[2] {
				return nil, refusef("a second field")
			}
			b.fields[i] = args[2]
		}
		return worlds[i].onLock(name, args[2:])
	})
	if err != nil {
		return nil, err
	}
	list, isList := reply.([]any)
	if !isList || len(list) != len(b.keys) {
		return nil, refusef("several locks, and no list with a reply for each")
	}
	parts := make([]part, len(b.keys))
	for i, w := range worlds {
		op, err := w.op()
		switch {
		case err != nil:
			return nil, err
		case w.timeRead:
			return nil, refusef("what is left of several locks")
		case op.Do == Renew && op.TTL != Forever:
			parts[i].ttl = op.TTL
		case op.Do != Nothing:
			return nil, refusef("%s of several locks", op.Do)
		}
		parts[i].reply = list[i]
	}
	return parts, nil
}
