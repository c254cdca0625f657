// Package workers answers on which goroutine a function runs that may wait: on one that has run others before. The stack of
// a new goroutine must grow first, which is a tenth of what a LOCK costs.
package workers

import (
	"sync"
	"sync/atomic"
)

// A Pool runs functions on goroutines, and keeps some of these for the next. It is safe for concurrent use.
type Pool struct {
	most  int64
	ended <-chan struct{}

	jobs       chan func()
	idle       atomic.Int64
	goroutines sync.WaitGroup
}

// New makes a Pool that keeps so many idle goroutines at most, and none once ended is closed.
func New(most int, ended <-chan struct{}) *Pool {
	return &Pool{most: int64(most), ended: ended, jobs: make(chan func())}
}

// Go runs f on an idle goroutine, or on a new one.
func (p *Pool) Go(f func()) {
	select {
	case p.jobs <- f:
		return
	default:
	}
	p.goroutines.Go(func() {
		for f != nil {
			f()
			f = nil // a goroutine that waits keeps nothing of what it ran
			f = p.next()
		}
	})
}

// next waits for a function. It returns nil if enough others wait, or the pool is to keep none.
func (p *Pool) next() func() {
	defer p.idle.Add(-1)
	if p.idle.Add(1) > p.most {
		return nil
	}
	select {
	case f := <-p.jobs:
		return f
	case <-p.ended:
		return nil
	}
}

// Idle is how many goroutines wait for a function; for a moment it may be more than are kept.
func (p *Pool) Idle() int { return int(p.idle.Load()) }

// Wait returns when all goroutines have ended. It comes after the end of the pool and of every call of Go.
func (p *Pool) Wait() { p.goroutines.Wait() }
