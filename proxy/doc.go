// Package proxy serves clients: it accepts connections, bounds what they may send and how
// much output may wait for them, notices when they leave, and lets them finish when the
// server drains.
//
// What a client sent is cut into requests by package request; what a request means is
// decided in package commands. A [Server] owns one goroutine per client, the reader. There
// is a second one while a command waits for something other than a lock that another owner
// has, the worker, and a third while the client does not read its replies, the writer. While
// the backlog is full another one looks whether the client has left. Serve returns when all
// have ended.
//
// # A session's reader and worker
//
// The parser and the commands.Session have one owner at a time:
//
//	         a command may wait
//	READER ──────────────────────▶ WORKER ◀───────────────┐
//	owns                           owns; runs it, then    │ more input, or the
//	  ▲                            the backlog            │ LOCK is answered
//	  │   backlog empty,             │   │                │
//	  │   no LOCK waits              │   │ backlog empty, │
//	  └──────────────────────────────┘   │ a LOCK waits   │
//	                                     └──────▶ PARKED ─┘
//	                                     owns, has no goroutine
//
// The reader reads all the time, so it notices at once when the client leaves. While it is
// not the owner it adds what it reads to the backlog. Ownership changes hands under the
// session's mutex: it is the worker's while working is set. Only the reader sets working,
// only the worker clears it, and only when the backlog is empty, so no input is left behind.
//
// # The end of a session
//
//	client closes, or is disconnected:  the client gets replies for closeGrace more
//	server drains:                      input until drainQuiet of silence, or what has arrived
//	                                    by drainDeadline; replies until DrainTimeout, then
//	                                    hangUpGrace for the client to close
package proxy
