package idiom

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// A read/write lock in a hash has a field mode, which is read or write, and a field for each thread that has the lock, with
// the number of its holds: under its name if it reads, under its name and ":write" if it writes. The one that writes may read
// as well. Each hold of a reader has a key beside the hash, which ends when that hold does: "{LOCK}:NAME:rwlock_timeout:1" is
// that of the first hold. The engine's holds have ends of their own, so these keys are never written.
const (
	modeField   = "mode"
	modeRead    = "read"
	modeWrite   = "write"
	writeSuffix = ":write"
	holdSuffix  = ":rwlock_timeout"
)

// sampleReaders is the field of readers of whom only the number is known.
const sampleReaders = "\x00other readers"

// A share is a field of a read/write lock that is not its mode.
type share struct {
	field string
	holds int
}

// shares are what a run sees of a read/write lock.
type shares struct {
	mode   string
	before []share // as the run began
	all    []share // in the order of the hash
	asked  []string
	whole  bool // the hash was removed while somebody had the lock
	theirs bool // the run has moved the ends of others' holds

	entered map[string]time.Duration // keys of holds that the run has made, with their ends
	left    map[string]bool          // keys of holds that it has removed
}

// sharesOf are the fields of a read/write lock in a state.
func sharesOf(s State) *shares {
	if s.Kind != ReadWrite {
		return nil
	}
	r := &shares{mode: modeRead}
	if s.Count > 0 {
		r.mode, r.all = modeWrite, append(r.all, share{s.Value + writeSuffix, s.Count})
	}
	if s.Reads > 0 {
		r.all = append(r.all, share{s.Reader, s.Reads})
	}
	if s.Others {
		r.all = append(r.all, share{sampleReaders, 1})
	}
	r.before = slices.Clone(r.all)
	return r
}

func (r *shares) of(field string) *share {
	for i := range r.all {
		if r.all[i].field == field {
			return &r.all[i]
		}
	}
	return nil
}

// onShares runs a command on a read/write lock, or one that makes one. is is false if it is another command.
func (w *world) onShares(name string, args []string) (reply lua.Reply, is bool, err error) {
	if w.is.Kind == Absent && (name == "HGET" || name == "HEXISTS") && len(args) == 1 && args[0] == modeField {
		w.modeRead = true
	}
	if w.is.Kind == Absent && w.was.Kind == Absent && name == "HSET" && len(args) == 2 && args[0] == modeField && (args[1] == modeRead || args[1] == modeWrite) {
		w.is, w.shares = State{Kind: ReadWrite, Left: Forever}, &shares{}
	}
	if w.is.Kind != ReadWrite {
		return nil, false, nil
	}
	if w.readOnly && commandTable[name].writes {
		return nil, true, refusef("%s in a script that may not write", name)
	}
	r := w.shares
	switch {
	case (name == "HGET" || name == "HEXISTS") && len(args) == 1:
		return r.get(name, args[0]), true, nil
	case name == "HSET" && len(args) == 2:
		reply, err = r.set(args[0], args[1])
	case name == "HINCRBY" && len(args) == 2:
		reply, err = r.add(args[0], args[1])
	case name == "HDEL" && len(args) == 1:
		reply, err = w.removeShare(args[0])
	case name == "HLEN" && len(args) == 0 && w.inScript:
		return int64(len(r.all) + 1), true, nil
	case name == "HKEYS" && len(args) == 0 && w.inScript:
		fields := []any{modeField}
		for _, s := range r.all {
			fields = append(fields, s.field)
		}
		return fields, true, nil
	case (name == "DEL" || name == "UNLINK") && len(args) == 0:
		r.whole = slices.ContainsFunc(r.all, func(s share) bool { return s.holds > 0 })
		w.is = State{}
		return int64(1), true, nil
	case name[0] == 'H':
		return nil, true, refusef("%s of a read/write lock", name)
	default:
		return nil, false, nil
	}
	return reply, true, err
}

func (r *shares) get(name, field string) lua.Reply {
	value := r.mode
	if field != modeField {
		r.asked = append(r.asked, field)
		value = ""
		if s := r.of(field); s != nil {
			value = strconv.Itoa(s.holds)
		}
	}
	switch {
	case name == "HEXISTS":
		return flag(value != "")
	case value == "":
		return nil
	}
	return value
}

