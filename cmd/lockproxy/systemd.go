package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// inherited is the socket that a service manager listens on for this process, in the
// way of systemd (LISTEN_FDS); nil if there is none. It is taken once.
func inherited() (net.Listener, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil
	}
	for _, f := range files {
		defer f.Close()
	}
	if len(files) > 1 {
		return nil, fmt.Errorf("%d sockets were passed on to this process; it takes one, for clients", len(files))
	}
	ln, err := net.FileListener(files[0])
	if err != nil {
		return nil, fmt.Errorf("the socket that was passed on to this process: %w", err)
	}
	if _, ok := ln.(*net.UnixListener); !ok && ln.Addr().Network() != "tcp" {
		return nil, errors.Join(fmt.Errorf("the socket that was passed on to this process is %s, not TCP", ln.Addr().Network()), ln.Close())
	}
	return ln, nil
}

// announce tells the service manager that clients can connect, and that the process is
// about to end once ctx is done. Without a service manager it does nothing.
func announce(ctx context.Context, log *slog.Logger) {
	notify(daemon.SdNotifyReady, log)
	context.AfterFunc(ctx, func() { notify(daemon.SdNotifyStopping, log) })
}

func notify(state string, log *slog.Logger) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot tell the service manager", "state", state, "error", err)
	}
}
