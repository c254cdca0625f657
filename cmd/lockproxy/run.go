package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/child"
)

// Exit codes of run itself, from sysexits.h. Those for its command are in package child.
const (
	exitMisuse       = 64 // the command line has faults, or the proxy refused the request as one
	exitUnavailable  = 69 // no quorum, or no proxy
	exitLost         = 70 // the lock was lost while the command ran
	exitBusy         = 75 // another owner has the lock
	exitNoPermission = 77 // the proxy refused the user
)

// maxInfo is the longest INFO of LOCK, in bytes.
const maxInfo = 256

// An exitError ends the process with a code of its own.
type exitError struct {
	code int
	err  error // nil: nothing is printed
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

// onMisuse is onUsageError of a command with an exit code of its own for that.
func onMisuse(c *cli.Context, err error, sub bool) error {
	return &exitError{exitMisuse, onUsageError(c, err, sub)}
}

// runSettings are the settings of run. They are read into a, those of TLS into o.
func runSettings(a *lockOptions, o *options) []setting {
	return append([]setting{
		{name: "lock", usage: "the `name` of the lock", read: word(&a.name)},
		{name: "ttl", value: "30s", usage: "the lease; the proxy renews it while the command runs, and it is for how long the lock outlives a proxy that died", read: duration(time.Millisecond, &a.ttl)},
		{name: "wait", value: "0", usage: "how long to wait for the lock; 0: not at all", read: duration(0, &a.wait)},
		{name: "max-hold", value: "0", usage: "the longest that the command may have the lock; 0: what the proxy allows", read: duration(0, &a.maxHold)},
		{name: "owner", usage: "who has the lock (default: a random word); the same owner may enter twice", read: word(&a.owner)},
		{name: "info", usage: "what LOCKCTL INFO shows to whoever looks who has the lock (default: host, process id and command)", read: word(&a.info)},
		{name: "kill-after", value: "5s", usage: "how long the command may take to end when the lock is lost, at most", read: duration(0, &a.killAfter)},
		{name: "proxy", value: "redis://127.0.0.1:6380", url: true, secret: true, list: true, usage: "a lockproxy, as a `URL`; repeat it for more that share its lock nodes, to be tried in turn", read: a.readProxy},
	}, only(o.tlsSettings(), "tls-ca", "tls-server-cert", "tls-server-key")...)
}

func (a *lockOptions) readProxy(text string) error {
	s, err := parseServer(text)
	if err == nil && !s.Single() {
		err = errors.New("names several addresses, or sentinels; repeat the setting instead")
	}
	a.proxies = append(a.proxies, s)
	return err
}

func (p program) runCommand() *cli.Command {
	return &cli.Command{
		Name:         "run",
		Usage:        "run a command while holding a lock of a lockproxy that is running",
		ArgsUsage:    "-- command [argument ...]",
		Flags:        flags(runSettings(new(lockOptions), new(options))),
		OnUsageError: onMisuse,
		Action: func(c *cli.Context) error {
			a, err := p.readLockOptions(c)
			if err != nil {
				return &exitError{exitMisuse, err}
			}
			return p.runLocked(a, c.Args().Slice())
		},
	}
}

// readLockOptions reads the options of run from flags and environment.
func (p program) readLockOptions(c *cli.Context) (*lockOptions, error) {
	a, o := new(lockOptions), new(options)
	all := runSettings(a, o)
	raw, bad := merge([]source{fromFlags(c), fromEnv(p.env)}, all)
	bad = append(bad, raw.read(all)...)
	if a.name == "" {
		bad = append(bad, errors.New("lock: not set; give --lock name"))
	}
	if !c.Args().Present() {
		bad = append(bad, errors.New("no command to run; write lockproxy run --lock name -- command"))
	}
	tls, more := o.serverFiles.read("tls-server-cert", "tls-server-key", "tls-ca")
	if bad = append(bad, more...); len(bad) > 0 {
		return nil, bad
	}
	if tls != nil {
		for i, s := range a.proxies {
			a.proxies[i] = s.WithTLS(tls)
		}
	}
	a.complete(c.Args().First())
	return a, nil
}

// complete fills in defaults. INFO has no arguments of the command: they may hold passwords.
func (a *lockOptions) complete(command string) {
	if a.owner == "" {
		a.owner = rand.Text()
	}
	if a.maxHold > 0 { // as the proxy does: no lease is longer
		a.ttl = min(a.ttl, a.maxHold)
	}
	if a.info == "" {
		host, _ := os.Hostname()
		a.info = fmt.Sprintf("%s %d %s", host, os.Getpid(), filepath.Base(command))
		a.info = strings.ToValidUTF8(a.info[:min(len(a.info), maxInfo)], "")
	}
}

// runLocked acquires the lock, runs the command and releases the lock. Its error, if any, is
// an *exitError.
func (p program) runLocked(a *lockOptions, command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return &exitError{child.NotRunnableCode(err), err}
	}
	signals, stop := child.CatchSignals()
	defer stop()
	h, err := takeUnlessSignaled(a, signals)
	if err != nil {
		return err
	}
	cmd := exec.Command(path, command[1:]...)
	cmd.Args[0] = command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, p.stdout, p.stderr
	cmd.Env = append(withoutSecrets(os.Environ()), "LOCK_NAME="+a.name, "LOCK_OWNER="+a.owner, "LOCK_FENCE="+h.fence)
	c, err := child.Start(cmd)
	if err != nil {
		return &exitError{child.NotRunnableCode(err), errors.Join(err, h.release())}
	}
	return p.outcome(h, c, p.supervise(h, c, signals))
}

