package idiom

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// A lock in a sorted set has two members: the token of its holder, and writer, which says that nobody else may have the
// lock as well. The scores of both are when the lock ends, in milliseconds since 1970, as is the end of the key. With
// tokens alone it is a read lock, which several may have; the engine has none, so that what leads to one is refused.
const writer = "__write__"

// A member is one member of a sorted set.
type member struct {
	name   string
	score  float64
	before bool // the run has not changed it
}

// membersOf are the members of a Sorted, in the order of the set, or of Permits.
func membersOf(s State, now time.Time) []member {
	switch s.Kind {
	case Permits:
		return permitsOf(s)
	case Sorted:
	default:
		return nil
	}
	end := float64(now.UnixMilli() + s.Left.Milliseconds())
	return inOrder([]member{{s.Value, end, true}, {writer, end, true}})
}

func inOrder(all []member) []member {
	slices.SortFunc(all, func(a, b member) int { return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name)) })
	return all
}

// Holder is the token among all members of a sorted set; empty: it is no lock that one holder has alone.
func Holder(members []string) string {
	if i := slices.Index(members, writer); len(members) == 2 && i >= 0 {
		return members[1-i]
	}
	return ""
}

// inScriptsOnly are commands that by themselves neither make a lock of a sorted set nor end one.
var inScriptsOnly = map[string]bool{"ZADD": true, "ZREMRANGEBYSCORE": true}

const (
	notFloat  = lua.Error("ERR value is not a valid float")
	notBounds = lua.Error("ERR min or max is not a float")
)

// Why sorted sets are refused.
var (
	errReadLock = refusef("a read lock in a sorted set: read locks are not adopted")
	errPast     = refusef("a sorted set with a score that is no time to come, in milliseconds since 1970; a client's clock may be wrong")
	errOtherEnd = refusef("a sorted set whose scores and end are not one time")
)

// notSorted reports whether a command of sorted sets fails because the key holds something else.
func (w *world) notSorted() bool { return w.is.Kind != Absent && !w.is.Kind.sorted() }

// zset returns the members that are there.
func (w *world) zset() []member {
	if !w.is.Kind.sorted() {
		return nil
	}
	return w.members
}

// setMembers makes these the members of the key, in order.
func (w *world) setMembers(all []member) {
	if w.members = all; len(all) == 0 {
		w.is = State{}
		return
	}
	if w.is.Kind == Absent {
		w.is = State{Kind: Sorted, Left: Forever}
	}
	w.is.Value = ""
	if i := slices.IndexFunc(all, func(m member) bool { return m.name != writer }); i >= 0 {
		w.is.Value = all[i].name
	}
}

// opSorted is op for a key that is now a sorted set.
func (w *world) opSorted() (Op, error) {
	was, is, all := &w.was, &w.is, w.members
	changed := slices.ContainsFunc(all, func(m member) bool { return !m.before })
	switch {
	case was.Kind != Absent && was.Kind != Sorted:
		return Op{}, refusef("a sorted set in place of a lock")
	case len(all) != 2 || all[0].name != writer && all[1].name != writer:
		return Op{}, errReadLock
	case was.Kind == Sorted && is.Value != was.Value:
		return Op{}, refusef("a sorted set that is given to another holder")
	case !changed && !w.timed:
		return Op{}, nil
	case is.Left == Forever:
		return Op{}, refusef("a sorted set without an end")
	case changed && (all[0].score != all[1].score || int64(all[0].score)-w.now.UnixMilli() != is.Left.Milliseconds()):
		return Op{}, errOtherEnd
	case was.Kind == Absent:
		return Op{Do: Take, Kind: Sorted, Value: is.Value, TTL: is.Left}, nil
	}
	return Op{Do: Renew, TTL: is.Left}, nil
}

