// Package proxy serves clients: it accepts connections, bounds what they may send and how
// much output may wait for them, notices when they leave, and lets them finish when the
// server drains.
//
// What a client sent is cut into requests by package request; what a request means is
// decided in package commands. A [Server] owns as many event loops as goroutines may run at
// once, and each client has a reader, which is one of these loops or, where that cannot be, a
// goroutine of its own. There is another goroutine while a command waits for something other than a
// lock that another owner has, the worker, and one while the client does not read its replies,
// the writer. While the backlog is full one looks whether the client has left. Serve returns
// when all have ended.
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
// # A reader on a loop
//
// A loop calls every session that has something to read, one after the other, and then writes to the upstream what their commands
// have come to. It never waits, and so neither does a session in its turn: where it would have to, a goroutine takes over as
// its reader, and gives it back when it has handled what it read.
//
//	            something came                  handled
//	BY LOOP ─────────────────────▶ IN TURN ─────────────────────▶ BY LOOP
//	  │                               │
//	  │ the session is stopped or     │ the same, or: the input has ended or is wrong, the
//	  │ drains, its connection is     │ backlog is full, the upstream does not read
//	  │ closed, it was idle           ▼
//	  └─────────────────────────▶ BY GOROUTINE ──── handled ────▶ BY LOOP
//
// Who moves the state in onLoop.reader from one of these to the next owns what is the reader's, and the state is
// changed by compare-and-swap: so there is one reader at a time. Who sets a reason for which only a goroutine can read (see
// mustLeaveLoop) calls leaveLoop after that; who gives a session to the loop looks for a reason after that. So none is
// overlooked. Over TLS, and on systems without epoll, a goroutine reads all the time, as with Options.Goroutines.
//
// # The end of a session
//
//	client closes, or is disconnected:  the client gets replies for closeGrace more
//	server drains:                      input until drainQuiet of silence, or what has arrived
//	                                    by drainDeadline; replies until DrainTimeout, then
//	                                    hangUpGrace for the client to close
package proxy
