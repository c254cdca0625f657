// Command ends explores holds that end with their own ttl: LOCK prolongs no other hold of
// the owner, RENEW moves the holds it names, and giving one back may bring the end of the
// lease forward.
//
// Owner A begins with one hold, made through proxy 0, and may take another (LOCK) or
// start afresh (LOCK FRESH), renew with a long or a short ttl, and unlock one hold or all,
// through either of two proxies, and names the fence of its grant; it may crash, which is to ask nothing more. While it
// uses both proxies at once, it counts with the shorter of what they may leave. Rival B
// acquires once. Messages are executed late or never, answers are lost, a node may forget
// and then does not vote for the longest ttl.
//
// The promises:
//
//	P1: B is not granted while a validity runs that A was told of a hold it did not give back
//	P2: no RENEW of A's grant succeeds that A asks for after B's grant
//	P4: no UNLOCK of a hold succeeds that A asks for after B's grant, unless it repeats one of the same hold asked for before
//	P6: no RENEW succeeds that A asks for after all told validities have ended and fewer
//	    nodes than a quorum have the grant
//	E:  a hold that no RENEW reached ends on every node within its ttl after a node executed its LOCK last
//
// Every rule is a flag; -broken NAME takes one away. The design is docs/decisions/0020.
package main
