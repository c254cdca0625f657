// Package explain says what a script would do to a lock, and whether it would be adopted, to people
// and to programs.
package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// An Explanation is what there is to say of a script.
type Explanation struct {
	SHA1    string      `json:"sha1"`
	Lock    string      `json:"lock"` // its key
	Class   idiom.Class `json:"class,omitempty"`
	Adopted string      `json:"adopted"` // yes, not strict, only full, or no
	Why     string      `json:"why,omitempty"`
	Rows    []Row       `json:"rows,omitempty"`
}

// A Row is what the script does in one state of the lock.
type Row struct {
	State   string   `json:"state"`
	Does    string   `json:"does,omitempty"`
	TTL     int64    `json:"ttl_ms,omitempty"` // that it asks for; -1: without an end
	Signals []string `json:"signals,omitempty"`
	Reply   string   `json:"reply,omitempty"`
	Refused string   `json:"refused,omitempty"`
}

// The values of Explanation.Adopted.
const (
	Yes     = "yes"
	Usually = "not strict"
	Fully   = "only full"
	No      = "no"
)

// Script explains a script that is called with keys and args by a client of RESP2, lock being the lock's key, where the
// upstream is of that version.
func Script(text string, keys, args []string, lock string, upstream idiom.Dialect) *Explanation {
	s := idiom.ParseScript(text)
	e := &Explanation{SHA1: s.SHA, Lock: lock, Adopted: No}
	call, err := s.CallOn(upstream, lock, keys, args, 2, false, nil)
	switch {
	case err != nil:
		e.Why = err.Error()
		return e
	case call == nil:
		e.Why = "it does not use the lock's key, and would go to the upstream"
		return e
	}
	var rows idiom.Rows
	rows, e.Class = call.Accept(time.Now())
	for _, r := range rows {
		e.Rows = append(e.Rows, explained(r))
	}
	switch {
	case idiom.Strict.Allows(e.Class):
		e.Adopted = Yes
	case idiom.Usual.Allows(e.Class):
		e.Adopted, e.Why = Usually, "it does not compare the value"
	case idiom.Full.Allows(e.Class):
		e.Adopted, e.Why = Fully, "it replaces another's lock"
	default:
		e.Why = "what it does to a lock is not clear"
	}
	return e
}

func explained(r idiom.Row) Row {
	if r.Refused != nil {
		return Row{State: r.Name, Refused: r.Refused.Why}
	}
	row := Row{State: r.Name, Does: r.Outcome.Op.Do.String(), Reply: strings.ReplaceAll(strings.TrimSpace(string(r.Outcome.Reply)), "\r\n", " ")}
	if row.TTL = r.Outcome.Op.TTL.Milliseconds(); r.Outcome.Op.TTL == idiom.Forever {
		row.TTL = -1
	}
	for _, signal := range r.Outcome.Signals {
		row.Signals = append(row.Signals, strings.ToUpper(signal[0])+" "+strings.Join(signal[1:], " "))
	}
	return row
}

// WriteText prints a table of what the script does in each state, and whether it is adopted.
func (e *Explanation) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "SHA-1 %s\n", e.SHA1)
	if len(e.Rows) > 0 {
		fmt.Fprintf(t, "\nTHE LOCK IS\tIT WOULD\tAND ANSWER\n")
	}
	for _, r := range e.Rows {
		does := r.Does
		switch {
		case r.Refused != "":
			does = "be refused: " + r.Refused
		case r.TTL < 0:
			does += " without an end"
		case r.TTL > 0:
			does += " for " + (time.Duration(r.TTL) * time.Millisecond).String()
		}
		for _, signal := range r.Signals {
			does += ", " + signal
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.State, does, r.Reply)
	}
	says := map[string]string{Yes: "adopted", Usually: "adopted, but not with as=strict: ", Fully: "adopted, but only with as=full: ", No: "not adopted: "}[e.Adopted] + e.Why
	if e.Class != "" {
		says = "class " + string(e.Class) + ", " + says
	}
	fmt.Fprintf(t, "\n%s\n", says)
	return t.Flush()
}

// WriteJSON prints the explanation as one JSON object.
func (e *Explanation) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(e)
}
