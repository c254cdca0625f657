package admin

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// A loginThrottle blocks clients that fail to log in too often: maxFailures within
// throttleTime, until that time is over. It is safe for concurrent use.
type loginThrottle struct {
	mu       sync.Mutex
	byClient *lru.Cache[string, loginFailures]
}

// loginFailures are those of one client since the first.
type loginFailures struct {
	first time.Time
	n     int
}

const (
	throttleTime = time.Minute
	maxFailures  = 10
	maxThrottled = 1024
)

func newLoginThrottle() *loginThrottle {
	byClient, _ := lru.New[string, loginFailures](maxThrottled) // its only error is a size of 0
	return &loginThrottle{byClient: byClient}
}

// blocked reports whether a client has failed too often.
func (t *loginThrottle) blocked(client string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, ok := t.byClient.Get(client)
	return ok && was.n >= maxFailures && time.Since(was.first) < throttleTime
}

func (t *loginThrottle) failed(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, ok := t.byClient.Get(client)
	if !ok || time.Since(was.first) >= throttleTime {
		was = loginFailures{first: time.Now()}
	}
	was.n++
	t.byClient.Add(client, was)
}

func (t *loginThrottle) reset(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byClient.Remove(client)
}
