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

// inheritedListener is the socket that a service manager passed to this process, by the
// protocol of systemd (LISTEN_FDS); nil if there is none. It can be called once.
func inheritedListener() (net.Listener, error) {
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

// announce notifies the service manager that clients can connect, and that the process is
// stopping once ctx is done. Without a service manager it does nothing.
func announce(ctx context.Context, log *slog.Logger) {
	notifyManager(daemon.SdNotifyReady, log)
	context.AfterFunc(ctx, func() { notifyManager(daemon.SdNotifyStopping, log) })
}

func notifyManager(state string, log *slog.Logger) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot tell the service manager", "state", state, "error", err)
	}
}
