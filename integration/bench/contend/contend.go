package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// errRetry wraps what makes a contender try again by itself.
var errRetry = errors.New("not this time")

// A contest is what the contenders of one run share.
type contest struct {
	hold       time.Duration
	start, end time.Time // of what counts
	inside     atomic.Int32
	overlaps   atomic.Int64
	retries    atomic.Int64
	left       atomic.Int64
	all        atomic.Int64
}

// patience is how long after the end a contender may wait for the turn it has begun.
const patience = 5 * time.Second

// contend runs all side by side. The first error ends it.
func contend(all []contender, hold, warm, d time.Duration) (Result, error) {
	c := &contest{hold: hold, start: time.Now().Add(warm)}
	c.end = c.start.Add(d)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	waiting, stop := context.WithDeadline(ctx, c.end.Add(patience))
	defer stop()
	waits := make([][]time.Duration, len(all))
	var running sync.WaitGroup
	for i, one := range all {
		running.Go(func() {
			for time.Now().Before(c.end) && ctx.Err() == nil {
				if err := c.turn(waiting, one, &waits[i]); err != nil && waiting.Err() != nil {
					c.left.Add(1)
				} else if err != nil {
					cancel(err)
				}
			}
		})
	}
	running.Wait()
	r := Result{Took: d, Retries: int(c.retries.Load()), Overlaps: int(c.overlaps.Load()), Left: int(c.left.Load()), All: int(c.all.Load())}
	for _, w := range waits {
		r.Got = append(r.Got, len(w))
		r.Waits = append(r.Waits, w...)
	}
	return r, context.Cause(ctx)
}

// turn is one acquisition. One that is late for the end still takes place.
func (c *contest) turn(ctx context.Context, one contender, waits *[]time.Duration) error {
	asked := time.Now()
	release, err := one.acquire(ctx)
	for errors.Is(err, errRetry) && ctx.Err() == nil {
		c.retries.Add(1)
		release, err = one.acquire(ctx)
	}
	if err != nil {
		return err
	}
	granted := time.Now()
	c.all.Add(1)
	if granted.After(c.start) && granted.Before(c.end) {
		*waits = append(*waits, granted.Sub(asked))
	}
	if c.inside.Add(1) > 1 {
		c.overlaps.Add(1)
	}
	time.Sleep(c.hold)
	c.inside.Add(-1)
	return release()
}
