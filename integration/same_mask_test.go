package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// maskWords is what differs by nature in a line or a bulk, wherever it is, and what takes its place.
var maskWords = []struct {
	why  string
	expr *regexp.Regexp
	with string
}{
	{"ids of stream entries, by the clock", regexp.MustCompile(`\d{13}-\d+`), "ID"},
	{"run ids, ids of nodes, SHA-1", regexp.MustCompile(`\b[0-9a-f]{40}\b`), "HEX"},
	{"owners that the proxy made up", regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "OWNER"},
	{"what is left of a lease, and since when", regexp.MustCompile(`\b\d+(\.\d+)?(µs|us|ms|s|m)\b`), "TIME"},
	{"times, fences, memory figures, ports", regexp.MustCompile(`\d{4,}(\.\d+)?`), "N"},
}

var (
	cursor      = regexp.MustCompile(`^\$"[\dN.]+"$`)
	subcommand  = regexp.MustCompile(`^[a-z]+\|[a-z-]+$`)
	monitorLine = regexp.MustCompile(`^\d{10}\.\d{6} \[\d+ `)
	// ownWords are what the proxy says upstream by itself, at times of its own.
	ownWords = regexp.MustCompile(`(?i)\] "(ping|hello|auth|command|info|role|select|acl|hlen|client|cluster|set|readonly|publish" "__sentinel__:hello)"`)
	// timeField is a name in a reply whose value is a time or a load.
	timeField  = regexp.MustCompile(`(?i)(-ms|-us|^idle|^age|^queued|^id|^seen-time|^active-time|^inactive|^pel-count|offset)$`)
	clientKept = []string{"name", "db", "sub", "psub", "ssub", "multi", "user", "resp", "cmd", "lib-name", "lib-ver"}
)

// maskAll is what came back without what differs by nature: times, ids, memory figures, the
// order of large tables, rows of other clients, and what a MONITOR hears of the proxy itself.
// What is no complete reply is an error in it.
//
// Of a Cluster, what is pushed comes last: invalidations are those of several nodes, in any order.
func maskAll(raw string, cluster bool) string {
	var b strings.Builder
	var pushed []string
	replies, err := redistest.ReadAll(raw)
	for _, v := range replies {
		if v.Kind == '+' && monitorLine.MatchString(v.Text) && ownWords.MatchString(v.Text) {
			continue
		}
		if cluster && v.Kind == '>' {
			pushed = append(pushed, maskValue(v)+"\n")
			continue
		}
		b.WriteString(maskValue(v) + "\n")
	}
	slices.Sort(pushed)
	b.WriteString(strings.Join(pushed, ""))
	if err != nil {
		fmt.Fprintf(&b, "and no reply: %v\n", err)
	}
	return b.String()
}

func maskValue(v redistest.Value) string {
	switch {
	case v.Null:
		return strings.TrimSuffix(v.Raw, "\r\n")
	case v.Kind == ':':
		if n := v.Int(); n > 999 || n < -999 {
			return ":N"
		}
		return ":" + v.Text
	case len(v.Elems) == 0 && strings.IndexByte("*%~>|", v.Kind) < 0:
		return string(v.Kind) + strconv.Quote(maskText(v.Text))
	}
	parts := make([]string, len(v.Elems))
	for i, e := range v.Elems {
		parts[i] = maskValue(e)
		if i > 0 && timeField.MatchString(v.Elems[i-1].Text) && (e.Kind == ':' || e.Kind == '$') {
			parts[i] = "TIME"
		}
	}
	switch {
	case len(parts) == 2 && parts[0] == `$"N"`: // TIME: seconds, and millionths, which may be few
		parts[1] = parts[0]
	case len(parts) == 2 && cursor.MatchString(parts[0]) && v.Elems[1].Kind == '*': // SCAN and LOCKCTL LIST
		parts[0] = "CURSOR"
	case len(parts) > 1 && parts[0] == `$"master"`: // ROLE: the offset, and that of replicas
		parts = parts[:1]
	case len(parts) > 50 || len(parts) > 0 && listsSubcommands(v.Elems[0]): // the order of a hash table
		slices.Sort(parts)
	}
	return string(v.Kind) + "[" + strings.Join(parts, " ") + "]"
}

// listsSubcommands reports whether first begins a list of subcommands, of COMMAND or COMMAND DOCS.
func listsSubcommands(first redistest.Value) bool {
	if len(first.Elems) > 0 {
		first = first.Elems[0]
	}
	return subcommand.MatchString(first.Text)
}

