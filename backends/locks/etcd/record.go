package etcd

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A record is the value of the key of a name that is held.
type record struct {
	Owner []byte `json:"owner"`
	Info  []byte `json:"info,omitempty"`
	Open  bool   `json:"open,omitempty"`  // the lease has no end
	All   bool   `json:"all,omitempty"`   // of an intent: it keeps everybody out, and not readers only
	Seat  int    `json:"seat,omitempty"`  // of a permit, counted from 1; 0: it is none
	Base  int64  `json:"base"`            // the fence is this plus the revision of the grant
	Grant int64  `json:"grant,omitempty"` // that revision; 0: the one that wrote this
	Since int64  `json:"since"`           // when it was granted, see hold.At
	Holds []hold `json:"holds"`
	Op    string `json:"op"` // the change that wrote this
}

// A hold is one LOCK that was granted.
type hold struct {
	ID    string `json:"id"`
	Tag   string `json:"tag,omitempty"`  // of its request
	N     int    `json:"n,omitempty"`    // how often it was renewed
	TTL   int64  `json:"ttl"`            // in milliseconds, from when it was written
	At    int64  `json:"at"`             // when that was, in milliseconds since 1970 by the clock of the proxy: for people
	Taken int64  `json:"taken"`          // when it was taken, like At
	Over  bool   `json:"over,omitempty"` // it has ended; an UNLOCK may still mean it
}

func (h *hold) ttl() time.Duration { return time.Duration(h.TTL) * time.Millisecond }

// A release is the grant of a name that was given back last.
type release struct {
	Owner []byte `json:"owner"`
	Fence int64  `json:"fence"`
	Op    string `json:"op"`
}

// A requested is what is remembered of a request with an id.
type requested struct {
	Over     int64  `json:"over,omitempty"` // the fence of its LOCK, which is over; 0: it is not
	Unlocked bool   `json:"unlocked,omitempty"`
	Left     int    `json:"left,omitempty"` // what its UNLOCK was answered
	Op       string `json:"op"`
}

// fence is that of the grant, in a record that was written by this revision.
func (r *record) fence(revision int64) int64 {
	if r.Grant != 0 {
		revision = r.Grant
	}
	return r.Base + revision
}

func nowMS() int64 { return time.Now().UnixMilli() }

func newHold(id, tag string, ttl time.Duration) hold {
	now := nowMS()
	return hold{ID: id, Tag: tag, TTL: ttl.Milliseconds(), At: now, Taken: now}
}

// renewed is the hold with a new end.
func (h hold) renewed(ttl time.Duration) hold {
	h.N, h.TTL, h.At = h.N+1, ttl.Milliseconds(), nowMS()
	return h
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // no field can fail
	}
	return text
}

// decode reads a value; nil if there is none.
func decode[T any](kv *keyValue) (*T, int64, error) {
	if kv == nil {
		return nil, 0, nil
	}
	v := new(T)
	if err := json.Unmarshal(kv.Value, v); err != nil {
		return nil, 0, fmt.Errorf("the key %.100q was not written by lockproxy: %w", kv.Key, err)
	}
	return v, kv.Mod, nil
}

// keys are those of one prefix.
type keys struct{ prefix string }

const hashed = 16 // hex digits in front of a name, in whose order names are listed

// What follows the digits in the key of a name, of one who reads it, and of a writer who waits for those. All are below a zero, and so
// below the digits that follow in the order of keys.
const (
	isName   = '/'
	isReader = '+'
	isIntent = '-'

	endOfName = "0" // is above all that a name has
)

// digits are those of a name.
func (k keys) digits(at locks.Key) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(at.DB) + ":" + at.Name))
	return k.locks() + hex.EncodeToString(sum[:])[:hashed]
}

// lock is the key of a name, or of one who reads it. The digits in front make a cursor short.
func (k keys) lock(at locks.Key) []byte {
	if at.Reader != "" {
		return []byte(k.readers(at) + digest(at, at.Reader, ""))
	}
	return []byte(k.digits(at) + string(isName) + strconv.Itoa(at.DB) + ":" + at.Name)
}

