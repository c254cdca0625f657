// Command model explores every interleaving of renewals, unlocks and a rival
// acquisition of one lock whose owner uses two proxies, and reports the first
// one that breaks a promise.
//
// It answers what the exclusive-lock model left open: renewals that shorten a
// lease, and a proxy that renews or releases a grant another proxy made. Owner A
// starts out granted through proxy 0; proxy 1 knows nothing. A may renew (long or
// short) and unlock through either, one request at a time, and may give a request
// up; with -autos, proxy 0 also renews by itself, as it does for a SESSION.
// Rival B acquires once. Messages may be executed late, twice (-dup) or never,
// answers may be lost, nodes may forget, a proxy may forget what it knows.
//
// A search visits states breadth first, so the trace it prints is a shortest one.
// Every rule the locks rely on is a flag; -broken NAME takes exactly one away.
// What the rules are and why is docs/decisions/0003.
//
// One process, one goroutine, no clock and no randomness in the search; memory is
// 24 to 48 bytes a state and the states of two neighbouring depths.
package main
