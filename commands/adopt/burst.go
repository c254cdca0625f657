package adopt

import "time"

// A Burst is the latest commands of one client that had all come when the first of them ran, and of which none has
// done more than ask about adopted locks. The zero Burst begins with the next command. Each command but such a one
// ends it, and so does whatever is read from the client.
//
// It is for clients that send everything over one connection, and poll: one question to the nodes answers a burst of
// them. Each reply rests on an answer that is not older than its command, and none on one that is older than what
// the client has changed or was told before; the rules are in integration/model/shared.
type Burst struct {
	began time.Time // or when the client was given the answer to told
	told  *flight   // the latest question whose answer it was given; nil: none
}

// A basis is what the reply to a call of a burst may rest on, and does.
type basis struct {
	burst Burst
	rests *flight // nil: on nothing yet
}

// newBurst begins now: answers to questions that were sent before do not count.
func newBurst() Burst { return Burst{began: time.Now()} }

func (b Burst) basis() *basis {
	if b.began.IsZero() {
		b = newBurst()
	}
	return &basis{burst: b}
}

// may reports whether the call may be given the answer to a question: it was sent when the call had come, and, but for one
// that the client was given before, when that was answered.
func (b *basis) may(fl *flight) bool { return fl == b.burst.told || fl.began.After(b.burst.began) }

// failed is the burst behind a call that an answer has failed. Any other failure ends it: the call may have changed the lock.
func (b Burst) failed(rests *flight, err error) Burst {
	if rests == nil || rests.err != err {
		return Burst{}
	}
	return b.next(rests)
}

// next is the burst behind a call that rests on an answer.
func (b Burst) next(rests *flight) Burst {
	switch rests {
	case nil:
		return Burst{}
	case b.told:
		return b
	}
	return Burst{began: time.Now(), told: rests}
}