// readers is what the keys of all who read a name begin with. The length in it tells the name from what follows.
func (k keys) readers(at locks.Key) string {
	return k.digits(at) + string(isReader) + strconv.Itoa(at.DB) + ":" + strconv.Itoa(len(at.Name)) + ":" + at.Name + "/"
}

func (k keys) intent(at locks.Key) []byte {
	return []byte(k.digits(at) + string(isIntent) + strconv.Itoa(at.DB) + ":" + at.Name)
}

func (k keys) locks() string { return k.prefix + "/lock/" }

// seats is the prefix of the keys of all seats of a name. The number of the seat follows it.
func (k keys) seats(at locks.Key) string {
	return k.prefix + "/seat/" + digest(at.Whole(), "", "") + "/"
}

func (k keys) seat(at locks.Key, number int) []byte {
	return []byte(k.seats(at) + strconv.Itoa(number))
}

// parseLock reads what lock, readers and intent wrote: the name, and what the key is of it. It is not ok if they did not.
func (k keys) parseLock(key []byte) (at locks.Key, kind byte, ok bool) {
	rest, ours := strings.CutPrefix(string(key), k.locks())
	if !ours || len(rest) <= hashed {
		return at, 0, false
	}
	kind = rest[hashed]
	db, name, found := strings.Cut(rest[hashed+1:], ":")
	n, err := strconv.Atoi(db)
	if kind == isReader && found {
		var length string
		length, name, _ = strings.Cut(name, ":")
		of, alsoErr := strconv.Atoi(length)
		if err = errors.Join(err, alsoErr); err != nil || of < 0 || of >= len(name) {
			return at, 0, false
		}
		name = name[:of]
	}
	at = locks.Key{DB: n, Name: name}
	ok = found && err == nil && name != "" && (kind == isName || kind == isReader || kind == isIntent)
	return at, kind, ok && strings.HasPrefix(string(key), k.digits(at))
}

// Keys beside that of a name: of the grant released last, of the last grant of an owner, of a change that is done once, of a request, and of
// leases that were cut.
func (k keys) released(at locks.Key) []byte { return []byte(k.prefix + "/last/" + digest(at, "", "")) }
func (k keys) granted(h locks.Holder) []byte {
	return []byte(k.prefix + "/owner/" + digest(h.Key, h.Owner, ""))
}
func (k keys) once(id string) []byte     { return []byte(k.prefix + "/once/" + id) }
func (k keys) request(tag string) []byte { return []byte(k.prefix + "/req/" + tag) }
func (k keys) cut(at locks.Key) []byte   { return []byte(k.cuts() + digest(at, "", "")) }
func (k keys) cuts() string              { return k.prefix + "/cut/" }
func (k keys) floor() []byte             { return []byte(k.prefix + "/floor") }
func (k keys) notices() string           { return k.prefix + "/notice/" }
func (k keys) notice(id string) []byte   { return []byte(k.notices() + id) }
func after(prefix string) (end []byte)   { end = []byte(prefix); end[len(end)-1]++; return end }

// tagOf is that of a request, empty if it has no id. What it begins with is the same for all names.
func tagOf(h locks.Holder, r string) string {
	if r == "" {
		return ""
	}
	return digest(locks.Key{DB: h.DB}, h.Owner, r)[:groupDigits] + digest(h.Key, h.Owner, r)
}

const groupDigits = 16

// digest tells apart what it is of.
func digest(at locks.Key, owner, req string) string {
	b := binary.AppendVarint(nil, int64(at.DB))
	for _, part := range []string{at.Name, at.Reader, owner, req} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(b)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:20]))
}

// A view is a name as a decision sees it.
type view struct {
	rec   *record // nil: nobody has the name
	mod   int64   // the revision that wrote it
	fence int64
	holds []liveHold // those that have not ended; the record may have others

	last    *release
	lastMod int64
	granted int64 // the revision of the owner's last grant, if it named itself
	req     *requested
	reqMod  int64

	beside beside

	resent bool // the change that is being decided may have been made before what is seen
	now    time.Duration
}

