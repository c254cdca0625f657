package idiom

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// shareStates are the states of a read/write lock that a call is tried on; mine is a field that may be the caller's.
func shareStates(mine string) []namedState {
	me, _ := threadOf(mine)
	of := func(s State) State {
		s.Kind, s.Left = ReadWrite, sampleLeft
		return s
	}
	return []namedState{
		{"absent", State{}},
		{"mine reads", of(State{Reader: me, Reads: 1})},
		{"mine reads twice", of(State{Reader: me, Reads: 2})},
		{"other reads", of(State{Reader: sampleOther, Reads: 1})},
		{"mine and others read", of(State{Reader: me, Reads: 1, Others: true})},
		{"mine writes", of(State{Value: me, Count: 1})},
		{"mine writes twice", of(State{Value: me, Count: 2})},
		{"mine writes and reads", of(State{Value: me, Count: 1, Reader: me, Reads: 1})},
		{"other writes", of(State{Value: sampleOther, Count: 1})},
	}
}

// asksForMode reports whether the call looks for the mode of a read/write lock.
func (c *Call) asksForMode(now time.Time) bool {
	w := c.world(State{}, now)
	_, _ = c.run(w)
	return w.modeRead
}

// acceptShares is accept for a lock that several may have: it takes the first token with which something is done to it, and else one with which
// it is not clear what is done.
func (c *Call) acceptShares(kind Kind, tokens []string, now time.Time) (best Rows, class Class) {
	for _, mine := range tokens {
		rows := c.rows(kind, mine, now, nil)
		its := rows.class()
		if best == nil || its == Unclear {
			best, class = rows, its
		}
		if its != Unclear && its != ReadOnly {
			return rows, its
		}
	}
	return best, class
}

// Shares reports whether calls of the class are for a lock that several may have: a read/write lock, or a semaphore.
func (c Class) Shares() bool {
	switch c {
	case ReaderAcquire, ReaderRelease, ReaderExtend, WriterAcquire, WriterRelease:
		return true
	}
	return c.Permits()
}

// Permits reports whether calls of the class are for a semaphore.
func (c Class) Permits() bool { return c == PermitAcquire || c == PermitRelease || c == PermitExtend }

// shareClasses are what calls do in each of shareStates.
var shareClasses = map[string]Class{
	"enter/r enter/r enter/r enter/r enter/r enter/r enter/r enter/r -": ReaderAcquire,
	"- release/r leave/r - release/r - - release/r -":                   ReaderRelease,
	"- renew/r renew/r - renew/r - - renew/r -":                         ReaderExtend,
	"enter/w - - - - enter/w enter/w enter/w -":                         WriterAcquire,
	"- - - - - release/w leave/w release/w -":                           WriterRelease,
	"- - - - - renew/w renew/w renew/w -":                               ReentrantExtend,
	"- release release release release - - - -":                         ForceRelease,
	"- - - - - release release release release":                         ForceRelease,
	"- release release release release release release release release": ForceRelease,
	"- - - - - - - - -":                                                 ReadOnly,
}

func (rows Rows) shareClass() Class {
	var does []string
	for _, r := range rows {
		does = append(does, r.Outcome.Op.share())
	}
	return cmp.Or(shareClasses[strings.Join(does, " ")], Unclear)
}

// share says what is done to whose share of a read/write lock.
func (op Op) share() string {
	switch {
	case op.Do == Nothing:
		return "-"
	case op.Value == "":
		return op.Do.String()
	case op.Shared:
		return op.Do.String() + "/r"
	}
	return op.Do.String() + "/w"
}

// Thread is the thread for which a call asks for a read/write lock, gives it back or extends it; empty: none.
func (c *Call) Thread(now time.Time) (string, *Refusal) {
	thread := ""
	for _, s := range []State{
		{},
		{Kind: ReadWrite, Reader: sampleOther, Reads: 1, Left: sampleLeft},
		{Kind: ReadWrite, Value: sampleOther, Count: 1, Left: sampleLeft},
	} {
		w := c.world(s, now)
		if _, err := c.run(w); err != nil {
			return "", asRefusal(err)
		}
		if w.shares == nil {
			continue
		}
		for _, field := range slices.Concat(w.shares.asked, w.shares.entering()) {
			its, _ := threadOf(field)
			switch {
			case strings.HasPrefix(field, "\x00") || its == thread:
			case thread != "":
				return "", refusef("several threads of a read/write lock")
			default:
				thread = its
			}
		}
	}
	return thread, nil
}

// entering are the fields that the run has made.
func (r *shares) entering() (fields []string) {
	for _, s := range r.changed() {
		fields = append(fields, s.field)
	}
	return fields
}