// zadd is ZADD. The scores of a lock are times to come, those of a semaphore may be past.
func (w *world) zadd(_ string, args []string) (lua.Reply, error) {
	if slices.Contains([]string{"NX", "XX", "GT", "LT", "CH", "INCR"}, strings.ToUpper(args[0])) {
		return nil, refusef("ZADD with options")
	}
	if len(args)%2 != 0 {
		return syntax, nil
	}
	var scores []float64
	for i := 0; i < len(args); i += 2 {
		f, fine, err := scoreOf(args[i])
		if err != nil || !fine {
			return notFloat, err
		}
		scores = append(scores, f)
	}
	if w.notSorted() {
		return wrongType, nil
	}
	all, added := slices.Clone(w.zset()), int64(0)
	for i, f := range scores {
		name := args[2*i+1]
		switch {
		case f <= 0 || f > 1e15:
			return nil, errPast
		case len(name) > maxValue:
			return nil, refusef("a member of %d bytes, more than %d", len(name), maxValue)
		}
		w.past = w.past || f <= float64(w.now.UnixMilli())
		at := slices.IndexFunc(all, func(m member) bool { return m.name == name })
		if at < 0 {
			at, added = len(all), added+1
			all = append(all, member{name: name})
		}
		all[at].score, all[at].before = f, false
	}
	w.setMembers(inOrder(all))
	return added, nil
}

func (w *world) zrem(_ string, args []string) (lua.Reply, error) {
	if w.notSorted() {
		return wrongType, nil
	}
	return w.removeMembers(func(m member) bool { return slices.Contains(args, m.name) }), nil
}

// removeMembers returns how many there were.
func (w *world) removeMembers(which func(member) bool) (removed int64) {
	before := w.zset()
	if before == nil {
		return 0
	}
	w.setMembers(slices.DeleteFunc(slices.Clone(before), which))
	return int64(len(before) - len(w.zset()))
}

// zremRange is ZREMRANGEBYSCORE. Scripts remove with it what has ended, up to a time that may be the client's. The lock that
// is there has not ended, whatever that clock says.
func (w *world) zremRange(_ string, args []string) (lua.Reply, error) {
	r, fault, err := w.scores(args)
	if err != nil || fault != nil {
		return fault, err
	}
	ended := math.IsInf(r.min, -1) && !math.IsInf(r.max, 1)
	return w.removeMembers(func(m member) bool { return !(m.before && ended) && w.within(r, m) }), nil
}

func (w *world) zscore(_ string, args []string) (lua.Reply, error) {
	if w.notSorted() {
		return wrongType, nil
	}
	for _, m := range w.zset() {
		switch {
		case m.name != args[0]:
		case !w.inScript:
			w.lookAtScore(m)
			return score(m.score), nil
		case m.before:
			return lua.Seen{Text: w.scoreText(m.score), Look: func() { w.lookAtScore(m) }}, nil
		default:
			return w.scoreText(m.score), nil
		}
	}
	return nil, nil
}

// lookAtScore notes that the run depends on the score of a member.
func (w *world) lookAtScore(m member) {
	w.timeRead = w.timeRead || m.before
	w.scoreRead = w.scoreRead || m.before && w.is.Kind == Permits
}

func (w *world) zcard(string, []string) (lua.Reply, error) {
	if w.notSorted() {
		return wrongType, nil
	}
	return int64(len(w.zset())), nil
}

func (w *world) zcount(_ string, args []string) (lua.Reply, error) {
	r, fault, err := w.scores(args)
	if err != nil || fault != nil {
		return fault, err
	}
	n := int64(0)
	for _, m := range w.zset() {
		if w.within(r, m) {
			n++
		}
	}
	return n, nil
}

