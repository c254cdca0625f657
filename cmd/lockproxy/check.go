package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/backends/check"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
)

// The exit codes of check, besides exit.OK with nothing worse than notes, and exit.Misuse for
// faults in the settings or the command line.
const (
	exitWarnings = 1
	exitErrors   = 2
)

func (p program) checkCommand() *cli.Command {
	cmd := p.command("check", "look at the upstream and the lock nodes or etcd, change nothing, and say what would hurt", 0, func(c *cli.Context, o options) error {
		return p.check(c.Context, o, c.String("format"))
	})
	cmd.Flags = append(cmd.Flags, &cli.StringFlag{Name: "format", Usage: "text or json", Value: "text"})
	cmd.OnUsageError = onMisuse
	inner := cmd.Action
	cmd.Action = func(c *cli.Context) error {
		err := inner(c)
		if own := (*exit.Error)(nil); err != nil && !errors.As(err, &own) {
			return exit.With(exit.Misuse, err)
		}
		return err
	}
	return cmd
}

// check prints its findings. Its error, if any, is an *exit.Error or that of the format.
func (p program) check(ctx context.Context, o options, format string) error {
	show, ok := map[string]func(io.Writer, *check.Report) error{"text": showText, "json": showJSON}[format]
	if !ok {
		return usageError{fmt.Errorf("format: %q is not one of text, json", format)}
	}
	log := newLogger(p.stderr, o)
	o = o.withTLS(log)
	r := check.Run(ctx, check.Options{
		Upstream: o.upstream, Mode: o.mode, Nodes: o.nodes, UpstreamVotes: o.upstreamVotes, Members: o.store.Members(voterOptions(o, log), o.serverTLS),
		SentinelUser: o.sentinelUser, SentinelPassword: o.sentinelPassword,
		MaxTTL: o.maxTTL, NodeTimeout: o.nodeTimeout, Prefix: o.prefix,
		Strict: o.bootstrap == voters.BootstrapStrict, Available: o.restartGrace == voters.GraceAvailable, ReplicaAcks: o.replicaAcks,
		MaxClients: o.maxClients, Unshared: o.upstreamConns == 0, Certificates: certificatesToCheck(o.ownCertificates(log)),
		Exposed: o.exposed, Unguarded: o.unguarded(), Conflicts: o.conflicts,
	})
	if err := show(p.stdout, r); err != nil {
		return exit.With(exitErrors, err)
	}
	switch r.Worst() {
	case check.Error:
		return exit.Silently(exitErrors)
	case check.Warning:
		return exit.Silently(exitWarnings)
	}
	return nil
}

// showText prints a line for each server that was checked, and two for each finding.
func showText(w io.Writer, r *check.Report) error {
	var b strings.Builder
	for _, l := range r.Servers {
		if l.LongestMS == 0 {
			continue
		}
		fmt.Fprintf(&b, "looked at %s: %sround trip %.2fms, longest %.2fms", l.Where, release(l), l.MedianMS, l.LongestMS)
		if l.WithinMS > 0 {
			fmt.Fprintf(&b, ", clock %+.2fms ±%.2fms", l.ClockMS, l.WithinMS)
		}
		b.WriteByte('\n')
	}
	counts := map[check.Severity]int{}
	for _, f := range r.Findings {
		counts[f.Severity]++
		fmt.Fprintf(&b, "%s: %s: %s [%s]\n", f.Severity, f.Where, f.Problem, f.ID)
		if f.Fix != "" {
			fmt.Fprintf(&b, "  fix: %s\n", f.Fix)
		}
	}
	if len(r.Findings) == 0 {
		b.WriteString("nothing found that would hurt\n")
	} else {
		fmt.Fprintf(&b, "%s, %s, %s\n", plural(counts[check.Error], "error"), plural(counts[check.Warning], "warning"), plural(counts[check.Note], "note"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// release is a server's software and version, if known.
func release(l check.Measurement) string {
	if l.Version == "" {
		return ""
	}
	return l.Software + " " + l.Version + ", "
}

// showJSON prints the report as one JSON object.
func showJSON(w io.Writer, r *check.Report) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
