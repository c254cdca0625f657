package lockproxy

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fake is a client without a server. It notes what it is sent, each line with the second at which and "own" in front if that was over a
// connection of its own.
type fake struct {
	began   time.Time
	timeout time.Duration
	// answer is called for each command, without the fake's lock. It may sleep.
	answer func(ctx context.Context, c *fakeConn, args []string) (any, error)

	mu    sync.Mutex
	sent  []string
	conns []*fakeConn
}

func newFake(answer func(ctx context.Context, c *fakeConn, args []string) (any, error)) *fake {
	return &fake{began: time.Now(), answer: answer}
}

// replies is an answer that is the next of these each time, and the last one for ever. An error is one that the command gets.
func replies(all ...any) func(context.Context, *fakeConn, []string) (any, error) {
	var mu sync.Mutex
	return func(context.Context, *fakeConn, []string) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		r := all[0]
		if len(all) > 1 {
			all = all[1:]
		}
		if err, ok := r.(error); ok {
			return nil, err
		}
		return r, nil
	}
}

// grant is a reply of LOCK.
func grant(fence int64, validity time.Duration) any {
	return []any{fence, "owner", validity.Milliseconds(), int64(1)}
}

// grants is a reply of LOCKALL, for names with their fences.
func grants(validity time.Duration, namesAndFences ...any) any {
	list := []any{validity.Milliseconds(), "owner"}
	for pair := range slices.Chunk(namesAndFences, 2) {
		list = append(list, []any{pair[0], int64(pair[1].(int)), int64(1)})
	}
	return list
}

var errBroken = errors.New("broken pipe")

func (f *fake) do(ctx context.Context, c *fakeConn, args []string) (any, error) {
	line := fmt.Sprintf("%.1f %s", time.Since(f.began).Seconds(), strings.Join(args, " "))
	if c != nil {
		line = "own " + line
	}
	f.mu.Lock()
	f.sent = append(f.sent, line)
	f.mu.Unlock()
	return f.answer(ctx, c, args)
}

func (f *fake) Do(ctx context.Context, args ...string) (any, error) { return f.do(ctx, nil, args) }

func (f *fake) Timeout() time.Duration { return f.timeout }

func (f *fake) Open() Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &fakeConn{fake: f, closed: make(chan struct{})}
	f.conns = append(f.conns, c)
	return c
}

// open is how many connections are.
func (f *fake) open() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		select {
		case <-c.closed:
		default:
			n++
		}
	}
	return n
}

// last is what was sent last.
func (f *fake) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[len(f.sent)-1]
}

type fakeConn struct {
	*fake
	once   sync.Once
	closed chan struct{}
}

func (c *fakeConn) Do(ctx context.Context, args ...string) (any, error) { return c.do(ctx, c, args) }
func (c *fakeConn) Closed() <-chan struct{}                             { return c.closed }
func (c *fakeConn) Close()                                              { c.once.Do(func() { close(c.closed) }) }

// hang is the answer to a command over a connection that nothing comes from, until it is closed.
func (c *fakeConn) hang(ctx context.Context) (any, error) {
	select {
	case <-c.closed:
		return nil, errBroken
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var ownerIDs = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

// want fails unless these lines were sent. Owners are shown as A, B ... in the order of their coming.
func (f *fake) want(t *testing.T, lines ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[string]string{}
	got := ownerIDs.ReplaceAllStringFunc(strings.Join(f.sent, "\n"), func(id string) string {
		if names[id] == "" {
			names[id] = string(rune('A' + len(names)))
		}
		return names[id]
	})
	if want := strings.Join(lines, "\n"); got != want {
		t.Errorf("sent\n%s\nwant\n%s", got, want)
	}
}

// withoutChance has pauses that are no longer than they must be, until the test ends.
func withoutChance(t *testing.T) {
	t.Helper()
	before := random
	random = func(time.Duration) time.Duration { return 0 }
	t.Cleanup(func() { random = before })
}
