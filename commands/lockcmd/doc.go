// Package lockcmd holds what the lock verbs mean apart from a client's connection: the
// arguments of LOCK, RENEW, UNLOCK and LOCKCTL, what a connection remembers of its
// locks, and the replies.
//
//   - [Limits] parse LOCK, RENEW and UNLOCK.
//   - [Owners] are the implicit owners of the locks that a connection took, and [Sessions]
//     its locks with SESSION.
//   - [Pending] is a LOCK that waits, with the commands behind it.
//   - [Ctl] answers LOCKCTL, for a [Viewer].
//   - [Augment] adds the verbs to the upstream's replies to COMMAND.
//
// It starts no goroutine: what it runs ends before the call returns, or, as [Pending.Ask],
// when the context does. Errors are texts of replies, "ERR " first, or those of package
// locks; package commands turns them into replies.
package lockcmd