// zrange is ZRANGE and ZREVRANGE, by places.
func (w *world) zrange(name string, args []string) (lua.Reply, error) {
	scores := len(args) == 3 && strings.EqualFold(args[2], "WITHSCORES")
	if len(args) > 2 && !scores {
		return nil, refusef("%s of a lock with such options", name)
	}
	from, isInt := integer(args[0])
	to, alsoInt := integer(args[1])
	switch {
	case !isInt || !alsoInt:
		return notInteger, nil
	case w.notSorted():
		return wrongType, nil
	}
	all := slices.Clone(w.zset())
	if name == "ZREVRANGE" {
		slices.Reverse(all)
	}
	n := int64(len(all))
	if from < 0 {
		from = max(0, n+from)
	}
	if to < 0 {
		to = n + to
	}
	if to = min(to, n-1); from > to {
		all = nil
	} else {
		all = all[from : to+1]
	}
	for _, m := range w.zset() {
		if w.is.Kind == Permits { // the order is that of the scores
			w.lookAtScore(m)
		}
	}
	flat, pairs := []any{}, scored{}
	for _, m := range all {
		if flat = append(flat, m.name); scores {
			w.lookAtScore(m)
			flat, pairs = append(flat, w.scoreText(m.score)), append(pairs, m)
		}
	}
	if scores && !w.inScript {
		return pairs, nil
	}
	return flat, nil
}

// A score is a reply of its own in RESP3.
type score float64

// scored are members with their scores: in RESP3 each is an array.
type scored []member

func appendScore(b []byte, s score, proto int) []byte {
	text := strconv.FormatFloat(float64(s), 'f', -1, 64)
	if proto < 3 {
		return resp.AppendBulkString(b, text)
	}
	return append(append(append(b, ','), text...), "\r\n"...)
}

func (s scored) append(b []byte, proto int) []byte {
	if proto < 3 {
		b = resp.AppendArray(b, 2*len(s))
	} else {
		b = resp.AppendArray(b, len(s))
	}
	for _, m := range s {
		if proto >= 3 {
			b = resp.AppendArray(b, 2)
		}
		b = appendScore(resp.AppendBulkString(b, m.name), score(m.score), proto)
	}
	return b
}

// scoreText is how a server writes a score to a script.
func (w *world) scoreText(f float64) string {
	if f == math.Trunc(f) || w.dialect.is(70200, 1) {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

// scoreOf reads a score, or a bound of scores. fine reports whether it is a number. What servers read in more than one
// way is refused.
func scoreOf(s string) (f float64, fine bool, err error) {
	f, err = strconv.ParseFloat(s, 64)
	if s == "" || strings.ContainsAny(s, "xX_() \t\n\v\f\r\x00") || errors.Is(err, strconv.ErrRange) {
		return 0, false, refusef("so odd a score")
	}
	return f, err == nil && !math.IsNaN(f), nil
}

// A scoreRange is from one score to another. Each end is included if it is whole.
type scoreRange struct {
	min, max           float64
	wholeMin, wholeMax bool
}

// scores parses a range of scores of the sorted set. fault is the reply if that is no range, or the key no sorted set.
func (w *world) scores(args []string) (r scoreRange, fault lua.Reply, err error) {
	low, openLow := strings.CutPrefix(args[0], "(")
	high, openHigh := strings.CutPrefix(args[1], "(")
	r.wholeMin, r.wholeMax = !openLow, !openHigh
	fine := false
	if r.min, fine, err = scoreOf(low); err == nil && fine {
		r.max, fine, err = scoreOf(high)
	}
	switch {
	case err != nil:
	case !fine:
		fault = notBounds
	case w.notSorted():
		fault = wrongType
	}
	return r, fault, err
}

// within reports whether the score of a member is in the range. A member that was there ends after now, so a range up to
// now tells nothing about what is left.
func (w *world) within(r scoreRange, m member) bool {
	if w.is.Kind == Permits && !(math.IsInf(r.min, -1) && math.IsInf(r.max, 1)) {
		w.lookAtScore(m)
	}
	now := float64(w.now.UnixMilli())
	if m.before && (r.min > now || r.max > now && !math.IsInf(r.max, 1)) {
		w.lookAtScore(m)
	}
	return (m.score > r.min || r.wholeMin && m.score == r.min) && (m.score < r.max || r.wholeMax && m.score == r.max)
}
