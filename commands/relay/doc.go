// Package relay puts the replies to one client in the order of its commands, whoever they
// come from.
//
// [Replies] is the queue of what the client still waits for. The session's goroutine adds
// the place of each reply with one of the Expect methods before it sends the command;
// upstream connections, whose [upstream.Sink] it is, fill the places in from their own
// goroutines. A reply whose turn it is goes to the client without a copy, a later one is
// kept, up to a limit.
//
//	Expect            n replies, as they come
//	ExpectRewritten   a reply that goes through a function
//	ExpectObserved    a reply whose beginning the session must know
//	ExpectReplaced    a reply in place of which the client gets another
//	ExpectCaptured    a reply that is the session's own
//	ExpectRequest     the reply to a [Request], which nodes of a Cluster may redirect
//	ExpectFanIn       one reply made of those to several requests
//	ExpectUncounted   a connection in passthrough: replies are not counted any more
//
// A [Barrier] tells on such a connection when everything before has been answered.
//
// A [Redirector] owns the only goroutine here, which lives while there are requests to
// send on; its End waits for it, and for what Go has started.
package relay
