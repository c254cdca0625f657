// Package adopt decides commands and scripts on keys that are locks: those that an operator has named with
// --adopt. Such a key is no key of the upstream any more but a name of the lock engine; what clients send for
// it, package idiom turns into an operation on the lock, and a majority of the lock nodes decides it.
//
//	guess what the key is ──▶ run the call on it ──▶ take, renew or release exactly that grant ──▶ reply
//	      ▲                        │                        │
//	      └── ask the lock nodes ◀─┴── it only reads, and   └── it is not there any more
//	                                   nobody was asked
//
// Every reply rests on one answer of a quorum inside the call. A value that a client stores is data: the owner of
// a string's lock is made by the proxy for each grant, and carries the value. So clients whose values are all
// the same exclude each other as well.
//
// The one goroutine it starts asks the lock nodes while the upstream is asked for the key, and ends before the
// call does. An Adoption is safe for concurrent use.
package adopt
