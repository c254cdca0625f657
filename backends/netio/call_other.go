//go:build !linux

package netio

import (
	"syscall"
	"time"
)

// do makes one call and is true if it succeeded.
func (o *op) do(trap, fd uintptr) bool {
	p := o.p[:min(len(o.p), mostAtOnce)]
	for {
		if trap == syscall.SYS_READ {
			o.n, o.err = syscall.Read(int(fd), p)
		} else {
			o.n, o.err = syscall.Write(int(fd), p)
		}
		if o.err != syscall.EINTR {
			return o.err == nil
		}
	}
}

func setUserTimeout(uintptr, time.Duration) {}

// pollHangUp cannot tell without reading.
func pollHangUp(uintptr) bool { return false }
