// Package lockcmd decides what a lock verb says, and does it: LOCK, RENEW, UNLOCK, those of
// several names (LOCKALL, RENEWALL, UNLOCKALL) and LOCKCTL of all clients.
//
//   - [Verbs] is what all clients share, and [Client] what the verbs know of one: its
//     implicit owners, its locks with SESSION, and the LOCK that waits.
//   - [Connection] is all that the verbs need of a client's connection.
//   - [Limits] parse LOCK, RENEW and UNLOCK, and those of several names.
//   - [Pending] is a LOCK that waits, with the commands behind it. Their order is package
//     commands' matter.
//   - [Augment] adds the verbs to the upstream's replies to COMMAND.
//
// The only goroutines are those that ask for LOCKs which wait, for which [Verbs.Wait] waits, and those that a RENEWALL or
// UNLOCKALL for locks of several owners waits for.
// Errors are texts of replies, "ERR " first, those that [AppendError] knows, or what a
// Connection has returned.
package lockcmd
