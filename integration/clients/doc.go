// Package clients holds real client libraries to the proxy: each has a smoke
// program in its own language, which does what an application does, and the
// command line tools of Redis are run as an operator runs them, redis-cli also at a
// terminal.
//
// The tests run only when LOCKPROXY_CLIENTS is set ("make clients"), since they
// fetch the libraries, pinned, into bin/clients.
//
// A smoke program gets the proxy's host:port in PROXY, the protocol versions it is
// to speak in PROTOCOLS ("resp2 resp3") and what to do in CHECKS (names from
// [checks]). For each version it does the checks in that order and prints a line
// for each: "ok resp2 strings", or "failed resp2 strings: why". At the line
// "restart" the proxy is restarted, and a line on the program's standard input says
// when it is back.
//
// With LOCKPROXY_ADOPT_CLIENTS ("make adopt-clients") lock libraries are held to proxies
// that adopt their keys. An update program, in folder adopt, is told the way to lock as its
// argument, gets a server's host:port in REDIS and a number in UPDATES, and says "ready". At
// a line on its standard input it starts so many updates at once: each takes the lock, reads
// the key "counter", writes one more, and gives the lock back. It says "failed: why" for each
// that was told an error, and at last "done" and how many were not. With HOLD each says "held" when it has the lock,
// whose lease is LEASE seconds, and goes on at another line. Redisson's program Locks gets
// two servers that share locks, in REDIS and OTHER, and says of each thing that a lock must do "ok"
// or "failed", and of each kind of lock that is not adopted "refused" or "taken"; its program PageViews serves a page and says where.
// The libraries' own tests
// are run as published; a test that cannot pass yet is named in [suites] with the reason.
package clients
