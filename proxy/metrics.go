package proxy

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// reasons are why connections end: those of commands.Session.Why, and those only known here.
var reasons = [...]string{"client", "quit", "protocol", "killed", "lost_lock", "upstream", "output", "idle", "drain"}

// Report implements metrics.Reporter.
func (s *Server) Report(r *metrics.Report) {
	r.Gauge("lockproxy_clients", "Clients that are connected.", float64(s.Clients()))
	r.Gauge("lockproxy_clients_most", "Clients that may be connected at once: max-clients.", float64(s.opt.MaxClients))
	r.Counter("lockproxy_clients_accepted_total", "Clients that have connected.", s.accepted.Load())
	r.Counter("lockproxy_clients_refused_total", "Clients that were turned away, since max-clients were connected.", s.refused.Load())
	r.Counter("lockproxy_clients_unsecured_total", "Clients whose TLS handshake failed.", s.unsecured.Load())
	r.Counters("lockproxy_clients_closed_total", "Clients that are gone: client, they left; quit; idle, for longer than idle-timeout; protocol, they broke it; output, they did not read; drain, the proxy ends; killed; lost_lock, a lock with SESSION was, and its client is told so; upstream, what they had there is lost.",
		"reason", reasons[:], s.ends[:])
	for c := range s.traffic.All() {
		r.Counter("lockproxy_client_reads_total", "Reads from clients; each brings a burst of commands, or a part of one.", c.Reads.Load())
		r.Counter("lockproxy_client_writes_total", "Writes to clients.", c.Writes.Load())
		r.Counter("lockproxy_client_received_bytes_total", "Bytes received from clients.", c.BytesIn.Load())
		r.Counter("lockproxy_client_sent_bytes_total", "Bytes sent to clients.", c.BytesOut.Load())
	}
}

// why is the reason for which the session has ended.
func (s *session) why() string {
	switch why := s.cmds.Why(); {
	case why != "":
		return why
	case s.out.Overflowed():
		return "output"
	case s.srv.Draining():
		return "drain"
	case s.idled:
		return "idle"
	}
	return "client"
}

// closed counts the end of the session, and logs it: at a higher level where the client
// did not want it.
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
