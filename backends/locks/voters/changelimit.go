package voters

import (
	"log/slog"
	"time"
)

const (
	changeLines  = 8                // changes that have a line each: two restarts of a node
	changesEvery = time.Minute      // between two lines after those
	changesCalm  = 10 * time.Second // without a change: then there is a line all the same
)

// A changeLimit bounds the lines about something that comes and goes. The first changes have a line each. After them a line is due
// once a minute, and when the last change has lasted for 10 s, so that the last line tells how things are. A minute without
// a change begins anew. Its zero value is ready.
type changeLimit struct {
	lines              int // written, since a minute passed without a change
	unwritten          int // changes since the last line
	written, changedAt time.Duration
}

// due reports whether a line is to be written now, and how many changes since the last line had none. changed says that
// something has just changed. It is called from time to time without a change too.
func (l *changeLimit) due(changed bool, now time.Duration) (leftOut int, write bool) {
	if changed {
		if now-l.changedAt >= changesEvery {
			l.lines = 0
		}
		l.changedAt = now
		l.unwritten++
	}
	if l.unwritten == 0 || l.lines >= changeLines && now-l.written < changesEvery && now-l.changedAt < changesCalm {
		return 0, false
	}
	leftOut = l.unwritten - 1
	l.lines, l.unwritten, l.written = l.lines+1, 0, now
	return leftOut, true
}

// withLeftOut adds how many changes had no line.
func withLeftOut(attrs []slog.Attr, leftOut int) []slog.Attr {
	if leftOut == 0 {
		return attrs
	}
	return append(attrs, slog.Int("left_out", leftOut))
}
