// Command several explores LOCKs of several names at once: one message to each node asks for all of them, and the node grants all or none.
// Each name has a lock record, a fence, and a hold of its own there; all that comes later, which is settling, undo, UNLOCK and RENEW, is
// of one name, as for a LOCK of that name alone. That is the exclusive lock of decision 0031; messages are executed late or never, in any order.
//
// Owners want names, each as -kinds has it:
//
//	A, D  both names                              a, b  the first name; the second
//	H     both, and has been granted them at the start: on two nodes, the third has not heard of it
//	K     the same, and renews the second name only, if it renews
//	S     both, and the nodes have its hold of the second name for a tick less: a RENEW has shortened that meanwhile
//	e     has been granted the second name at the start, and asks for both
//	c     has been granted both, and asks for them again
//	r     both, and when that is over the first name
//
// The promises:
//
//	X: no two owners are inside a validity of one name
//	G: when a LOCK is told granted, a quorum has its hold of each of its names, and gives no later grant the fence that it is told
//	F: a fence of a name is above all that were told for that name before, except where the owner is told the grant that it has
//	T: a LOCK is told that a name is held only if a quorum has named one other owner of it
//	M: no LOCK is refused because a name is another's whose LOCK is refused for that reason itself
//	N: a LOCK that was refused leaves nothing on a node where no undo of it is under way. Not where messages are executed twice
//	L: once a LOCK was told, and while its validity runs, a node that has executed everything has each name that was not given back, under its fence, or a
//	   RENEW may reinstate it there. Looked at only for H
//	R: where a RENEW of a name succeeds, and the name was not given back, nobody else was told it since it was told
//	Z: no RENEW of a name succeeds that is asked for after the UNLOCK of the name was answered
//
// Every rule is a flag; -broken NAME takes one away. The design is docs/decisions/0039.
//
// To have fewer states: a LOCK whose time is over counts as undone, a message that would change nothing is as good as one that is never
// executed, and what was before a record is forgotten when nothing can ask for it.
package main
