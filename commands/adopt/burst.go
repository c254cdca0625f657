package adopt

import "time"

// A Burst is a run of commands of one client that had all been received when the first of them ran, and of which none did
// more than ask about adopted locks. Any other command ends it, and so does reading more from the client. The zero Burst
// begins with the next command.
//
// It serves clients that poll over one connection: one question to the nodes may answer a whole burst. No reply rests on an
// answer that is older than its command, or older than what the client has changed or was told before. The rules are in
// integration/model/shared.
type Burst struct {
	began      time.Time // when the first command ran, or the client was given lastAnswer
	lastAnswer *flight   // the question whose answer the client was given last; nil: none
}

// A basis says on which answers of the nodes the reply to a call may rest, and on which it does.
type basis struct {
	burst Burst
	rests *flight // the one it rests on; nil: none yet
}

// newBurst returns a Burst that begins now: the answer to an earlier question does not count.
func newBurst() Burst { return Burst{began: time.Now()} }

func (b Burst) basis() *basis {
	if b.began.IsZero() {
		b = newBurst()
	}
	return &basis{burst: b}
}

// may reports whether the reply may rest on the answer to a question: one that was sent after the burst began, or the one
// whose answer the client was given last.
func (b *basis) may(fl *flight) bool {
	return fl == b.burst.lastAnswer || fl.began.After(b.burst.began)
}

// failed returns the burst after a call that failed with the error of an answer. Any other failure ends the burst: the call
// may have changed the lock.
func (b Burst) failed(rests *flight, err error) Burst {
	if rests == nil || rests.err != err {
		return Burst{}
	}
	return b.next(rests)
}

// next returns the burst after a call whose reply rests on an answer; nil ends it.
func (b Burst) next(rests *flight) Burst {
	switch rests {
	case nil:
		return Burst{}
	case b.lastAnswer:
		return b
	}
	return Burst{began: time.Now(), lastAnswer: rests}
}
