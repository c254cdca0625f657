//go:build !linux

package child

import "syscall"

// attributes are those of a child, which here outlives the process that started it.
func attributes(group bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: group} }
