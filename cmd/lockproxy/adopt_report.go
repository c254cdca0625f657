package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/commands/adopt/observe"
	"github.com/lockproxy/lockproxy/proxy"
)

const reportUsage = `lockproxy adopt report [--json] ADDRESS

Ask the admin server of a proxy which keys are used as locks, how, and what adoption would make of them. ADDRESS is
what the proxy's --admin says: host:port, the path of a Unix socket, or http:// or https:// in front of the former. The
password of its --admin-password is taken from LOCKPROXY_ADMIN_PASSWORD. The exit code is 0 if there is a report,
2 if the proxy cannot be asked or looks at nothing, and 64 for a fault in the command line.`

const (
	reportTimeout = 10 * time.Second
	maxReport     = 16 << 20 // bytes
)

func (p program) reportCommand() *cli.Command {
	return &cli.Command{
		Name: "report", Usage: "which keys are used as locks, as a proxy has seen",
		UsageText: reportUsage, OnUsageError: onMisuse, HideHelpCommand: true,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print what the admin server answers"}},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return &exitError{exitMisuse, errors.New("adopt report takes the address of an admin server")}
			}
			ctx, cancel := context.WithTimeout(c.Context, reportTimeout)
			defer cancel()
			text, err := askReport(ctx, c.Args().First(), os.Getenv("LOCKPROXY_ADMIN_PASSWORD"))
			if err != nil {
				return &exitError{exitErrors, err}
			}
			var r observe.Report
			if err := json.Unmarshal(text, &r); err != nil {
				return &exitError{exitErrors, fmt.Errorf("%s does not answer with a report: %w", c.Args().First(), err)}
			}
			if !r.On {
				return &exitError{exitErrors, errors.New("this proxy looks at nothing; start it with --adopt-report, or name keys with --adopt 'PATTERN mode=observe'")}
			}
			if c.Bool("json") {
				_, err = p.stdout.Write(text)
				return err
			}
			return showReport(p.stdout, r)
		},
	}
}

// askReport returns what the admin server at an address answers.
func askReport(ctx context.Context, at, password string) ([]byte, error) {
	network, address := dialAddress(at)
	target := "http://localhost/page/adopt"
	if strings.HasPrefix(at, "http://") || strings.HasPrefix(at, "https://") {
		u, err := url.Parse(at)
		if err != nil {
			return nil, errors.New("the address is no URL")
		}
		network, address = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
		target = u.Scheme + "://" + u.Host + "/page/adopt"
	} else if !proxy.IsSocketPath(at) {
		target = "http://" + address + "/page/adopt"
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	if password != "" {
		q.SetBasicAuth("operator", password)
	}
	answer, err := client.Do(q)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxReport))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", address, answer.Status, strings.TrimSpace(string(text)))
	}
	return text, err
}

// showReport prints the table of docs/adopt.md.
func showReport(w io.Writer, r observe.Report) error {
	if len(r.Rows) == 0 {
		_, err := fmt.Fprintf(w, "nothing that looks like a lock has come by in %v\n", time.Duration(r.Seconds)*time.Second)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEYS\tIDIOM\tLOOKS LIKE\tCLIENTS\tACQ/s\tHELD p50/p99/max\tTTL\tWOULD BE\tHAZARDS")
	for _, row := range r.Rows {
		keys := row.Keys
		if row.DB != 0 {
			keys += fmt.Sprintf(" (db %d)", row.DB)
		}
		fmt.Fprintln(t, strings.Join([]string{keys, row.Idiom, cmp.Or(row.Looks, "–"), strconv.Itoa(row.Clients), perSecond(row.Rate), heldText(row.Held), ttlText(row.TTL), wouldBe(row), hazardsText(row.Hazards)}, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, note := range reportNotes(r) {
		if _, err := fmt.Fprintln(w, note); err != nil {
			return err
		}
	}
	return nil
}

func perSecond(rate float64) string {
	if rate >= 10 || rate == 0 {
		return strconv.FormatFloat(rate, 'f', 0, 64)
	}
	return strconv.FormatFloat(rate, 'g', 2, 64)
}

// shortly is a time in milliseconds in at most three digits and a unit.
func shortly(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case ms < 1000:
		return fmt.Sprintf("%dms", ms)
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'g', 2, 64) + "s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	default:
		return fmt.Sprintf("%.0fh", d.Hours())
	}
}

func heldText(h observe.Held) string {
	if h.Count == 0 {
		return "–"
	}
	return shortly(h.P50) + "/" + shortly(h.P99) + "/" + shortly(h.Most)
}

func ttlText(t observe.TTL) string {
	switch {
	case t.Most == 0 && t.Endless > 0:
		return "none"
	case t.Most == 0:
		return "–"
	case t.Least == t.Most:
		return shortly(t.Most)
	}
	return shortly(t.Least) + "–" + shortly(t.Most)
}

func wouldBe(r observe.Row) string {
	says := cmp.Or(r.Would, "not known")
	if r.Mode == "on" {
		says = "is " + says
	}
	if r.Would == "partly refused" {
		says += fmt.Sprintf(" (%d of %d)", r.Refused, r.Refused+r.Allowed)
	}
	if r.Why != "" {
		says += ": " + r.Why
	}
	return says
}

func hazardsText(all []observe.Hazard) string {
	var texts []string
	for _, h := range all {
		texts = append(texts, fmt.Sprintf("%s (%d, %s)", h.Name, h.Count, h.Key))
	}
	return cmp.Or(strings.Join(texts, "; "), "–")
}

// reportNotes are the hazards explained, and what the report does not know.
func reportNotes(r observe.Report) []string {
	var notes []string
	for _, row := range r.Rows {
		for _, h := range row.Hazards {
			if note := h.Name + ": " + h.Means; !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	slices.Sort(notes)
	if len(notes) > 0 {
		notes = append([]string{""}, notes...)
	}
	if n := r.Unseen.InMulti + r.Unseen.Uncounted; n > 0 {
		notes = append(notes, fmt.Sprintf("%d commands were not seen through: %d inside MULTI, %d on connections with subscriptions and the like", n, r.Unseen.InMulti, r.Unseen.Uncounted))
	}
	if r.KeyEvents > 0 {
		notes = append(notes, fmt.Sprintf("%d subscriptions to __keyevent channels, which name no key: adopted keys have no such events", r.KeyEvents))
	}
	if r.Full {
		notes = append(notes, "so many keys are followed that the oldest are forgotten")
	}
	return notes
}
