package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/migrate"
)

const adoptCheckUsage = "LOCKCTL ADOPT CHECK [WATCH time]"

// longestWatch bounds WATCH.
const longestWatch = time.Hour

// errNothingAdopted is the reply to LOCKCTL ADOPT CHECK where there is nothing to look at.
var errNothingAdopted = errors.New("ERR no keys are adopted here; name them with --adopt")

// adoptCheck is LOCKCTL ADOPT CHECK: it tells admin users what is in the way of the next mode of each pattern.
func (c *ctl) adoptCheck(ctx context.Context, args [][]byte) ([]byte, error) {
	watch, err := parseAdoptCheck(args)
	if err != nil {
		return nil, err
	}
	admin, err := c.conn.IsAdmin(ctx)
	switch {
	case err != nil:
		return nil, err
	case !admin:
		return nil, errNoAdopt
	case c.verbs.opt.Migration == nil:
		return nil, errNothingAdopted
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.conn.Present(), cancel)()
	r, err := c.verbs.opt.Migration.Check(ctx, c.db, watch)
	if err != nil {
		return nil, fmt.Errorf("ERR what is in the way could not be found out: %w", err)
	}
	rows := resp.AppendArray(nil, len(r.Rows))
	for _, row := range r.Rows {
		rows = c.migrationRow(row).appendTo(rows, c.proto)
	}
	return rows, nil
}

func parseAdoptCheck(args [][]byte) (watch time.Duration, err error) {
	opts := options{rest: args, usage: adoptCheckUsage}
	for opts.next() {
		if opts.word != "WATCH" {
			return 0, opts.unknown()
		}
		if watch, err = opts.time(); err == nil && watch > longestWatch {
			err = fmt.Errorf("ERR WATCH is longer than %v", longestWatch)
		}
		if err != nil {
			return 0, err
		}
	}
	return watch, opts.err
}

func (c *ctl) migrationRow(r migrate.Row) fields {
	proxies := resp.AppendArray(nil, len(r.Proxies))
	for _, p := range r.Proxies {
		proxies = fields{text("proxy", p.Name), text("mode", p.Mode), number("seconds", int64(p.Since.Seconds()))}.appendTo(proxies, c.proto)
	}
	steps := resp.AppendArray(nil, len(r.Steps))
	for _, s := range r.Steps {
		steps = fields{text("to", s.To), text("safe", yesNo(len(s.InTheWay) == 0)), text("says", s.Text())}.appendTo(steps, c.proto)
	}
	return fields{
		text("pattern", r.Pattern), text("mode", r.Mode), {"proxies", proxies},
		number("upstream-alone", r.Upstream.Count), text("upstream-example", r.Upstream.Example),
		number("nodes-alone", r.Nodes.Count), text("nodes-example", r.Nodes.Example), {"steps", steps},
	}
}
