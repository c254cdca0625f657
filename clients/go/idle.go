package lockproxy

import (
	"slices"
	"sync"
	"time"
)

const (
	maxIdle  = 8
	idleTime = time.Second
)

// idle are connections that LOCKs have waited on, for the next ones that wait. The zero value has none.
type idle struct {
	mu    sync.Mutex
	conns []Conn // the last one was used last
}

// get takes a connection that is open, as far as is known; nil: there is none.
func (i *idle) get() Conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.conns) > 0 {
		last := len(i.conns) - 1
		c := i.conns[last]
		i.conns[last], i.conns = nil, i.conns[:last]
		select {
		case <-c.Closed():
			c.Close()
		default:
			return c
		}
	}
	return nil
}

// put keeps a connection for a while, unless there are enough.
func (i *idle) put(c Conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.conns) == maxIdle {
		go c.Close()
		return
	}
	i.conns = append(i.conns, c)
	time.AfterFunc(idleTime, func() { i.expire(c) })
}

// expire ends a connection that has not been taken. One that was taken and put back meanwhile ends early.
func (i *idle) expire(c Conn) {
	i.mu.Lock()
	n := slices.Index(i.conns, c)
	if n >= 0 {
		i.conns = slices.Delete(i.conns, n, n+1)
	}
	i.mu.Unlock()
	if n >= 0 {
		c.Close()
	}
}
