// Command recover explores how a lock node that forgot votes again after seconds: it waits until no round counts it any more,
// copies from a quorum what they hold, and abstains for the names that were held.
//
// A node that forgot is out. It waits for R, the longest that a round may take: a LOCK is granted, a RENEW told and FORCE or
// UNLOCK answered only while the round is younger. Then a proxy reads a quorum of nodes that are not out, and the node is back,
// with a marker for the name if one of them had a hold of it, or a marker, and with the largest fence that they have stored as
// its floor. Under the marker it has no vote about the name, but counts where FORCE is executed. A release takes its hold out of the
// marker, and the last one ends it, as does the longest lease that was read. With -long a node may also be back without a copy, when
// the longest lease is over.
//
// Nothing is put back at or under the floor, since the node may have forgotten why not. With -carry a RENEW that a quorum of
// other nodes has done restores its grant there, whether the marker is still there or not: the node has a record again. With
// -saves a node does not forget everything but goes back to what it had once, as from an older RDB. Then a record at or under
// the floor counts as none, and its largest fence stays. Markers are not saved: they would do no more than abstain.
//
// One name. Each owner wants it as -kinds has it:
//
//	a  by LOCK             h  has been granted it at the start, by a bare quorum
//	b  by LOCK, and again  e  the same, by all nodes
//	r  as a reader         s  has been granted it as a reader, by a bare quorum
//
// The first LOCK may be kept by renewals, and ended by an operator whose FORCE its owner does not hear of; so would an UNLOCK at
// another proxy. Messages are executed late, also when the node has forgotten since, or never; answers are lost with -lossy.
//
// The promises:
//
//	P1: at most one owner is inside a validity, or readers are; FORCE voids it when it is asked for
//	P2: a grant's fence is above all that were told before, or a reader's not below those of others; a LOCK is told the fence of
//	    its owner's grant only if no later one was told
//	R:  where a RENEW succeeds, and the lock was not ended, no later fence was told
//	Z:  no RENEW succeeds that is asked for after FORCE was answered
//	M:  a node marks no name for a hold that was given back there since it forgot
//
// Every rule is a flag; -broken NAME takes one away. No search found a use for these alone: back-out (back-ghosts is that with
// ghosts), largest, and carry-reading: a node could restore a grant while it is copied to. What carry-known is for shows only
// where a round may last for more than one tick: a RENEW that is under way when FORCE is answered, and told when the node is back.
//
// Beyond the tests these were visited to the end, and no promise is broken:
//
//	-kinds haa                                                   2.2 million states
//	-kinds aa -losses 2 -lossy -long                             2.4
//	-kinds sra                                                   1.9
//	-kinds hb                                                   14.4
//	-kinds ha -renewals 1 -ends -losses 2                        6.0
//	-kinds ha -ttl 3 -r 2 -renewals 1 -carry -ends               4.1
//	-kinds e -ttl 3 -renewals 2 -carry -ends -losses 2 -saves 1  2.2
//	-kinds e -ttl 4 -r 2 -renewals 2 -carry -ends -losses 2      1.3
//	-n 5 -kinds ha -renewals 1                                   2.6
//	-n 5 -kinds ha -losses 2                                    10.9
//
// To have fewer states: a round whose time is over counts as given up, and a lock whose validity has ended as given back; a
// message that would change nothing is as good as one that is never executed.
package main
