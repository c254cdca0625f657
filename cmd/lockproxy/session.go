package main

import (
	"fmt"
	"net"
)

// firstSession tells whoever started dev what it is and what to type.
func (p program) firstSession(addr net.Addr) {
	cli, bash := dialers(addr)
	fmt.Fprintf(p.stdout, `
lockproxy dev: memory-only. One upstream and %d lock nodes run inside this process;
what they hold is gone when it ends. Ctrl-C ends it.

In another terminal:

  %s
  > SET greeting hello
  > GET greeting
  > LOCK job 30s          fence, owner, validity in ms, holds
  > RENEW job 30s         validity in ms
  > UNLOCK job            1: free again

and from a second one, between LOCK and UNLOCK:

  > LOCK job 30s          (nil): held by another

No redis-cli? The same over plain %s

`, devLockNodes, cli, bash)
}

// dialers are the ways to reach addr by hand: with redis-cli, and with what comes
// with the system.
func dialers(addr net.Addr) (cli, plain string) {
	const session = `printf '%s\r\n' 'SET greeting hello' 'GET greeting' 'LOCK job 30s' 'RENEW job 30s' 'UNLOCK job' QUIT`
	if addr.Network() == "unix" {
		return "redis-cli -s " + addr.String(), "netcat:\n\n  " + session + " | nc -U " + addr.String()
	}
	_, dial := dialAddress(addr.String())
	host, port, err := net.SplitHostPort(dial)
	if err != nil {
		return "redis-cli", "TCP:\n\n  " + session
	}
	return fmt.Sprintf("redis-cli -h %s -p %s", host, port),
		fmt.Sprintf("bash:\n\n  exec 3<>/dev/tcp/%s/%s; %s >&3; cat <&3", host, port, session)
}
