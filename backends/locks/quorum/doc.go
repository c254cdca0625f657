// Package quorum decides who holds a lock, by majority vote of N masters.
//
// While fewer than half the masters fail or forget, no two owners hold a name at once and every grant carries
// a larger fence than the last.
//
// Package scripts has what one master decides; package voters asks the masters, and package tally counts their votes.
// This package turns them into answers (acquire, renew, unlock). It does not queue callers: an acquisition is one
// question, asked again only where nobody has a majority. A proxy remembers grants (grantcache) only as a hint:
// what is missing or invalidated there is read from a quorum.
//
// A [Store] starts goroutines only within a call that awaits them, and in Run those of voters, which Close awaits. Where a mutex is
// taken while another is held, the order is: locks.Keepalive, waitq, grant cache or inflight.
//
// A LOCK is a locks.Attempt; each try of it is an acquisition, which is one round of votes, and perhaps a second one that settles the
// fence. What an owner has of a name is a grant, with one fence and a hold for each LOCK. Every renewal gives the grant's lease a new
// version: an epoch, which only a proxy that has read the grant begins anew, and a sequence in it. What shortens or takes away a lease
// that another proxy may count on is noted by a quorum first (prepare.go, noteShortening).
//
// Its files:
//
//	LOCK       acquire (a try, from the round to the grant), prepare (what comes before a try), several (LOCKALL), seat (PERMITS),
//	           undo (what no quorum granted, or nobody got), handover (begun for the next waiter, right behind a release)
//	RENEW      renew (by an owner, and the rounds of every renewal), extend (for a session), open (locks without an end),
//	           reinstate (on nodes that forgot)
//	UNLOCK     unlock (by an owner), release (the call to the nodes; holds of a session that has ended)
//	LOCKCTL    inspect, list, force
//	and        read (who has a name), shared (who shares it), grantcache (what this proxy knows)
package quorum
