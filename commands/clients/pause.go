package clients

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// A Pause is whether the upstream holds clients up, after CLIENT PAUSE. A connection that many
// share would be held up by the first of them that has to wait, so until it is over every
// client uses one of its own. The zero value is none. It is safe for concurrent use.
type Pause struct {
	until atomic.Int64 // in ms since 1970; 0: not paused
}

// longestPause is the longest pause that is believed; a longer one, up to for ever,
// only costs that connections are not shared once it is over.
const longestPause = 24 * time.Hour

// Note takes over a CLIENT PAUSE or UNPAUSE that the upstream has done.
func (p *Pause) Note(args [][]byte) {
	if resp.Is(args[1], "UNPAUSE") {
		p.until.Store(0)
	} else if ms, err := strconv.ParseInt(string(args[2]), 10, 64); err == nil {
		p.until.Store(max(p.until.Load(), time.Now().UnixMilli()+min(ms, longestPause.Milliseconds())))
	}
}

// Active reports whether clients are held up.
func (p *Pause) Active() bool {
	until := p.until.Load()
	if until == 0 {
		return false
	}
	if time.Now().UnixMilli() < until {
		return true
	}
	p.until.CompareAndSwap(until, 0)
	return false
}
