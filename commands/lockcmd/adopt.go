package lockcmd

import (
	"context"
	"errors"
	"strconv"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
)

const adoptUsage = "LOCKCTL ADOPT [MATCH glob]"

// errNothingObserved is the reply to LOCKCTL ADOPT where there is nothing to be reported.
var errNothingObserved = errors.New("ERR no keys are looked at here; start the proxy with --adopt-report, or name keys with --adopt 'PATTERN mode=observe'")

// adopt is LOCKCTL ADOPT: it shows admin users which keys are used as locks.
func (c *ctl) adopt(ctx context.Context, args [][]byte) ([]byte, error) {
	if len(args) > 0 && resp.Is(args[0], "CHECK") {
		return c.adoptCheck(ctx, args[1:])
	}
	match, err := parseAdopt(args)
	if err != nil {
		return nil, err
	}
	admin, err := c.conn.IsAdmin(ctx)
	switch {
	case err != nil:
		return nil, err
	case !admin:
		return nil, errNoAdopt
	}
	r := c.verbs.opt.Observer.Report()
	if !r.On {
		return nil, errNothingObserved
	}
	if match != "" {
		r = r.Matching(match)
	}
	rows := resp.AppendArray(nil, len(r.Rows))
	for _, row := range r.Rows {
		rows = c.observedKeys(row).appendTo(rows, c.proto)
	}
	f := fields{
		text("all-traffic", yesNo(r.All)), number("seconds", r.Seconds), number("keys", r.Keys), text("full", yesNo(r.Full)),
		number("unseen-in-multi", r.Unseen.InMulti), number("unseen-in-passthrough", r.Unseen.Uncounted),
		number("keyevent-subscriptions", r.KeyEvents), {"rows", rows},
	}
	return f.appendTo(nil, c.proto), nil
}

func parseAdopt(args [][]byte) (match string, err error) {
	opts := options{rest: args, usage: adoptUsage}
	for opts.next() {
		if opts.word != "MATCH" {
			return "", opts.unknown()
		}
		if match, err = opts.bounded(0, locks.MaxName); err != nil {
			return "", err
		}
	}
	return match, opts.err
}

// observedKeys are the fields of a row.
func (c *ctl) observedKeys(r observe.Row) fields {
	hazards := resp.AppendArray(nil, len(r.Hazards))
	for _, h := range r.Hazards {
		hazards = fields{text("hazard", h.Name), number("count", h.Count), text("key", h.Key), text("means", h.Means)}.appendTo(hazards, c.proto)
	}
	return fields{
		text("keys", r.Keys), number("db", r.DB), text("example", r.Example), text("pattern", r.Pattern), text("mode", r.Mode), text("script", r.Script),
		text("idiom", r.Idiom), text("looks-like", r.Looks), number("clients", r.Clients),
		text("acquired-per-s", strconv.FormatFloat(r.Rate, 'f', 2, 64)), number("acquired", r.Acquired), number("contended", r.Contended), number("noquorum", r.NoQuorum),
		number("held", r.Held.Count), number("held-p50-ms", r.Held.P50), number("held-p99-ms", r.Held.P99), number("held-max-ms", r.Held.Most),
		number("ttl-min-ms", r.TTL.Least), number("ttl-max-ms", r.TTL.Most), number("without-ttl", r.TTL.Endless),
		text("would-be", r.Would), number("calls-adopted", r.Allowed), number("calls-refused", r.Refused), text("why", r.Why),
		{"hazards", hazards},
	}
}
