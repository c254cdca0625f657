package child

import "syscall"

// attributes are those of a child: it dies with the process that started it.
func attributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}
}
