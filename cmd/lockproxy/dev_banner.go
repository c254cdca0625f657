package main

import (
	"fmt"
	"net"
	"strings"
)

// printBanner prints what dev is, a first session to type, and the admin server's address;
// operators is nil if there is none.
func (p program) printBanner(clients, operators net.Addr) {
	cli, bash := dialHints(clients)
	fmt.Fprintf(p.stdout, `
lockproxy dev: memory-only. One upstream and %d lock nodes run inside this process;
what they hold is gone when it ends. Ctrl-C ends it.

In another terminal:

  %s
  > SET greeting hello          goes to the upstream, as every command but those of locks
  > LOCK job 30s                fence, owner, validity in ms, holds
  > RENEW job 30s               validity in ms
  > UNLOCK job                  1: free again
  > LOCK job 30s SESSION        renewed for as long as this connection lives

and in a second one:

  > LOCK job 30s                (nil): held by another
  > LOCK job 30s WAIT 60s       waits in line

Ctrl-C in the first: the second has the lock at once, with a larger fence.

Without redis-cli, in plain %s
%s`, devLockNodes, cli, bash, adminHint(clients, operators))
}

// ipv4 names a listener on all addresses as one of IPv4: a container's published port may have no other.
var ipv4 = strings.NewReplacer("[::]:", "0.0.0.0:")

// adminHint is the admin server's address, as a sentence on a line of its own.
func adminHint(clients, operators net.Addr) string {
	switch {
	case operators == nil:
		return ""
	case operators.Network() == "unix":
		return "\nWho holds what, metrics, health: curl --unix-socket " + operators.String() + " http://localhost/\n"
	}
	_, dial := dialAddress(ipv4.Replace(operators.String()))
	hint := "\nWho holds what, metrics, health: http://" + dial + "/\n"
	if isPublic(clients.String()) && !isPublic(operators.String()) {
		hint += "(from within this container or machine; from outside with LOCKPROXY_ADMIN=0.0.0.0:6381 and LOCKPROXY_ADMIN_PASSWORD)\n"
	}
	return hint
}

// dialHints are the commands that connect to addr: with redis-cli, and with tools of the system.
func dialHints(addr net.Addr) (cli, plain string) {
	const session = `printf '%s\r\n' 'SET greeting hello' 'GET greeting' 'LOCK job 30s' 'RENEW job 30s' 'UNLOCK job' QUIT`
	if addr.Network() == "unix" {
		return "redis-cli -s " + addr.String(), "netcat:\n\n  " + session + " | nc -U " + addr.String()
	}
	_, dial := dialAddress(ipv4.Replace(addr.String()))
	host, port, _ := net.SplitHostPort(dial) // of a listener, so it has both
	return fmt.Sprintf("redis-cli -h %s -p %s", host, port),
		fmt.Sprintf("bash:\n\n  exec 3<>/dev/tcp/%s/%s; %s >&3; cat <&3", host, port, session)
}
