package observe

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the report as a table, with what its hazards mean below.
func (r Report) WriteText(w io.Writer) error {
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
	for _, note := range r.notes() {
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

func heldText(h Held) string {
	if h.Count == 0 {
		return "–"
	}
	return shortly(h.P50) + "/" + shortly(h.P99) + "/" + shortly(h.Most)
}

func ttlText(t TTL) string {
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

func wouldBe(r Row) string {
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

func hazardsText(all []Hazard) string {
	var texts []string
	for _, h := range all {
		texts = append(texts, fmt.Sprintf("%s (%d, %s)", h.Name, h.Count, h.Key))
	}
	return cmp.Or(strings.Join(texts, "; "), "–")
}

// notes are the hazards explained, and what the report does not know.
func (r Report) notes() []string {
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
