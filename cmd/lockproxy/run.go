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
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/child"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/client"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
)

// maxInfo is the longest INFO of LOCK, in bytes.
const maxInfo = 256

// onMisuse is onUsageError for a command that has an exit code of its own for misuse.
func onMisuse(c *cli.Context, err error, sub bool) error {
	return exit.With(exit.Misuse, onUsageError(c, err, sub))
}

// runSettings are the settings of run. They are read into a, those of TLS into o.
func runSettings(a *client.Options, o *options) []setting {
	return append([]setting{
		{name: "lock", list: true, spaced: true, usage: "the `name` of the lock", read: a.SetName},
		{name: "shared", toggle: true, value: "false", usage: "read the name together with others that only read it: LOCK … SHARED", read: toggle(&a.Shared)},
		{name: "ttl", value: "30s", usage: "the lease: the proxy renews it while the command runs; the lock outlives a proxy that died by at most so long", read: duration(time.Millisecond, &a.TTL)},
		{name: "wait", value: "0", usage: "how long to wait for the lock; 0: not at all", read: duration(0, &a.Wait)},
		{name: "max-hold", value: "0", usage: "the longest that the command may have the lock; 0: what the proxy allows", read: duration(0, &a.MaxHold)},
		{name: "owner", usage: "the owner of the lock (default: a random word); the same owner may enter twice", read: word(&a.Owner)},
		{name: "info", usage: "a text about the owner, which LOCKCTL INFO shows (default: host, process id and command)", read: word(&a.Info)},
		{name: "kill-after", value: "5s", usage: "how long the command may take to end after the lock is lost; a second at most if the proxy tells the loss, 4s if none can be asked", read: duration(0, &a.KillAfter)},
	}, proxySettings(a, o)...)
}

// proxySettings say which proxy is asked. They are read into a, those of TLS into o.
func proxySettings(a *client.Options, o *options) []setting {
	return append([]setting{
		{name: "proxy", value: "redis://127.0.0.1:6380", url: true, secret: true, list: true, usage: "the `URL` of a lockproxy; repeat it for others that share its lock nodes: they are tried in turn", read: func(text string) error { return readProxy(a, text) }},
	}, only(o.tlsSettings(), "tls-ca", "tls-server-cert", "tls-server-key")...)
}

func readProxy(a *client.Options, text string) error {
	s, err := parseServer(text)
	if err == nil && !s.Single() {
		err = errors.New("names several addresses, or sentinels; repeat the setting instead")
	}
	a.Proxies = append(a.Proxies, s)
	return err
}

func (p program) runCommand() *cli.Command {
	return &cli.Command{
		Name:         "run",
		Usage:        "run a command while holding a lock of a running lockproxy",
		ArgsUsage:    "-- command [argument ...]",
		Flags:        append(flags(runSettings(new(client.Options), new(options))), &cli.BoolFlag{Name: "v", Usage: "say who has the lock while waiting (at a terminal this is said anyway), and when it is taken and given back"}),
		OnUsageError: onMisuse,

		SkipFlagParsing: true, // behind the command, where they are its own
		Action: func(c *cli.Context) error {
			a, err := p.readLockOptions(c)
			if err != nil {
				return exit.With(exit.Misuse, err)
			}
			verbose := c.Bool("v")
			if file, ok := p.stderr.(*os.File); verbose || ok && isTerminal(file) {
				a.Say = p.say
			}
			return p.runLocked(a, verbose, c.Args().Slice())
		},
	}
}

// readLockOptions reads the options of run from flags and environment.
func (p program) readLockOptions(c *cli.Context) (*client.Options, error) {
	a, o := new(client.Options), new(options)
	bad := p.readProxies(c, a, o, runSettings(a, o))
	if a.Name == "" {
		bad = append(bad, errors.New("lock: not set; give --lock name"))
	}
	if !c.Args().Present() {
		bad = append(bad, errors.New("no command to run; usage: lockproxy run --lock name -- command"))
	}
	if len(bad) > 0 {
		return nil, bad
	}
	complete(a, c.Args().First())
	return a, nil
}

// readProxies reads settings with those of proxySettings among them, and gives the proxies their TLS.
func (p program) readProxies(c *cli.Context, a *client.Options, o *options, all []setting) faults {
	raw, bad := merge([]source{fromFlags(c), fromEnv(p.env)}, all)
	bad = append(bad, raw.read(all)...)
	tls, more := o.serverFiles.read("tls-server-cert", "tls-server-key", "tls-ca")
	if tls != nil {
		for i, s := range a.Proxies {
			a.Proxies[i] = s.WithTLS(tls)
		}
	}
	return append(bad, more...)
}

