package idiom

import (
	"bytes"
	"slices"
	"time"
)

// Replies are all replies that a call may have, and what it has done when it has them. So the reply of a server that ran
// the call tells whether it has changed anything there.
type Replies struct {
	Ops  []Op // what it may do, each once
	rows []possibleReply
}

// A possibleReply is a reply, and what a call has done that has it.
type possibleReply struct {
	do     Do
	reply  []byte // nil: it depends on what is in the key
	begins string // then: what all such replies begin with
}

// samples are states that a call is run over: two of each sort whose values, ends or counts are different, so that
// replies which tell of these are found.
func (c *Call) samples(kind Kind, now time.Time) (sorts [][]State) {
	values := slices.Compact(slices.Sorted(slices.Values(c.tokens(now))))
	of := func(values []string, left []time.Duration, counts ...int) {
		var sort []State
		for _, v := range values {
			for _, l := range left {
				for _, n := range counts {
					sort = append(sort, State{Kind: kind, Value: v, Left: l, Count: n})
				}
			}
		}
		sorts = append(sorts, sort)
	}
	sorts = [][]State{{{}, {}}}
	owners := [][]string{{sampleOther, sampleOther + " of another length"}}
	for _, v := range values {
		owners = append(owners, []string{v})
	}
	ends, endless := []time.Duration{sampleLeft, 1234 * time.Millisecond}, []time.Duration{Forever}
	for _, o := range owners {
		for _, left := range [][]time.Duration{ends, endless} {
			switch {
			case kind == Sorted && left[0] == Forever:
				continue
			case kind != Hash:
				of(o, left, 0)
				continue
			}
			of(o, left, 1)
			of(o, left, 2, 3, 11)
		}
	}
	return sorts
}

// Replies runs a call over all states that it may meet. It is refused if it fails in one of them, or if a call that has
// changed the lock may answer what one answers that has not.
func (c *Call) Replies(now time.Time) (*Replies, *Refusal) {
	rows, _ := c.Accept(now)
	r := &Replies{}
	for _, sort := range c.samples(rows.Kind(), now) {
		if err := r.add(c, sort, now); err != nil {
			return nil, err
		}
	}
	for _, changed := range r.rows {
		for _, same := range r.rows {
			switch {
			case changed.do == Nothing:
			case changed.kind() == "-":
				return nil, refusef("it may answer an error when it has changed the lock")
			case same.do == Nothing && changed.overlaps(&same):
				return nil, refusef("its reply does not tell whether it has changed the lock")
			}
		}
	}
	return r, nil
}

// May reports whether the call does that in some state.
func (r *Replies) May(do Do) bool {
	return slices.ContainsFunc(r.Ops, func(op Op) bool { return op.Do == do })
}

// add runs a call over states of one sort, at two moments.
func (r *Replies) add(c *Call, states []State, now time.Time) *Refusal {
	seen := map[Do][]possibleReply{}
	for i, state := range states {
		out, err := c.Run(state, now.Add(time.Duration(i)*1234567*time.Microsecond))
		if err != nil {
			return asRefusal(err)
		}
		if out.Op.Do == Replace && out.LeftRead {
			return refusef("it would replace a lock for what is left of its lease")
		}
		if !slices.Contains(r.Ops, out.Op) {
			r.Ops = append(r.Ops, out.Op)
		}
		t := possibleReply{do: out.Op.Do, reply: out.Reply}
		if out.LeftRead && state.Kind != Absent && state.Left != Forever {
			t.reply, t.begins = nil, t.kind()
		}
		seen[t.do] = append(seen[t.do], t)
	}
	for _, all := range seen {
		vary := slices.ContainsFunc(all, func(t possibleReply) bool { return !bytes.Equal(t.reply, all[0].reply) })
		for _, t := range all {
			if vary && t.reply != nil {
				t.begins = t.kind()
				t.reply = nil
			}
			if !slices.ContainsFunc(r.rows, func(o possibleReply) bool {
				return o.do == t.do && o.begins == t.begins && (o.reply == nil) == (t.reply == nil) && bytes.Equal(o.reply, t.reply)
			}) {
				r.rows = append(r.rows, t)
			}
		}
	}
	return nil
}

// kind returns the kind of a reply: its first byte, or "_" for a null.
func (t *possibleReply) kind() string {
	if t.reply == nil {
		return t.begins
	}
	return replyKind(t.reply)
}

func replyKind(reply []byte) string {
	switch {
	case len(reply) == 0:
		return ""
	case bytes.HasPrefix(reply, []byte("$-1")), bytes.HasPrefix(reply, []byte("*-1")):
		return "_"
	}
	return string(reply[:1])
}

// overlaps reports whether two may be the same reply.
func (t *possibleReply) overlaps(o *possibleReply) bool {
	if t.reply != nil && o.reply != nil {
		return bytes.Equal(t.reply, o.reply)
	}
	return t.kind() == o.kind()
}

// Did returns what a call may have done that has this reply. If it is an error, that is Nothing. nil: the call never has
// this reply.
func (r *Replies) Did(reply []byte) (did []Do) {
	got := possibleReply{reply: reply}
	for _, t := range r.rows {
		if t.overlaps(&got) && !slices.Contains(did, t.do) {
			did = append(did, t.do)
		}
	}
	if did == nil && got.kind() == "-" {
		return []Do{Nothing}
	}
	return did
}
