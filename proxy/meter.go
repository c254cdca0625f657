package proxy

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/commands"
)

// Stats is what a Server has done since it was made, and has now.
type Stats struct {
	Clients   int   // connected now
	Most      int   // how many may be
	Accepted  int64 // connections
	Refused   int64 // connections that were one too many
	Unsecured int64 // TLS handshakes that failed

	Closed map[string]int64 // connections by why they ended: client (it left), quit, idle, protocol, output (it did not read), drain, killed, lost_lock, upstream

	Reads    int64 // from clients
	BytesIn  int64
	Writes   int64 // to clients
	BytesOut int64
}

// Why a connection ended: what commands.Why says, and what only this package knows.
var reasons = [...]string{"client", "quit", "protocol", "killed", "lost_lock", "upstream", "output", "idle", "drain"}

// countShards is among how many the sessions' counters are spread, so that sessions which
// run at the same time do not wait for each other's memory.
const countShards = 16

// counts are counters of some sessions.
type counts struct {
	reads, bytesIn, writes, bytesOut atomic.Int64

	_ [64]byte // what follows is another's
}

func (c *counts) read(n int) {
	if n > 0 {
		c.reads.Add(1)
		c.bytesIn.Add(int64(n))
	}
}

// wrote counts a write, unless the client's socket took nothing.
func (c *counts) wrote(n int) {
	if n > 0 {
		c.writes.Add(1)
		c.bytesOut.Add(int64(n))
	}
}

// Stats does not wait for anything.
func (s *Server) Stats() Stats {
	st := Stats{
		Clients: s.Clients(), Most: s.opt.MaxClients, Accepted: s.accepted.Load(), Refused: s.refused.Load(), Unsecured: s.unsecured.Load(),
		Closed: map[string]int64{},
	}
	for i, why := range reasons {
		st.Closed[why] = s.ends[i].Load()
	}
	for i := range s.counts {
		c := &s.counts[i]
		st.Reads += c.reads.Load()
		st.BytesIn += c.bytesIn.Load()
		st.Writes += c.writes.Load()
		st.BytesOut += c.bytesOut.Load()
	}
	return st
}

// why is why the session has ended.
func (s *session) why() string {
	switch why := s.cmds.Why(); {
	case why != commands.WhyNot:
		return why.String()
	case s.out.overflowed():
		return commands.WhyOutput.String()
	case s.srv.Draining():
		return "drain"
	case s.idled:
		return "idle"
	}
	return "client"
}

// closed counts the end of the session, which is worth a line where the client did not
// want it.
func (s *session) closed() {
	why := s.why()
	s.srv.ends[slices.Index(reasons[:], why)].Add(1)
	level := slog.LevelDebug
	switch why {
	case "output":
		level = slog.LevelWarn
	case "protocol", "idle", "upstream", "killed":
		level = slog.LevelInfo
	}
	ctx := context.Background()
	if log := s.srv.opt.Log; log.Enabled(ctx, level) {
		attrs := append(s.cmds.About(), slog.String("why", why), slog.Duration("connected", time.Since(s.since)))
		log.LogAttrs(ctx, level, "client disconnected", attrs...)
	}
}