// complete fills in defaults. INFO has no arguments of the command: they may hold passwords.
func complete(a *client.Options, command string) {
	if a.Owner == "" {
		a.Owner = rand.Text()
	}
	if a.MaxHold > 0 { // as the proxy does: no lease is longer
		a.TTL = min(a.TTL, a.MaxHold)
	}
	if a.Info == "" {
		host, _ := os.Hostname()
		a.Info = fmt.Sprintf("%s %d %s", host, os.Getpid(), filepath.Base(command))
		a.Info = strings.ToValidUTF8(a.Info[:min(len(a.Info), maxInfo)], "")
	}
}

// runLocked acquires the lock, runs the command and releases the lock. Its error, if any, is
// an *exit.Error.
func (p program) runLocked(a *client.Options, verbose bool, command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return exit.With(child.NotRunnableCode(err), err)
	}
	signals, stop := child.CatchSignals()
	defer stop()
	began := time.Now()
	h, err := takeUnlessSignaled(a, signals)
	if err != nil {
		return err
	}
	if verbose {
		p.say(fmt.Sprintf("%s is held, fence %s, after %v", a.Name, h.Fence, since(began)))
		began = time.Now()
		defer func() { p.say(fmt.Sprintf("%s was held for %v", a.Name, since(began))) }()
	}
	cmd := exec.Command(path, command[1:]...)
	cmd.Args[0] = command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, p.stdout, p.stderr
	cmd.Env = append(withoutSecrets(os.Environ()), "LOCK_NAME="+a.Name, "LOCK_OWNER="+a.Owner, "LOCK_FENCE="+h.Fence)
	c, err := child.Start(cmd)
	if err != nil {
		return exit.With(child.NotRunnableCode(err), errors.Join(err, h.Release()))
	}
	return p.outcome(h, c, p.supervise(h, c, signals))
}

// say prints what a person at a terminal wants to know.
func (p program) say(text string) { fmt.Fprintln(p.stderr, "lockproxy:", text) }

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

// takeUnlessSignaled acquires the lock, unless a signal ends the process first.
func takeUnlessSignaled(a *client.Options, signals <-chan os.Signal) (*client.Held, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type taken struct {
		h   *client.Held
		err error
	}
	done := make(chan taken, 1)
	go func() {
		h, err := a.Take(ctx)
		done <- taken{h, err}
	}()
	for {
		select {
		case t := <-done:
			return t.h, t.err
		case sig := <-signals:
			s, ends := child.EndsProcess(sig)
			if !ends {
				continue
			}
			cancel()
			if t := <-done; t.h != nil {
				_ = t.h.Release() // otherwise it ends with the connection
			}
			return nil, exit.Silently(child.Signaled + int(s))
		}
	}
}

// supervise returns when the child has ended, with the loss if the lock was lost, which it has
// printed.
func (p program) supervise(h *client.Held, c *child.Child, signals <-chan os.Signal) *client.Loss {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lost := make(chan *client.Loss, 1)
	go func() { lost <- h.Keep(ctx) }()
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
			c.End(l.By)
			return l
		}
	}
}

// reportLoss prints a loss, unless it is nil.
func (p program) reportLoss(h *client.Held, l *client.Loss) {
	if l != nil {
		fmt.Fprintf(p.stderr, "lockproxy: the lock %s was lost: %s\n", h.Name, l.Reason)
	}
}

// outcome releases what is left of the lock. Its error has the exit code.
func (p program) outcome(h *client.Held, c *child.Child, l *client.Loss) error {
	defer h.Close()
	if l != nil {
		if l.Announced {
			_ = h.Release() // a rest of the lease may run; other grants have other fences
		}
		return exit.Silently(exit.Lost)
	}
	code := c.Code()
	err := h.Release()
	switch {
	case errors.Is(err, client.ErrGone) && code == exit.OK:
		return exit.With(exit.Lost, fmt.Errorf("%w: %s", err, h.Name))
	case errors.Is(err, client.ErrGone):
		fmt.Fprintf(p.stderr, "lockproxy: %v: %s\n", err, h.Name)
	case err != nil:
		fmt.Fprintf(p.stderr, "lockproxy: %s stays locked until its lease ends: %v\n", h.Name, err)
	}
	if code == exit.OK {
		return nil
	}
	return exit.Silently(code)
}
