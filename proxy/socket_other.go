//go:build !linux

package proxy

import "syscall"

// setUserTimeout does nothing where there is no TCP_USER_TIMEOUT.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
