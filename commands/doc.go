// Package commands decides what each command of a client means, and has it done: by the
// upstream, by the lock nodes, or by the proxy itself.
//
// The table (rows.go, over package table) has one row a command, which is everything the proxy knows of it:
// the connection it needs, what it changes in the session, where it goes in a Cluster, and
// its handlers. Whoever adds a command adds a row; a test fails for a command of Redis that
// has none.
//
// A [Session] belongs to one client. Its owner, the client's reader or a worker in
// package proxy, gives it one command after the other:
//
//	Try    never waits. It sends the command, or answers it, or reports false: nothing
//	       has happened then, and
//	Run    may wait: for a connection, for earlier replies, for a majority of lock nodes.
//	Flush  sends what Try has gathered: commands read together are written together.
//
// Between the two, the session's state picks the transport that carries the command
// (transport.go): one connection, a transaction, passthrough, or several nodes (nodes.go, over
// package cluster). Its send serves Try, and its run serves Run.
//
// Commands travel in one mode at a time (conns.go; a session gets its own connection in pin.go):
//
//	          blocks, MULTI, WATCH, CLIENT PAUSE …
//	shared  ─────────────────────────────────────▶  pinned
//	(connections of the pool,  ◀──────────────────  (the session's own connection)
//	one a class, or one a       no state is left
//	node and class)                                     │
//	   │    SUBSCRIBE, MONITOR, CLIENT REPLY, SYNC      │
//	   └──────────────────▶  passthrough  ◀─────────────┘
//	                         (its own, replies are not counted; ends with RESET)
//
// The mode changes only when all replies have come, so no command overtakes another. A
// session with state on its own connection, as a transaction, ends when that connection
// does, as a client of Redis would.
//
// Replies come back in order through package relay. Lock verbs are done by package lockcmd
// and decided by package locks; a LOCK that waits is Pending and holds up nothing but what
// the client has sent behind it.
//
// A command that may be on the key of an adopted lock gets adoptedRow in place of its own row
// (adopted.go; in transactions adopted_tx.go): package adopt decides it, with the lock nodes.
// If it turns out to be on no such key, its own row runs it after all.
//
// A Session's methods are called by one goroutine at a time, unless they say otherwise;
// a [Dispatcher] is safe for concurrent use. No goroutine is started here but those of
// the redirector of a session, which End waits for.
package commands
