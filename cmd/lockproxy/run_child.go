package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

// pollEvery is how often a group is looked at for whether it has ended.
const pollEvery = 20 * time.Millisecond

// A child is the command that runs under the lock.
type child struct {
	cmd   *exec.Cmd
	group bool          // it leads a process group of its own
	ended chan struct{} // closed when it has been waited for
}

// passed are the signals that go to the child too.
var passed = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
}

// catch takes the signals that are passed on, until stop is called.
func catch() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	signal.Notify(c, passed...)
	return c, func() { signal.Stop(c) }
}

// startChild starts cmd, whose Path is known to be there. A terminal's foreground
// group is what reads from it and gets what is typed (^C, ^Z): there the child stays
// in this process's group, else it gets its own, so that what it starts ends with it.
func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, group: !inForeground(), ended: make(chan struct{})}
	cmd.SysProcAttr = attributes(c.group)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	return c, nil
}

// inForeground says that this process is in the foreground of a terminal.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	var group int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, tty.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
	return errno == 0 && int(group) == syscall.Getpgrp()
}

// pass gives the child a signal that this process got. What is typed at a terminal it
// has got already. This process stops when the child does, so that none runs on alone.
func (c *child) pass(sig os.Signal) {
	s, ok := sig.(syscall.Signal)
	if !ok || !c.group && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		return
	}
	c.signal(s)
	if s == syscall.SIGTSTP {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}

// signal does nothing where nobody is left.
func (c *child) signal(s syscall.Signal) {
	if c.group {
		_ = syscall.Kill(-c.cmd.Process.Pid, s)
		return
	}
	_ = c.cmd.Process.Signal(s)
}

// end ends the child: TERM, and KILL at the deadline to whoever is left.
func (c *child) end(deadline time.Time) {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT) // one that is stopped takes no TERM
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-c.ended:
	case <-t.C:
	}
	for c.left() && time.Now().Before(deadline) {
		time.Sleep(pollEvery)
	}
	if c.running() || c.left() {
		c.signal(syscall.SIGKILL)
	}
	<-c.ended
}

func (c *child) running() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// left says that somebody of the child's group has not ended.
func (c *child) left() bool {
	return c.group && syscall.Kill(-c.cmd.Process.Pid, 0) == nil
}

// code is what a shell says of a child that has ended.
func (c *child) code() int {
	s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && s.Signaled() {
		return exitSignal + int(s.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

// unrunnable is what a shell says of a command that cannot be run, for the reason err.
func unrunnable(err error) int {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) || errors.Is(err, exec.ErrDot) {
		return exitNotFound
	}
	return exitNotRunnable
}