// A liveHold is a hold with what this proxy knows of its end.
type liveHold struct {
	hold
	end   time.Duration // it has ended then for sure
	valid time.Duration // the owner was told so by this proxy; 0: another one wrote it
}

// held reports whether owner has the name, under this fence if that is not 0.
func (v *view) held(owner string, fence int64) bool {
	return len(v.holds) > 0 && string(v.rec.Owner) == owner && (fence == 0 || v.fence == fence)
}

// count is how many LOCKs the holds are of: the attempts of one request are one.
func (v *view) count() int { return countHolds(v.holds) }

func countHolds(holds []liveHold) (n int) {
	for i, h := range holds {
		if h.Tag == "" || !slices.ContainsFunc(holds[:i], func(x liveHold) bool { return x.Tag == h.Tag }) {
			n++
		}
	}
	return n
}

func (v *view) hasTag(tag string) bool {
	return slices.ContainsFunc(v.holds, func(h liveHold) bool { return h.Tag == tag })
}

func (v *view) isLive(id string) bool {
	return slices.ContainsFunc(v.holds, func(h liveHold) bool { return h.ID == id })
}

// has reports whether there is a hold, be it one that has ended.
func (v *view) has(id string) bool {
	return v.rec != nil && slices.ContainsFunc(v.rec.Holds, func(h hold) bool { return h.ID == id })
}

// rest is what is left of the holds for sure: they may end before, not after.
func (v *view) rest() (rest time.Duration) {
	for _, h := range v.holds {
		rest = max(rest, h.end-v.now)
	}
	return rest
}

// shown is what is left of a hold by the clock of the proxy that wrote it, as people are told. A proxy whose clock is
// wrong, or that is gone, does not make it more than is known, nor nothing.
func (h *liveHold) shown(now time.Duration) time.Duration {
	rest := h.end - now
	if byClock := time.Duration(h.At+h.TTL-nowMS()) * time.Millisecond; h.valid == 0 && byClock > 0 {
		rest = min(rest, byClock)
	}
	return rest
}

// remaining is what is left of the lease, as people are told.
func (v *view) remaining() (rest time.Duration) {
	for _, h := range v.holds {
		rest = max(rest, h.shown(v.now))
	}
	return rest
}

// validUntil is the last end of these holds that this proxy told their owner; 0: it told none.
func (v *view) validUntil(ids []string) (until time.Duration) {
	for _, h := range v.holds {
		if slices.Contains(ids, h.ID) {
			until = max(until, h.valid)
		}
	}
	return until
}

// refusal is the answer to a LOCK where another owner has the name, or may not re-enter.
func (v *view) refusal() locks.Decision {
	if len(v.holds) == 0 {
		return locks.Decision{}
	}
	return locks.Decision{Holder: string(v.rec.Owner), Remaining: v.remaining(), Fence: v.fence}
}

// notHeld is the error of a RENEW or an UNLOCK of an owner that does not have the grant.
func (v *view) notHeld(owner string) error {
	switch own := v.beside.own; {
	case own != nil && own.held(owner, 0):
		return locks.ErrOnlyReads
	case len(v.holds) > 0 && string(v.rec.Owner) != owner:
		return &locks.NotOwnerError{Remaining: v.remaining()}
	}
	return locks.ErrLost
}

// with is the record with these holds in place of its own, nil if all have ended. It stays the same grant.
func (v *view) with(holds []hold) *record {
	if !slices.ContainsFunc(holds, func(h hold) bool { return !h.Over }) {
		return nil
	}
	r := *v.rec
	r.Grant, r.Holds = v.fence-r.Base, holds
	return &r
}

// all are the holds of the record, in the order in which they were taken, with those marked that have ended.
func (v *view) all() []hold {
	if v.rec == nil {
		return nil
	}
	all := slices.Clone(v.rec.Holds)
	for i := range all {
		all[i].Over = !v.isLive(all[i].ID)
	}
	return all
}
