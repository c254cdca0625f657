package recipes

import (
	"context"
	_ "embed"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed take.lua
var takeLua string

//go:embed later.lua
var laterLua string

var take, later = redis.NewScript(takeLua), redis.NewScript(laterLua)

// A Queue holds jobs until they are due. A job is a string, "id@resource", and different
// from all others.
type Queue struct {
	Redis *redis.Client
	Key   string
	TTL   time.Duration // how long a job may take
}

// Run does the job now, or puts it off until the lock it needs should be free. It is what a
// request does instead of waiting.
func (q *Queue) Run(ctx context.Context, job string, do func(context.Context, *Grant) error) error {
	// The job is stored before it is begun: it is not lost if we die.
	if err := q.later(ctx, job, q.TTL, "NX"); err != nil {
		return err
	}
	return q.begin(ctx, job, do)
}

// Work runs one job that is due. It returns redis.Nil when there is none.
func (q *Queue) Work(ctx context.Context, do func(ctx context.Context, job string, lock *Grant) error) error {
	job, err := take.Run(ctx, q.Redis, []string{q.Key}, q.TTL.Milliseconds()).Text()
	if err != nil {
		return err
	}
	return q.begin(ctx, job, func(ctx context.Context, lock *Grant) error { return do(ctx, job, lock) })
}

func (q *Queue) begin(ctx context.Context, job string, do func(context.Context, *Grant) error) error {
	_, resource, _ := strings.Cut(job, "@")
	lock, err := Lock(ctx, q.Redis, resource, q.TTL, 0)
	if held := (*Held)(nil); errors.As(err, &held) {
		return q.later(ctx, job, held.Remaining, "XX")
	}
	if err != nil {
		return err // the job is shown again after q.TTL
	}
	defer lock.Unlock(ctx)
	// Another worker, slower than q.TTL, may have finished it while we asked for the lock.
	if err := q.Redis.ZScore(ctx, q.Key, job).Err(); errors.Is(err, redis.Nil) {
		return nil
	} else if err != nil {
		return err
	}
	return do(ctx, lock)
}

func (q *Queue) later(ctx context.Context, job string, d time.Duration, when string) error {
	return later.Run(ctx, q.Redis, []string{q.Key}, job, d.Milliseconds(), when).Err()
}
