//go:build !linux

package netio

import (
	"syscall"
	"time"
)

// do makes one system call and reports whether it succeeded.
func (c *call) do(trap, fd uintptr) bool {
	p := c.p[:min(len(c.p), maxCall)]
	for {
		if trap == syscall.SYS_READ {
			c.n, c.err = syscall.Read(int(fd), p)
		} else {
			c.n, c.err = syscall.Write(int(fd), p)
		}
		if c.err != syscall.EINTR {
			return c.err == nil
		}
	}
}

func setTCPUserTimeout(uintptr, time.Duration) {}

// pollHangUp reports false: without poll only reading would tell.
func pollHangUp(uintptr) bool { return false }
