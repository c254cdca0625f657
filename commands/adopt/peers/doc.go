// Package peers finds the other proxies, and tells whether the modes in which they have keys go together with ours.
//
// Every proxy tells the others by way of the lock nodes which keys are locks there, in which mode, and of which
// upstream ([Announcer]); also one without patterns. It says so every 20 s and is believed for 60 s; one that ends
// takes it back. What is told is compared key by key ([Compare]): in one upstream, a key that is a lock (on) at one
// proxy and an ordinary key (off, observe) at another has two truths. Modes go together if they are the same or
// neighbours in off – both – on. Where they do not, the proxy that has the lock refuses the keys of that pattern
// while the other one lives: a lock that cannot be had does less harm than one that two have.
//
// What this costs, and what it cannot do:
//   - Going from off to on proxy by proxy, the first ones refuse the keys of the pattern until the last one without
//     it has ended; the last ones forward them meanwhile. Nobody gets a lock twice, but the programs at the first
//     proxies get none. Where that hurts, a new prefix for the keys, or all proxies at once.
//   - A proxy that was killed counts for up to 60 s. One that comes is noticed within 20 s, and until then nothing
//     but guard stands between the two.
//   - A program that talks to the upstream itself, and a proxy of a version that announces nothing, is never seen:
//     both are off. All proxies must have this version before the first one has a pattern that is on.
//   - Proxies are of one upstream if they have seen a common replication id there. A failover changes it, and
//     the new master names the former one as well. Of a Cluster every master's count. Where one of the two does not
//     know any (it was not let in, or the upstream has been away since it started), it may be the same upstream,
//     and is taken for it.
//
// A proxy adopts nothing before a majority of the lock nodes has its announcement and has told the others': two
// that start at once thus cannot miss each other. Later it goes on with what it knows while no majority answers. To stop
// then would gain nothing: whoever could take a lock needs the same majority, and it is the nodes that exclude.
// What a minority tells of a proxy counts, that it does not tell of one does not.
//
// The parts that compare are pure. An Announcer starts no goroutine; its Run is one of the caller's.
package peers
