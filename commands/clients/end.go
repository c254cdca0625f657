package clients

import "sync/atomic"

// A Why is the reason for which a client was disconnected.
type Why int32

const (
	WhyNot      Why = iota // it was not
	WhyQuit                // QUIT
	WhyProtocol            // it broke the protocol
	WhyKilled              // CLIENT KILL
	WhyLock                // a lock with SESSION was lost, and its LOCK did not ask for a push instead
	WhyUpstream            // what it had at the upstream is lost, or it is let in there no more
	WhyOutput              // more replies wait for earlier ones than may
)

var whys = [...]string{"", "quit", "protocol", "killed", "lost_lock", "upstream", "output"}

// String is one word; empty for WhyNot.
func (w Why) String() string { return whys[w] }

// An End is whether, and why, a client's session ends. The zero value is that of one that does
// not. It is safe for concurrent use.
type End struct {
	ended atomic.Bool
	why   atomic.Int32 // a Why
}

// Because notes why the session will end. The first reason counts.
func (e *End) Because(why Why) { e.why.CompareAndSwap(int32(WhyNot), int32(why)) }

// Now ends the session: nothing more may run.
func (e *End) Now(why Why) {
	e.Because(why)
	e.ended.Store(true)
}

// Ended reports whether nothing more may run.
func (e *End) Ended() bool { return e.ended.Load() }

// Why is the reason, also of an end that is still to come.
func (e *End) Why() Why { return Why(e.why.Load()) }