func (r *shares) set(field, value string) (lua.Reply, error) {
	switch {
	case field == modeField && value != modeRead && value != modeWrite:
		return nil, refusef("a mode that is neither read nor write")
	case field == modeField:
		was := r.mode
		r.mode = value
		return flag(was == ""), nil
	case value != "1" || r.of(field) != nil:
		return nil, refusef("a share of a read/write lock that is set to a number")
	}
	return int64(1), r.enter(field)
}

func (r *shares) enter(field string) error {
	if len(field) > maxValue {
		return refusef("a field of %d bytes, more than %d", len(field), maxValue)
	}
	r.all = append(r.all, share{field, 1})
	return nil
}

func (r *shares) add(field, by string) (lua.Reply, error) {
	s := r.of(field)
	r.asked = append(r.asked, field)
	switch {
	case field == modeField:
		return lua.Error("ERR hash value is not an integer"), nil
	case by != "1" && by != "-1":
		return nil, refusef("HINCRBY by something else than one")
	case by == "1" && s == nil:
		return int64(1), r.enter(field)
	case by == "1":
		s.holds++
	case s == nil || s.holds == 0:
		return nil, refusef("a count under zero")
	default:
		s.holds--
	}
	return int64(s.holds), nil
}

func (w *world) removeShare(field string) (lua.Reply, error) {
	if field == modeField {
		return nil, refusef("HDEL of the mode of a read/write lock")
	}
	all := slices.DeleteFunc(slices.Clone(w.shares.all), func(s share) bool { return s.field == field })
	removed := len(w.shares.all) - len(all)
	w.shares.all = all
	return int64(removed), nil
}

// holdOf is the field and the number of the hold that a key beside the lock is for.
func (w *world) holdOf(key string) (field string, n int, is bool) {
	rest, is := strings.CutPrefix(key, "{"+w.key+"}:")
	if !is {
		rest, is = strings.CutPrefix(key, w.key+":")
	}
	at := strings.LastIndexByte(rest, ':')
	if !is || at < 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(rest[at+1:])
	field, is = strings.CutSuffix(rest[:at], holdSuffix)
	return field, n, is && err == nil
}

// onHold runs a command on the key of a reader's hold.
func (w *world) onHold(name string, args []string) (reply lua.Reply, is bool, err error) {
	if w.shares == nil || len(args) < 2 {
		return nil, false, nil
	}
	key, r := args[1], w.shares
	field, n, is := w.holdOf(key)
	if !is {
		return nil, false, nil
	}
	s := r.of(field)
	there := s != nil && n >= 1 && n <= s.holds && !r.left[key]
	switch {
	case w.readOnly && name != "PTTL":
		return nil, true, refusef("%s in a script that may not write", name)
	case name == "SET" && len(args) == 3:
		if r.entered == nil {
			r.entered = map[string]time.Duration{}
		}
		r.entered[key] = Forever
		return ok, true, nil
	case name == "PEXPIRE" && len(args) == 3:
		left, fault := w.left("PX", args[2], "pexpire")
		_, made := r.entered[key]
		switch {
		case fault != "":
			return fault, true, nil
		case made && left <= 0:
			return nil, true, refusef("a hold that has ended")
		case made:
			r.entered[key] = left
		case field == sampleReaders:
			r.theirs = true
		}
		return flag(made || there), true, nil
	case name == "DEL" && len(args) == 2:
		if r.left == nil {
			r.left = map[string]bool{}
		}
		r.left[key] = true
		return int64(1), true, nil
	case name == "PTTL" && len(args) == 2 && there:
		return w.is.Left.Milliseconds(), true, nil
	case name == "PTTL" && len(args) == 2:
		return int64(-2), true, nil
	}
	return nil, true, refusef("%s of the key of a hold", name)
}

// threadOf is the thread of a field, and whether the field says that it reads.
func threadOf(field string) (thread string, reads bool) {
	thread, writes := strings.CutSuffix(field, writeSuffix)
	return thread, !writes
}

