// Command holds explores what happens to an owner's holds that are on different
// majorities: every message about a grant carries the holds that its proxy knows, a node
// adds those it lacks, and marks keep those that were given back from returning.
//
// Owner A takes up to three holds through two proxies, gives them back one by one and
// renews; rival B tries once. Messages may be executed late or never, answers may be
// lost, nodes may forget. No lease ends by itself, since what matters here is which holds
// count; a node that forgot votes again only when A's lease was renewed since, or A has
// nothing: else the lease would be over by then.
//
// The promises:
//
//	L: when all nodes vote and nothing is under way, a RENEW that reaches all nodes succeeds
//	U: UNLOCK answers "free" only when all holds that A was told of were given back
//	W: a hold whose UNLOCK was answered is never on a quorum again
//	X: B is not granted while A has a hold
//	Z: no RENEW of the grant succeeds that was asked for after "free"
//
// Every rule is a flag; -broken NAME takes one away. Why they are as they are is
// docs/decisions/0020.
package main
