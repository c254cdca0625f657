// Package inspect asks a running lockproxy what people want to know of it, and writes the answers for them: who holds what,
// why somebody does not get a lock, how the lock nodes are, and all of it as it changes.
//
// It is LOCKCTL (docs/lockctl.md) in tables. What clients chose, such as names and INFO texts, is shown without control characters.
package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/client"
)

// A Lock is a lock that is held, as LOCKCTL LIST tells of it. Times are in milliseconds.
type Lock struct {
	Name      string `json:"name"`
	Owner     string `json:"owner"` // empty: it is not for this user
	Fence     int64  `json:"fence"`
	Holds     int64  `json:"holds"`
	Held      int64  `json:"held_ms"`
	Remaining int64  `json:"remaining_ms"`
	Waiters   int64  `json:"waiters"` // at the proxy that was asked
	Readers   int64  `json:"readers,omitempty"`
	Votes     int64  `json:"votes"`
	Session   bool   `json:"session"` // renewed by the proxy that was asked
	Adopted   string `json:"adopted,omitempty"`
	Info      string `json:"info"`
}

// page is COUNT of a LOCKCTL LIST: a reply of so many locks is far below what a client.Conn takes.
const page = 500

// Locks are the locks whose names match a glob, by name, each once. If there are more than most it stops, and more is true.
func Locks(ctx context.Context, c *client.Conn, glob string, most int) (locks []Lock, more bool, err error) {
	seen := map[string]bool{}
	for cursor := ""; cursor != "0"; {
		args := []string{"LOCKCTL", "LIST", "MATCH", glob, "COUNT", strconv.Itoa(page)}
		if cursor != "" {
			args = append(args, "CURSOR", cursor)
		}
		v, err := c.Ask(ctx, args...)
		if err != nil {
			return nil, false, err
		}
		if len(v.Elems) != 2 {
			return nil, false, errAnswer("LOCKCTL LIST")
		}
		for _, e := range v.Elems[1].Elems {
			l := lockOf(e)
			switch {
			case seen[l.Name]: // a node took the place of another
			case len(locks) == most:
				more = true
			default:
				seen[l.Name] = true
				locks = append(locks, l)
			}
		}
		if cursor = v.Elems[0].Text; more {
			break
		}
	}
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Name, b.Name) })
	return locks, more, nil
}

func errAnswer(command string) error {
	return fmt.Errorf("%s: not the answer of a lockproxy", command)
}

func lockOf(v resp.Tree) Lock {
	return Lock{
		Name: v.Field("name").Text, Owner: v.Field("owner").Text, Info: v.Field("info").Text, Adopted: v.Field("adopted").Text,
		Fence: number(v, "fence"), Holds: number(v, "holds"), Held: number(v, "held-ms"), Remaining: number(v, "remaining-ms"),
		Waiters: number(v, "waiters"), Readers: number(v, "readers"), Votes: number(v, "votes"), Session: v.Field("session").Text == "yes",
	}
}

func number(v resp.Tree, field string) int64 {
	n, _ := strconv.ParseInt(v.Field(field).Text, 10, 64)
	return n
}

// Orders are the names of the orders in which locks can be shown.
var Orders = []string{"name", "held", "left", "waiting"}

