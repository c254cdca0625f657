// Command replace explores acquisitions that take the place of a named grant: each node that has
// exactly this grant drops it and grants the new one in one step.
//
// Owner A begins with a grant, and may renew it through its proxy, with repair, and unlock it. R replaces that
// grant; S replaces it too, or that of R; B acquires as ever. Each of them may give up, and undoes then, or be
// granted, and unlock. Messages are executed late, repeatedly with -dup, or never; answers are lost; a node may
// forget, and then does not vote for the longest ttl.
//
// The promises:
//
//	P1: at most one of them is inside the validity that it was told. What was told of a grant is void as
//	    soon as a node has dropped it
//	P2: fences grow in the order of the grants
//	P3: no RENEW of A succeeds that is asked for after another grant
//	P4: no UNLOCK of A succeeds that is asked for after another grant
//	P5: a grant is given up once: to one that replaces it, or by an UNLOCK that must not have been done before
//	P6: no RENEW of A succeeds that is asked for when A's validity has ended, or is void, and fewer nodes than a
//	    quorum have the grant
//
// Every rule is a flag; -broken NAME takes one away. The design is docs/decisions/0027.
package main
