// Package exit has the exit codes that lockproxy's commands share, and the errors that carry them.
package exit

import "fmt"

// What a process ends with. Those from 64 on are those of sysexits.h.
const (
	OK           = 0
	Failed       = 1  // it could not do what was asked
	Usage        = 2  // the command line or the settings have faults; nothing was started
	Misuse       = 64 // the command line has faults, or the proxy refused the request as one
	Unavailable  = 69 // no quorum, or no proxy
	Lost         = 70 // the lock was lost while the command ran
	Busy         = 75 // another owner has the lock
	NoPermission = 77 // the proxy refused the user
)

// An Error ends the process with a code of its own.
type Error struct {
	Code int
	Err  error // nil: nothing is printed
}

// With is err with an exit code.
func With(code int, err error) *Error { return &Error{Code: code, Err: err} }

// Silently ends the process with a code and prints nothing.
func Silently(code int) *Error { return &Error{Code: code} }

func (e *Error) Error() string { return fmt.Sprint(e.Err) }

// Unwrap returns the error without its code.
func (e *Error) Unwrap() error { return e.Err }
