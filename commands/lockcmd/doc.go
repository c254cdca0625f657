// Package lockcmd decides what a lock verb says, and does it: LOCK, RENEW, UNLOCK and
// LOCKCTL of all clients.
//
//   - [Verbs] is what all clients share, and [Client] what the verbs know of one: its
//     implicit owners, its locks with SESSION, and the LOCK that waits.
//   - [Connection] is all that the verbs need of a client's connection.
//   - [Limits] parse LOCK, RENEW and UNLOCK.
//   - [Pending] is a LOCK that waits, with the commands behind it. Their order is package
//     commands' matter.
//   - [Augment] adds the verbs to the upstream's replies to COMMAND.
//
// The only goroutines are those that ask for LOCKs which wait; [Verbs.Wait] waits for them.
// Errors are texts of replies, "ERR " first, those that [AppendError] knows, or what a
// Connection has returned.
package lockcmd
