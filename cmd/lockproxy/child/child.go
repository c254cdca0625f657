// Package child runs a command as a child of this process, passes signals on to it, and ends it; outside
// of a terminal its descendants end with it.
package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
	"unsafe"
)

// pollEvery is the pause between two checks whether a process group has ended.
const pollEvery = 20 * time.Millisecond

// Exit codes, as of a shell.
const (
	NotRunnable = 126 // the command exists and cannot be run
	NotFound    = 127 // no such command
	Signaled    = 128 // plus the number of the signal that ended it
)

// A Child is a command that runs. Its methods are safe for concurrent use.
type Child struct {
	Ended <-chan struct{} // closed when it has been waited for

	cmd   *exec.Cmd
	group bool // leads a process group of its own
}

// forwardedSignals are passed on to the child.
var forwardedSignals = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
}

// CatchSignals receives the signals that are for [Child.Forward], until stop is called. One that this process was started to
// ignore, as by nohup, remains ignored, also by the child.
func CatchSignals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	signal.Notify(c, slices.DeleteFunc(slices.Clone(forwardedSignals), signal.Ignored)...)
	return c, func() { signal.Stop(c) }
}

// EndsProcess reports whether a signal ends a process that has no child. It stops this process
// if that is the signal's effect.
func EndsProcess(sig os.Signal) (s syscall.Signal, ends bool) {
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

// Start starts cmd. If this process is in a terminal's foreground group, which reads
// from it and gets its signals (^C, ^Z), the child stays in that group. Otherwise it gets its
// own, so that its descendants end with it.
func Start(cmd *exec.Cmd) (*Child, error) {
	ended := make(chan struct{})
	c := &Child{cmd: cmd, group: !inForeground(), Ended: ended}
	cmd.SysProcAttr = attributes(c.group)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its result is in cmd.ProcessState
	}()
	return c, nil
}

// inForeground reports whether this process is in the foreground of a terminal.
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

// Forward passes a signal on to the child, but for those that a terminal has sent to both.
// This process stops together with the child.
func (c *Child) Forward(sig os.Signal) {
	s, ok := sig.(syscall.Signal)
	if !ok || !c.group && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		return
	}
	c.signal(s)
	if s == syscall.SIGTSTP {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}

// signal does nothing if the child has ended.
func (c *Child) signal(s syscall.Signal) {
	if c.group {
		_ = syscall.Kill(-c.cmd.Process.Pid, s)
		return
	}
	_ = c.cmd.Process.Signal(s)
}

// End ends the child and its group: TERM, and KILL at the deadline.
func (c *Child) End(deadline time.Time) {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT) // a stopped one does not get TERM
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-c.Ended:
	case <-t.C:
	}
	for c.groupAlive() && time.Now().Before(deadline) {
		time.Sleep(pollEvery)
	}
	if c.running() || c.groupAlive() {
		c.signal(syscall.SIGKILL)
	}
	<-c.Ended
}

func (c *Child) running() bool {
	select {
	case <-c.Ended:
		return false
	default:
		return true
	}
}

// groupAlive reports whether a process of the child's group is left.
func (c *Child) groupAlive() bool {
	return c.group && syscall.Kill(-c.cmd.Process.Pid, 0) == nil
}

// Code is the exit code, as of a shell, of a child that has ended.
func (c *Child) Code() int {
	s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && s.Signaled() {
		return Signaled + int(s.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

// NotRunnableCode is the exit code, as of a shell, of a command that cannot be run, and err why.
func NotRunnableCode(err error) int {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) || errors.Is(err, exec.ErrDot) {
		return NotFound
	}
	return NotRunnable
}
