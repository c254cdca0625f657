package vote

// An End is what became of a question to all nodes: an index of Ends.
type End uint8

const (
	EndGranted   End = iota // acquire: a quorum granted it
	EndDone                 // a quorum did it, or answered
	EndHeld                 // another owner has the name
	EndLost                 // the owner has it no more
	EndSplit                // a quorum voted, and nobody has a majority
	EndRepeat               // it had been done before
	EndConflict             // the nodes know of another renewal or hold
	EndLate                 // granted, when the lease was over
	EndUnsettled            // granted, but a quorum did not take the fence
	EndNoQuorum             // too few voted
	EndCanceled             // nobody waited for it any more
)

// Ends are their names.
var Ends = [...]string{"granted", "done", "held", "lost", "split", "repeat", "conflict", "late", "unsettled", "noquorum", "canceled"}

// EndOf is the end of a round that is done or has too few votes. err is that of waiting.
func EndOf(err error, done bool) End {
	switch {
	case err != nil:
		return EndCanceled
	case done:
		return EndDone
	}
	return EndNoQuorum
}
