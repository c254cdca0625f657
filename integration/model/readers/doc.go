// Command readers explores readers and writers of one name, where a reader's lock is an exclusive lock of a sub-name that
// its owner has alone, with a counter of its own; nodes refuse, number and put back with a look at the other records of the name.
//
// Owners want the name, each as -kinds has it:
//
//	r, w  reads; writes                     h  reads, and has been granted that at the start
//	u     reads, and asks to write then     o  reads, and did so before; that lease has lapsed
//	d     writes, and asks to read then     a  reads, and once more when that is over
//	b     asks for both at once             e  reads, and enters again
//
// What was granted may be given back or lapse; LOCKs may be undone. Messages are executed late or never, in any order. Undo and settling
// are those of 0031: both may lower a counter.
//
// The promises:
//
//	P1: nobody else is inside a validity while a writer is
//	F1: a writer's fence is above all that others were told before, and above those of its owner before it asked
//	F2: a reader's fence is not below that of a writer who was told before, when it is granted, or renewed and not given back
//	F3: the fences of an owner's reads increase from grant to grant
//	Z: no RENEW succeeds that is asked for after the UNLOCK was answered
//
// Every rule is a flag; -broken NAME takes one away. Three of them are needed beside what was drawn up: beside-lock, beside-settle
// and above-floor. No search found a use for these alone: back-name (back-late shows it where a renewal may be told too late),
// in-time, back-raises, first, and back-writer (back-any shows it without back-name: where a writer's record is, the name's counter is larger).
// Intents (-intents) grant nothing: safety is searched with them, but nothing is promised of them.
package main
