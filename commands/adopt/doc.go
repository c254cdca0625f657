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
// The one goroutine it starts asks the lock nodes while the upstream is asked for the key, and ends before the
// call does. An Adoption is safe for concurrent use.
package adopt