// opShares is op for a key that was, or is, a read/write lock.
func (w *world) opShares() (Op, error) {
	r := w.shares
	switch {
	case w.is.Kind != Absent && w.is.Kind != ReadWrite:
		return Op{}, refusef("another lock in place of a read/write lock")
	case w.is.Kind == Absent && r.whole:
		return Op{Do: Release, Kind: ReadWrite}, nil
	case w.is.Kind == ReadWrite && r.mode != r.modeNow():
		return Op{}, refusef("a read/write lock whose mode does not say who has it")
	}
	changed := r.changed()
	op := Op{Kind: ReadWrite}
	switch {
	case len(changed) > 1:
		return Op{}, refusef("several shares of a read/write lock")
	case len(changed) == 0 && !w.timed:
		return Op{}, nil
	case len(changed) == 0:
		return w.renewShare()
	}
	field, by, now := changed[0].field, changed[0].holds, 0
	if s := r.of(field); s != nil {
		now = s.holds
	}
	op.Value, op.Shared = threadOf(field)
	switch {
	case by == 1:
		op.Do = Enter
		return w.enterShare(op, field, now)
	case by != -1 || now < 0:
		return Op{}, refusef("a count that changes by more than one")
	case now == 0 && r.of(field) != nil && w.is.Kind != Absent:
		return Op{}, refusef("a share that stays with a count of 0")
	case op.Shared && !r.gone(w, field, now+1):
		return Op{}, refusef("a reader's hold whose key stays")
	case now > 0:
		op.Do = Leave
		if w.timed && !op.Shared {
			op.TTL = w.is.Left
		}
		return op, nil
	}
	op.Do = Release
	return op, nil
}

// modeNow is the mode that a lock with these fields should have; empty: nobody has it.
func (r *shares) modeNow() (mode string) {
	for _, s := range r.all {
		if _, reads := threadOf(s.field); !reads {
			return modeWrite
		}
		mode = modeRead
	}
	return mode
}

// gone reports whether the run has removed the key of the n-th hold.
func (r *shares) gone(w *world, field string, n int) bool {
	for key := range r.left {
		if f, m, _ := w.holdOf(key); f == field && m == n {
			return true
		}
	}
	return false
}

// changed are the shares that the run has changed, each with the difference.
func (r *shares) changed() (all []share) {
	count := func(of []share, field string) int {
		for _, s := range of {
			if s.field == field {
				return s.holds
			}
		}
		return 0
	}
	for _, s := range r.all {
		if by := s.holds - count(r.before, s.field); by != 0 {
			all = append(all, share{s.field, by})
		}
	}
	for _, s := range r.before {
		if r.of(s.field) == nil {
			all = append(all, share{s.field, -s.holds})
		}
	}
	return all
}

// enterShare completes an operation that enters the lock: a reader with the end of its hold's key, a writer with that of the lock.
func (w *world) enterShare(op Op, field string, holds int) (Op, error) {
	r := w.shares
	switch {
	case w.is.Left == Forever || !op.Shared && !w.timed:
		return Op{}, refusef("a read/write lock without an end")
	case !op.Shared && len(r.before) > 0 && !slices.ContainsFunc(r.before, func(s share) bool { return s.field == field }):
		return Op{}, refusef("a writer in a lock that is read")
	case !op.Shared:
		op.TTL = w.is.Left
		return op, nil
	case r.mode == modeWrite && r.of(op.Value+writeSuffix) == nil:
		return Op{}, refusef("a reader beside another writer")
	}
	for key, left := range r.entered {
		if f, n, _ := w.holdOf(key); f == field && n == holds && left != Forever && w.is.Left >= left {
			op.TTL = left
			return op, nil
		}
	}
	return Op{}, refusef("a reader's hold without a key that ends with it")
}

// renewShare is the operation of a run that moves the end of the lock: that of the first share that it has looked at.
func (w *world) renewShare() (Op, error) {
	r := w.shares
	for _, field := range r.asked {
		if r.of(field) != nil && w.is.Left != Forever {
			op := Op{Do: Renew, Kind: ReadWrite, TTL: w.is.Left}
			op.Value, op.Shared = threadOf(field)
			op.Theirs = op.Shared && r.theirs
			return op, nil
		}
	}
	return Op{}, refusef("another end for whoever has a read/write lock")
}