func maskText(s string) string {
	s = strings.TrimPrefix(s, "txt:") // of a verbatim string
	switch {
	case strings.HasPrefix(s, "id=") && strings.Contains(s, " addr="):
		s = maskClients(s)
	case strings.HasPrefix(s, "# ") && strings.Contains(s, "\r\n"):
		s = maskInfo(s)
	}
	for _, m := range maskWords {
		s = m.expr.ReplaceAllString(s, m.with)
	}
	return s
}

// maskClients is the row of the newest client, the one that asks, with the values that do not
// depend on times, ids and buffers; the clients of other streams may not be gone yet. Of rows
// that are all of others (LIST ID 5), there is only that there are any: what these said last
// depends on when they said it.
func maskClients(rows string) string {
	newest, row := -1, ""
	for line := range strings.Lines(rows) {
		var id int
		if _, err := fmt.Sscanf(line, "id=%d ", &id); err == nil && id > newest {
			newest, row = id, line
		}
	}
	if row != "" && !strings.Contains(row, " cmd=client") {
		return "rows of others"
	}
	var kept []string
	for _, field := range strings.Fields(row) {
		name, _, _ := strings.Cut(field, "=")
		if slices.Contains(clientKept, name) {
			name = field
		}
		kept = append(kept, name)
	}
	return strings.Join(kept, " ")
}

// maskInfo is INFO without its values; sections that list what happened are only named.
func maskInfo(text string) string {
	var b strings.Builder
	listed := false
	for line := range strings.SplitSeq(text, "\r\n") {
		if strings.HasPrefix(line, "# ") {
			listed = slices.Contains([]string{"# Commandstats", "# Errorstats", "# Latencystats", "# Keyspace", "# Replication"}, line)
		} else if listed {
			continue
		}
		name, _, _ := strings.Cut(line, ":")
		b.WriteString(name + "\n")
	}
	return b.String()
}

// TestMaskKeepsWhatMatters: a mask that hid more would make every comparison pass.
func TestMaskKeepsWhatMatters(t *testing.T) {
	same := [][2]string{
		{":1795374681465754\r\n", ":1795374681466335\r\n"},
		{"*2\r\n$10\r\n1795374681\r\n$6\r\n465754\r\n", "*2\r\n$10\r\n1795374682\r\n$1\r\n4\r\n"},
		{"*4\r\n:1795374681465754\r\n$26\r\nL3UN5JPURB7O6CULKG4MWCR4VA\r\n:29697\r\n:1\r\n", "*4\r\n:1795374681465755\r\n$26\r\nM3UN5JPURB7O6CULKG4MWCR4VA\r\n:29698\r\n:1\r\n"},
		{"+OK\r\n+1795374681.465754 [0 127.0.0.1:40000] \"PING\"\r\n", "+OK\r\n"},
		{"$40\r\nid=3 addr=a name=x age=1 cmd=client|list\r\n", "$41\r\nid=4 addr=a name=x age=22 cmd=client|list\r\n"},
		{"$27\r\nid=3 addr=a name=o cmd=ping\r\n", "$26\r\nid=3 addr=a name=o cmd=get\r\n"}, // what another client said last
		{"*2\r\n$7\r\nheld-ms\r\n:1\r\n", "*2\r\n$7\r\nheld-ms\r\n:2\r\n"},
	}
	for _, tt := range same {
		if a, b := maskAll(tt[0], false), maskAll(tt[1], false); a != b {
			t.Errorf("%q and %q differ:\n%s%s", tt[0], tt[1], a, b)
		}
	}
	others := [][2]string{
		{":1\r\n", ":2\r\n"}, {":1\r\n", "$1\r\n1\r\n"}, {"+OK\r\n", ""}, {"$-1\r\n", "*-1\r\n"}, {"-ERR a\r\n", "-ERR b\r\n"}, {"+a\r\n+b\r\n", "+b\r\n+a\r\n"},
		{"$40\r\nid=3 addr=a name=x age=1 cmd=client|list\r\n", "$40\r\nid=4 addr=a name=y age=1 cmd=client|list\r\n"}, {"*1\r\n:1\r\n", "~1\r\n:1\r\n"}, {"+OK\r\n", "+OK"}, {"%1\r\n+a\r\n+b\r\n", "*2\r\n+a\r\n+b\r\n"},
		{"+1795374681.465754 [0 127.0.0.1:40000] \"get\" \"a\"\r\n", "+1795374681.465754 [0 127.0.0.1:40000] \"get\" \"b\"\r\n"},
	}
	for _, tt := range others {
		if a, b := maskAll(tt[0], false), maskAll(tt[1], false); a == b {
			t.Errorf("%q and %q are the same: %s", tt[0], tt[1], a)
		}
	}
}
