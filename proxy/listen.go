package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

func (opt Options) listen() (net.Listener, error) {
	_, unix := opt.Listener.(*net.UnixListener)
	switch {
	case opt.TLS != nil && (unix || opt.Listener == nil && IsSocketPath(opt.Listen)):
		return nil, errors.New("a Unix socket carries no TLS")
	case opt.Listener != nil:
		return opt.Listener, nil
	}
	return Listen(opt.Listen)
}

// A host that vanished is noticed within keepIdle + keepCount*keepInterval, if nothing is on
// its way to it. While its client has locks with SESSION, data on its way must be
// acknowledged within vanishTime (TCP_USER_TIMEOUT). Other clients are spared that, since it
// ends connections to clients that read nothing for so long, too. vanishTime is less than
// the time of the last probe, at which the kernel looks at it instead of keepCount.
const (
	keepIdle     = 5 * time.Second
	keepInterval = 3 * time.Second
	keepCount    = 3
	vanishTime   = 13 * time.Second
)

var probes = net.KeepAliveConfig{Enable: true, Idle: keepIdle, Interval: keepInterval, Count: keepCount}

// Listen listens at host:port, or at the path of a Unix socket, from which it removes a
// socket that nobody listens on any more. Connections have keep-alive probes.
func Listen(addr string) (net.Listener, error) {
	network := "tcp"
	if IsSocketPath(addr) {
		network = "unix"
		if err := removeStale(addr); err != nil {
			return nil, err
		}
	}
	lc := net.ListenConfig{KeepAliveConfig: probes}
	ln, err := lc.Listen(context.Background(), network, addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: end the program that has it (ss -ltnp names it), or choose another address", err)
	}
	return ln, err
}

// warnOfFewFiles logs if fewer files may be open than clients may connect: then these are never refused, but hear nothing.
// Go has raised the limit as far as it may be.
func warnOfFewFiles(clients int, log *slog.Logger) {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil && uint64(files.Cur) < uint64(clients)+100 {
		log.Warn("too few open files are allowed for max-clients: raise LimitNOFILE (ulimit -n)", "open_files", files.Cur, "max_clients", clients)
	}
}

// IsSocketPath reports whether an address is the path of a Unix socket, not host:port: it has
// a slash.
func IsSocketPath(addr string) bool { return strings.ContainsRune(addr, '/') }

// removeStale removes a socket that nobody listens on any more.
func removeStale(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return err // a file that is no socket: Listen fails
	}
	if nc, err := net.Dial("unix", path); err == nil {
		nc.Close()
		return nil // in use: Listen fails
	}
	return os.Remove(path)
}
