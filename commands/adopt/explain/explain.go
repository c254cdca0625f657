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

// An Explanation says what a script would do to a lock, and whether it would be adopted.
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

// A Setting is what a script is explained for. The zero Setting is a pattern with no words, at an upstream of no known version.
type Setting struct {
	Upstream idiom.Dialect
	FenceOf  idiom.FenceKey // nil: locks have no fences
	Rule     *idiom.Rule    // what the pattern allows; nil: the explanation says which setting would allow the script
	Both     bool           // mode=both, where the reply must tell whether the lock was changed
}

// sampleFence is the fence of a grant in an explanation.
const sampleFence = 4611686018427387903

// Script explains a script that is called with keys and args by a client of RESP2, lock being the lock's key.
func Script(text string, keys, args []string, lock string, set Setting) *Explanation {
	s := idiom.ParseScript(text)
	e := &Explanation{SHA1: s.SHA, Lock: lock, Adopted: No}
	call, err := s.CallOn(set.Upstream, lock, keys, args, 2, false, set.FenceOf)
	switch {
	case err != nil:
		e.Why = err.Error()
		return e
	case call == nil:
		e.Why = "it does not use the lock's key, and would go to the upstream"
		return e
	}
	call.Granted(sampleFence)
	var rows idiom.Rows
	rows, e.Class = call.Accept(time.Now())
	for _, r := range rows {
		e.Rows = append(e.Rows, explained(r, set.Rule))
	}
	if set.Rule != nil {
		if e.Why = set.whyNot(call, e); e.Why == "" {
			e.Adopted = Yes
		}
		return e
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

// whyNot is why the pattern does not allow the call; empty: it does.
func (set *Setting) whyNot(call *idiom.Call, e *Explanation) string {
	if refused := set.Rule.Allows(e.Class); refused != nil {
		return refused.Why
	}
	for _, row := range e.Rows {
		if row.Refused != "" {
			return row.Refused
		}
	}
	if !set.Both || e.Class == idiom.ReadOnly {
		return ""
	}
	if e.Class.Shares() {
		return "locks that several may have are not adopted in mode=both"
	}
	if _, refused := call.Replies(time.Now()); refused != nil {
		return refused.Why + ", which mode=both must know"
	}
	return ""
}

// explained is a row in words. rule, if there is one, gives a lock without an end its lease, or refuses it.
func explained(r idiom.Row, rule *idiom.Rule) Row {
	if r.Refused != nil {
		return Row{State: r.Name, Refused: r.Refused.Why}
	}
	op := r.Outcome.Op
	row := Row{State: r.Name, Does: op.Do.String(), Reply: strings.ReplaceAll(strings.TrimSpace(string(r.Outcome.Reply)), "\r\n", " ")}
	row.Reply = strings.ReplaceAll(row.Reply, fmt.Sprint(":", sampleFence), "the fence")
	if rule != nil && op.TTL != 0 {
		kind := r.State.Kind
		if op.Do == idiom.Enter {
			kind = idiom.Hash
		}
		lease, refused := rule.Lease(kind, op.TTL)
		if refused != nil {
			return Row{State: r.Name, Refused: refused.Why}
		}
		op.TTL = lease
	}
	if row.TTL = op.TTL.Milliseconds(); op.TTL == idiom.Forever {
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