// Sort orders locks by one of Orders: those that are held for long, end soon, or have many waiting for them come first.
func Sort(locks []Lock, by string) {
	slices.SortStableFunc(locks, func(a, b Lock) int {
		switch by {
		case "held":
			return cmp.Compare(b.Held, a.Held)
		case "left":
			return cmp.Compare(a.Remaining, b.Remaining)
		case "waiting":
			return cmp.Compare(b.Waiters, a.Waiters)
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

// WriteLocks writes a table of locks.
func WriteLocks(w io.Writer, locks []Lock) error {
	rows := make([][]string, 0, len(locks))
	for _, l := range locks {
		by := ""
		if l.Session {
			by = "session"
		}
		if l.Adopted != "" {
			by = "adopted " + l.Adopted
		}
		readers, held := "", l.Holds > 0 // else it is only read, and nothing is known of an owner
		if l.Readers > 0 {
			readers = strconv.FormatInt(l.Readers, 10)
		}
		rows = append(rows, []string{l.Name, l.Owner, only(held, short(l.Held)), only(held || l.Readers > 0, short(l.Remaining)), strconv.FormatInt(l.Waiters, 10), by,
			only(held, strconv.FormatInt(l.Holds, 10)), readers, only(held, strconv.FormatInt(l.Votes, 10)), only(held, strconv.FormatInt(l.Fence, 10)), l.Info})
	}
	return table(w, []string{"NAME", "OWNER", "HELD", "LEFT", "WAITING", "KIND", "HOLDS", "SHARED", "VOTES", "FENCE", "INFO"}, rows)
}

// only is a text if it means something, else nothing.
func only(means bool, text string) string {
	if means {
		return text
	}
	return ""
}

// Why writes what LOCKCTL WHY says of a name.
func Why(ctx context.Context, c *client.Conn, w io.Writer, name string) error {
	v, err := c.Ask(ctx, "LOCKCTL", "WHY", name)
	for _, line := range v.Elems {
		if err == nil {
			_, err = fmt.Fprintln(w, client.Printable(line.Text))
		}
	}
	return err
}

// Force takes a lock away, and returns it as it was. Had nobody the lock, ok is false.
func Force(ctx context.Context, c *client.Conn, name string) (l Lock, ok bool, err error) {
	v, err := c.Ask(ctx, "LOCKCTL", "FORCE", name)
	return lockOf(v), err == nil && len(v.Elems) > 0, err
}

// Info is a lock as it is. Has nobody the lock, ok is false.
func Info(ctx context.Context, c *client.Conn, name string) (l Lock, ok bool, err error) {
	v, err := c.Ask(ctx, "LOCKCTL", "INFO", name)
	return lockOf(v), err == nil && len(v.Elems) > 0, err
}

// A Quorum is the lock nodes as a proxy sees them.
type Quorum struct {
	Voting int64  `json:"voting"`
	Needed int64  `json:"needed"`
	Hint   string `json:"hint,omitempty"`
	Nodes  []Node `json:"nodes"`
}

// A Node is a lock node. Times are in milliseconds, Answered in microseconds.
type Node struct {
	Address    string `json:"address"`
	Kind       string `json:"kind"`
	Up         bool   `json:"up"` // it answered when last asked
	State      string `json:"state"`
	For        int64  `json:"state_ms"` // for how long the proxy has seen it so
	Quarantine int64  `json:"quarantine_ms"`
	Doubt      int64  `json:"doubt_ms"`
	Answered   int64  `json:"answered_in_us"`
	Queued     int64  `json:"queued"`
	Fence      int64  `json:"largest_fence"`
	Error      string `json:"error,omitempty"`
}

// Nodes asks how the lock nodes are.
func Nodes(ctx context.Context, c *client.Conn) (Quorum, error) {
	v, err := c.Ask(ctx, "LOCKCTL", "NODES")
	if err != nil {
		return Quorum{}, err
	}
	q := Quorum{Voting: number(v, "voting"), Needed: number(v, "needed"), Hint: v.Field("hint").Text}
	for _, n := range v.Field("nodes").Elems {
		q.Nodes = append(q.Nodes, Node{
			Address: n.Field("address").Text, Kind: n.Field("kind").Text, Up: n.Field("up").Text == "yes", State: n.Field("state").Text, Error: n.Field("error").Text,
			For: number(n, "state-ms"), Quarantine: number(n, "quarantine-ms"), Doubt: number(n, "doubt-ms"), Answered: number(n, "answered-in-us"),
			Queued: number(n, "queued"), Fence: number(n, "largest-fence"),
		})
	}
	if len(q.Nodes) == 0 {
		return q, errAnswer("LOCKCTL NODES")
	}
	return q, nil
}

// Write writes whether a majority votes, and a table of the nodes.
func (q Quorum) Write(w io.Writer) error {
	said := "a majority votes"
	switch {
	case q.Voting < q.Needed:
		said = "NO QUORUM: no lock is granted"
	case q.Voting == q.Needed && q.Voting < int64(len(q.Nodes)):
		said = "one loss more, and no lock is granted"
	}
	_, err := fmt.Fprintf(w, "%d of %d nodes vote, %d are needed: %s\n", q.Voting, len(q.Nodes), q.Needed, said)
	if err == nil && q.Hint != "" {
		_, err = fmt.Fprintf(w, "%s\n", client.Printable(q.Hint))
	}
	if err != nil {
		return err
	}
	var rows [][]string
	for _, n := range q.Nodes {
		until, doubt, answered, why := "", "", "–", n.Error
		if n.Quarantine > 0 {
			until = short(n.Quarantine)
		}
		if n.Doubt > 0 {
			doubt = short(n.Doubt)
		}
		if n.Up {
			answered = time.Duration(n.Answered * int64(time.Microsecond)).String()
		}
		if strings.Contains(n.State, why) || n.State == "quarantine" { // another column says for how long
			why = ""
		}
		rows = append(rows, []string{n.Address, n.State, short(n.For), until, doubt, answered,
			strconv.FormatInt(n.Queued, 10), strconv.FormatInt(n.Fence, 10), why})
	}
	return table(w, []string{"NODE", "STATE", "FOR", "QUARANTINE", "IN DOUBT", "ANSWERED IN", "QUEUED", "LARGEST FENCE", "ERROR"}, rows)
}

// table writes rows in columns. A column that is empty in all rows is left out.
func table(w io.Writer, head []string, rows [][]string) error {
	used := make([]bool, len(head))
	for _, r := range rows {
		for i, cell := range r {
			used[i] = used[i] || cell != ""
		}
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{head}, rows...) {
		var cells []string
		for i, cell := range r {
			if used[i] || i == 0 {
				cells = append(cells, client.Printable(cell))
			}
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // a Builder takes everything
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// short is a time for people: 27ms, 4.2s, 3m05s, 2h10m, 4d03h.
func short(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}