// takeUnlessSignaled acquires the lock, unless a signal ends the process first.
func takeUnlessSignaled(a *lockOptions, signals <-chan os.Signal) (*heldLock, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type taken struct {
		h   *heldLock
		err error
	}
	done := make(chan taken, 1)
	go func() {
		h, err := a.take(ctx)
		done <- taken{h, err}
	}()
	for {
		select {
		case t := <-done:
			return t.h, t.err
		case sig := <-signals:
			s, ends := endsProcess(sig)
			if !ends {
				continue
			}
			cancel()
			if t := <-done; t.h != nil {
				_ = t.h.release() // otherwise it ends with the connection
			}
			return nil, &exitError{code: child.Signaled + int(s)}
		}
	}
}

// endsProcess reports whether a signal ends a process without a child. It stops this process
// if that is the signal's effect.
func endsProcess(sig os.Signal) (s syscall.Signal, ends bool) {
	s, _ = sig.(syscall.Signal)
	switch s {
	case syscall.SIGTSTP:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case syscall.SIGCONT, syscall.SIGWINCH:
	default:
		return s, true
	}
	return s, false
}

// supervise returns when the child has ended, with the loss if the lock was lost, which it has
// printed.
func (p program) supervise(h *heldLock, c *child.Child, signals <-chan os.Signal) *loss {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lost := make(chan *loss, 1)
	go func() { lost <- h.keep(ctx) }()
	for {
		select {
		case <-c.Ended:
			cancel()
			l := <-lost
			p.reportLoss(h, l)
			return l
		case sig := <-signals:
			c.Forward(sig)
		case l := <-lost:
			p.reportLoss(h, l)
			c.End(l.by)
			return l
		}
	}
}

// reportLoss prints a loss, unless it is nil.
func (p program) reportLoss(h *heldLock, l *loss) {
	if l != nil {
		fmt.Fprintf(p.stderr, "lockproxy: the lock %s was lost: %s\n", h.name, l.reason)
	}
}

// outcome releases what is left of the lock. Its error has the exit code.
func (p program) outcome(h *heldLock, c *child.Child, l *loss) error {
	defer h.closeConn()
	if l != nil {
		if l.announced {
			_ = h.release() // a rest of the lease may run; other grants have other fences
		}
		return &exitError{code: exitLost}
	}
	code := c.Code()
	err := h.release()
	switch {
	case errors.Is(err, errLockGone) && code == exitOK:
		return &exitError{exitLost, fmt.Errorf("%w: %s", err, h.name)}
	case errors.Is(err, errLockGone):
		fmt.Fprintf(p.stderr, "lockproxy: %v: %s\n", err, h.name)
	case err != nil:
		fmt.Fprintf(p.stderr, "lockproxy: %s stays locked until its lease ends: %v\n", h.name, err)
	}
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}
