//go:build !linux

package netio

import "errors"

// A Loop is not available on this system.
type Loop struct{}

// A Watch is one socket at a Loop.
type Watch struct{}

// NewLoop fails: the system has no epoll.
func NewLoop(func()) (*Loop, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*Loop) Close() {}

// NewWatch returns a Watch that cannot start.
func (*Loop) NewWatch(Reader) *Watch { return &Watch{} }

// Start fails.
func (*Watch) Start(*Conn) error { return errors.ErrUnsupported }

// Again does nothing.
func (*Watch) Again(*Conn) error { return errors.ErrUnsupported }

// Stop does nothing.
func (*Watch) Stop() {}
