// Package faults breaks what lockproxy runs on and checks what its clients were told.
//
// A world is real redis-servers, some of which keep what they are told and some of which
// do not, proxies that reach them over links, and clients that are processes of their
// own. What is made to fail when is a plan, made from a seed before anything starts. The
// clients write down what they send and what they are answered, in nanoseconds of the one
// monotonic clock of the machine, and a judge reads that: see docs/torture.md for what it
// looks for.
//
// The program of the tests is the clients' program too: see [RunClient].
package faults
