// Command permits explores permits of one name: readers' locks of which each has a seat, so that there are at most as many as seats.
// A grant names its seat, which the proxy proposed that asked for it; a node gives a seat that no record of another owner has, as an index of
// seats tells it. The rest is that of the package readers: a lock of a sub-name that the owner has alone, undo and settling as in
// decision 0031, messages that are executed late or never, in any order.
//
// Owners want the name, each as -kinds has it:
//
//	p, q  a permit in the first seat; in the second     r, w  reads; writes
//	h     as p, and has been granted that at the start  y  as h, and asks to read then
//	g     as h, and enters again through a proxy that proposes the other seat; e  the same, not granted at the start
//	c     as h, and asks for it again at any time       a  a permit, and one in the other seat when that is over
//	b     asks for both seats at once                   x  reads, and asks for a permit then
//	s     as p, and has left a LOCK behind, on the way to one node, that proposed the other seat; t  and one more, for its own
//	m     asks for writing and a permit at once         u, d  a permit, and asks to write then; the other way round
//
// The promises:
//
//	S: no two owners are inside a validity in one seat
//	K: a permit that is told has a seat
//	P: nobody else is inside a validity while a writer is
//	F: a permit's fence is above all that anybody was told before it was asked for
//	F1: a writer's fence is above all that others were told before, and above those of its owner before it asked
//	F2: the fence of a permit or a reader is not below that of a writer who was told before, when it is granted, or renewed and not given back
//	R: where a RENEW succeeds, and the lock was not given back, nobody else was told its seat since it was told, and no writer the name
//	Z: no RENEW succeeds that is asked for after the UNLOCK was answered
//
// Every rule is a flag; -broken NAME takes one away. No search found a use for these alone: back-name and in-time (back-late is both),
// drop-lapsed (revived is that with look-again) and index-own (revived-index is that with drop-lapsed). renew-grant shows with sp and renewals, after more states than
// the tests may visit.
//
// To have fewer states: a LOCK whose time is over counts as undone, a message that would change nothing, or only keep others from doing
// something, is as good as one that is never executed, and what was before a record is forgotten when nothing can ask for it.
package main
