// Package clients knows the proxy's clients, and translates CLIENT's commands about them.
//
// Clients have ids of the proxy's own. Most share connections to the upstream; one with a
// connection of its own is known there by another number. So CLIENT LIST joins the
// upstream's entries with what the proxy knows, and CLIENT KILL, UNBLOCK, TRACKING with
// REDIRECT and the like are sent with ids translated: the upstream says whether the client
// may, and what is wrong with the arguments.
//
//   - [Registry] has all clients by id. A [Client] is what others may know of one, and do
//     to it; its session publishes.
//   - A [Listing] joins the upstream's reply to CLIENT LIST with the registry.
//   - A [Filter] says which clients a LIST or KILL is about.
//   - An [End] is whether, and why, a client's session ends.
//   - A [Translator] turns a command into what is sent, and the reply into the client's.
//
// It starts no goroutine and, but for [Client.EnsureUpstreamID], does no I/O. Registry and
// Client are safe for concurrent use.
package clients
