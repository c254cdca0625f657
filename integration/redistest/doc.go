// Package redistest runs the real programs of the integration tests and the bench:
// redis-server and lockproxy, each a child process on a free port of 127.0.0.1, and a
// client that keeps replies byte for byte.
//
// A child ends with the test that started it, also when that test fails, and with
// the test process when that is killed (Pdeathsig). Nothing else is ever stopped:
// a child is known by its process handle, not by its name.
//
// [Launch] and [LaunchProxy] return errors and serve the bench; [Start],
// [StartNodes] and [StartProxy] fail the test and clean up after it. So do
// [StartReplicated], [StartSentinel] and [StartCluster], which start servers that
// belong together and return when these agree on it.
package redistest
