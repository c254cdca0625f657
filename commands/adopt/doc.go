// Package adopt makes quorum locks of keys that match a pattern of --adopt. Package idiom translates what a client
// sends for such a key, a command or a script, into an operation on the lock of that name, and a majority of the lock
// nodes decides it. The upstream does not have the key, except in mode=both, where both must agree.
//
//	guess what the key is ──▶ run the call on it ──▶ take, renew or release exactly that grant ──▶ reply
//	      ▲                        │                        │
//	      └── ask the lock nodes ◀─┴── it changes nothing,  └── that grant is gone
//	                                   and the nodes were not asked
//
// Every reply rests on an answer of a quorum to a question that was sent after the command had come. The value that
// a client stores does not identify it: for each grant of a string's lock the proxy makes a new owner, which carries
// the value. So clients that all store the same value exclude each other as well.
//
// It starts goroutines only while it decides a call, and waits for them: one asks the upstream for the key of a lock that
// the lock nodes are asked for (guard.go), and up to 16 decide the parts of a script on several locks (turns.Each). An
// Adoption is safe for concurrent use.
//
// Its files:
//
//	a Call is made      adopt (New, Call, a command on one lock), keys (which arguments may be locks), script (of which sort
//	                    a script is; one on one lock), classes (of scripts, remembered)
//	 and also decided   several (a command with several keys), batch (a script that extends several hashes), renewals (one
//	                    that extends several read/write locks), fence (GET of a fence key)
//	a Call is refused   refusal (why, and the log), rights (of the client), announced (for another proxy's sake)
//	a Call is decided   decide (Decide: try until it fits), take, reenter (hashes), replace (by another value), shares
//	                    (read/write locks), flush (FLUSHDB, FLUSHALL), split (no majority, or no try fitted), guard (not if
//	                    the upstream has the key)
//	mode=both           both (first the upstream, then the nodes), takeover (of a lock that only the upstream has), copy
//	                    (the upstream's copy of a grant), divergence (upstream and nodes differ)
//	a lock is known     owner (what the proxy last knew of it, and whose it is)
//	answers are shared  flight (by concurrent calls), burst (by commands that a client has sent together)
//	MULTI               transaction (WATCH, the queue, EXEC as one call)
package adopt
