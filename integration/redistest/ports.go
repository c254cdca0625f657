package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

const (
	firstPort = 12000 // all are under the ephemeral range, so that no outgoing connection takes one while its server is down
	busOffset = 10000 // between the port of a Cluster's node and that of its bus
	blockSize = 500
	blocks    = busOffset / blockSize
)

// ports are those that this process may use: a block, which no other test process uses
// at the same time, and the block of buses above it. They are handed out in turn, so
// that the port of a server that is down stays free for long.
var ports struct {
	once  sync.Once
	base  int
	mine  *net.UnixListener // open while this process lives
	mu    sync.Mutex
	calls int
}

// nextPort cycles through the ports of this process, from 0.
func nextPort() (base, n int) {
	ports.once.Do(claimPortBlock)
	ports.mu.Lock()
	defer ports.mu.Unlock()
	ports.calls++
	return ports.base, ports.calls % (2 * blockSize)
}

// claimPortBlock chooses a block that nobody else has, or any if all are in use.
func claimPortBlock() {
	begin := rand.IntN(blocks)
	ports.calls = rand.IntN(2 * blockSize)
	for i := range blocks {
		n := (begin + i) % blocks
		ports.base = firstPort + n*blockSize
		var err error
		if ports.mine, err = claim(n); err == nil {
			return
		}
	}
}

// claim takes block n until it is closed or the process ends. The name is abstract: processes that share
// ports share it, whatever directories they have.
func claim(n int) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprint("@redistest-ports-", n)})
}

// FreeAddr is a host:port of 127.0.0.1 that nobody listens on, and that other test
// processes leave alone.
func FreeAddr() (string, error) {
	for range 2 * blockSize {
		base, n := nextPort()
		if n >= blockSize {
			base += busOffset
		}
		if addr := local(base + n%blockSize); isFree(addr) {
			return addr, nil
		}
	}
	return "", errors.New("no free port")
}

// freeBusAddr is FreeAddr for a node of a Cluster.
func freeBusAddr() (string, error) {
	for range blockSize {
		base, n := nextPort()
		port := base + n%blockSize
		if isFree(local(port)) && isFree(local(port+busOffset)) {
			return local(port), nil
		}
	}
	return "", errors.New("no port that is free with that of its bus")
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// isFree listens for a moment. Nothing is forked meanwhile: a new process would have the listener until it runs its program, and
// who connects then would take it for the server that is to come.
func isFree(addr string) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", addr)
	return err == nil && l.Close() == nil
}
