package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A rig is a data Redis, lock nodes of their own, and proxies that share them.
type rig struct {
	data    *redistest.Server
	nodes   []*redistest.Server
	proxies []*redistest.Proxy
}

// startRig is redistest.StartRig.
func startRig(t *testing.T, nodes, proxies int, args ...string) *rig {
	t.Helper()
	r := redistest.StartRig(t, nodes, proxies, args...)
	return &rig{r.Data, r.Nodes, r.Proxies}
}

func (r *rig) addr() string { return r.proxies[0].Addr() }

// lockKeys is how many lock records there are on the nodes, all together.
func (r *rig) lockKeys(t *testing.T) int {
	t.Helper()
	n := 0
	for _, s := range r.nodes {
		n += len(s.Do(t, "KEYS", "lockproxy:[lr]*").Elems)
	}
	return n
}

// digests is what the nodes hold, to compare before and after: all keys but what proxies tell one another, and of the node
// record not the times at which proxies were last heard of, which the proxy's own checks of the node change.
func (r *rig) digests(t *testing.T) string {
	t.Helper()
	var all []string
	for _, s := range r.nodes {
		for _, key := range s.Do(t, "KEYS", "*").Elems {
			if strings.HasPrefix(key.Text, "lockproxy:adopt") {
				continue
			}
			if !strings.HasSuffix(key.Text, ":node") {
				all = append(all, key.Text+" "+s.Do(t, "DEBUG", "DIGEST-VALUE", key.Text).Elems[0].Text)
				continue
			}
			record := s.Do(t, "HGETALL", key.Text).Elems
			for i := 0; i+1 < len(record); i += 2 {
				if field := record[i].Text; !strings.HasPrefix(field, "m") {
					all = append(all, field+" "+record[i+1].Text)
				}
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// A step is one command and the reply it must get, in the form of
// [redistest.Value.String].
//
// who names the connection: "a", "b" … are opened at first use in RESP2, a name
// that ends in 3 in RESP3; "other." in front means the second proxy. "sleep" waits
// for the duration in command, "everywhere" until all lock nodes have the same holds of <job>, also those whose votes
// were not awaited, and "less" compares two integers bound before.
//
// Both texts may hold <x>, a word: bound at its first use, the same ever after;
// <job> is bound to a name of its own for each script. In want <_> is any integer,
// <lo..hi> one within, and <...> any text.
type step struct{ who, command, want string }

// A script is steps that follow each other.
type script struct {
	name  string
	steps []step
}

// A stage runs one script.
type stage struct {
	rig   *rig
	conns map[string]*redistest.Conn
	bound map[string]string
}

func (r *rig) run(t *testing.T, sc script) {
	t.Helper()
	st := &stage{rig: r, conns: map[string]*redistest.Conn{}, bound: map[string]string{"job": "job:" + strings.ReplaceAll(t.Name(), " ", "_")}}
	for i, s := range sc.steps {
		if !st.play(t, s) {
			t.Fatalf("step %d of %q", i+1, sc.name)
		}
	}
}

func (st *stage) play(t *testing.T, s step) bool {
	t.Helper()
	switch s.who {
	case "sleep":
		d, err := time.ParseDuration(s.command)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
		return true
	case "everywhere":
		for i := range st.rig.nodes {
			eventually(t, time.Minute, "all nodes have the holds", func() bool {
				holds := st.holds(t, i)
				return len(holds) > 0 && slices.Equal(holds, st.holds(t, 0))
			})
		}
		return true
	case "less":
		f := strings.Fields(s.command)
		if st.number(t, f[0]) >= st.number(t, f[1]) {
			t.Errorf("%s is %s and %s is %s: not less", f[0], st.bound[f[0]], f[1], st.bound[f[1]])
			return false
		}
		return true
	}
	v := st.conn(t, s.who).Do(t, quoted(st.fill(s.command))...)
	return checkWords(t, v) && st.match(t, s, v)
}

// holds are the records of <job> on a node, and the names of their fields.
func (st *stage) holds(t *testing.T, node int) (all []string) {
	t.Helper()
	n := st.rig.nodes[node]
	for _, key := range append(n.Do(t, "KEYS", "lockproxy:lock:*").Elems, n.Do(t, "KEYS", "lockproxy:read:*").Elems...) {
		if strings.Contains(key.Text, st.bound["job"]) {
			all = append(all, key.Text)
			for _, field := range n.Do(t, "HKEYS", key.Text).Elems {
				all = append(all, field.Text)
			}
		}
	}
	slices.Sort(all)
	return all
}

func (st *stage) number(t *testing.T, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(st.bound[name], 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func (st *stage) conn(t *testing.T, who string) *redistest.Conn {
	t.Helper()
	if c := st.conns[who]; c != nil {
		return c
	}
	addr := st.rig.addr()
	if strings.HasPrefix(who, "other.") {
		addr = st.rig.proxies[1].Addr()
	}
	open := redistest.Open
	if strings.HasSuffix(who, "3") {
		open = redistest.Open3
	}
	st.conns[who] = open(t, addr)
	return st.conns[who]
}

// checkWords holds the verbs to the words that other software switches on.
func checkWords(t *testing.T, v redistest.Value) bool {
	t.Helper()
	for _, words := range []string{"ERR unknown command", "ERR syntax error"} {
		if strings.HasPrefix(v.Text, words) {
			t.Errorf("an error of ours begins with %q: %v", words, v)
			return false
		}
	}
	return true
}

var placeholder = regexp.MustCompile(`<[^<>]+>`)

// fill puts bound words into a command.
func (st *stage) fill(s string) string {
	return placeholder.ReplaceAllStringFunc(s, func(p string) string { return st.bound[p[1:len(p)-1]] })
}

// match compares a reply with what a step wants and binds the words it meets.
func (st *stage) match(t *testing.T, s step, v redistest.Value) bool {
	t.Helper()
	expr, words := st.pattern(s.want)
	m := regexp.MustCompile("^" + expr + "$").FindStringSubmatch(v.String())
	if m == nil {
		t.Errorf("%s: %s\ngot  %v\nwant %s", s.who, st.fill(s.command), v, s.want)
		return false
	}
	for i, word := range words {
		if low, high, ok := bounds(word); !ok {
			st.bound[word] = m[i+1]
		} else if n, err := strconv.Atoi(m[i+1]); err != nil || n < low || n > high {
			t.Errorf("%s: %s\ngot  %v\nwant %s", s.who, st.fill(s.command), v, s.want)
			return false
		}
	}
	return true
}

// pattern makes a regular expression of want, with a group for each of words.
func (st *stage) pattern(want string) (expr string, words []string) {
	var b strings.Builder
	at := 0
	for _, m := range placeholder.FindAllStringIndex(want, -1) {
		b.WriteString(regexp.QuoteMeta(want[at:m[0]]))
		at = m[1]
		word := want[m[0]+1 : m[1]-1]
		switch known, ok := st.bound[word]; {
		case ok:
			b.WriteString(regexp.QuoteMeta(known))
		case word == "_":
			b.WriteString(`-?\d+`)
		case word == "...":
			b.WriteString(`.*`)
		default:
			words = append(words, word)
			b.WriteString(`([0-9A-Za-z_-]+)`)
		}
	}
	b.WriteString(regexp.QuoteMeta(want[at:]))
	return b.String(), words
}

func bounds(word string) (low, high int, ok bool) {
	n, err := fmt.Sscanf(word, "%d..%d", &low, &high)
	return low, high, n == 2 && err == nil
}

func TestStepPatterns(t *testing.T) {
	grant := redistest.Value{Kind: '*', Elems: []redistest.Value{{Kind: ':', Text: "7"}, {Kind: '$', Text: "me"}}}
	tests := []struct {
		want string
		ok   bool
	}{
		{`*[:7 $"me"]`, true},
		{`*[:<f> $"<o>"]`, true},
		{`*[:<f> $"<known>"]`, false},
		{`*[:<_> $"me"]`, true},
		{`*[:<1..7> $"me"]`, true},
		{`*[:<8..9> $"me"]`, false},
		{`*[:<...>`, true},
		{`*[:7]`, false},
	}
	for _, tt := range tests {
		st := &stage{bound: map[string]string{"known": "you"}}
		expr, words := st.pattern(tt.want)
		m := regexp.MustCompile("^" + expr + "$").FindStringSubmatch(grant.String())
		ok := m != nil
		for i, w := range words {
			if low, high, ranged := bounds(w); ok && ranged {
				n, _ := strconv.Atoi(m[i+1])
				ok = low <= n && n <= high
			}
		}
		if ok != tt.ok {
			t.Errorf("%s: matched %v", tt.want, ok)
		}
	}
}
