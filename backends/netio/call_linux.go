package netio

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func pollHangUp(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents != 0
}

func setTCPUserTimeout(fd uintptr, d time.Duration) {
	unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}

// do makes one system call and reports whether it succeeded.
func (c *call) do(trap, fd uintptr) bool {
	size := min(len(c.p), maxCall)
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(c.p))), uintptr(size))
		switch errno {
		case 0:
			c.n, c.err = int(n), nil
			return true
		case syscall.EINTR:
		default:
			c.err = errno
			return false
		}
	}
}
