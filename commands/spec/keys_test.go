package spec

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// words mean something to some command; numbers are where one is wanted or is not.
// None is between 10^6 and 2^31: for so many keys a real server takes the memory.
var (
	words = strings.Fields(`STREAMS BLOCK COUNT GROUP NOACK STORE STOREDIST LIMIT GET BY KEYS AUTH AUTH2 COPY
		REPLACE SET INCRBY OVERFLOW WEIGHTS LEFT MATCH FULL`)
	numbers = []string{"0", "1", "1", "2", "2", "3", "4", "5", "-1", "-0", "00", "01", "+2", " 2", "\t1", "2x", "2 ",
		"-", "+", "1.0", "1000000", "4294967295", "4294967298", "4294967298x", "9223372036854775807",
		"9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551618",
		"99999999999999999999999", "-99999999999999999999999", "1\x00", ""}
)

// options are those that decide where the keys are.
var options = map[string][]string{
	"sort": {"STORE", "LIMIT", "GET", "BY"}, "migrate": {"KEYS", "AUTH", "AUTH2", "COPY"},
	"xread": {"STREAMS", "BLOCK", "COUNT", "GROUP", "NOACK"}, "xreadgroup": {"STREAMS", "BLOCK", "COUNT", "GROUP", "NOACK"},
	"georadius": {"STORE", "STOREDIST"}, "georadiusbymember": {"STORE", "STOREDIST"},
}

// vector is a call of c with random arguments, which may be too few or too many.
func vector(rnd *rand.Rand, c *Command) [][]byte {
	var args [][]byte
	for part := range strings.SplitSeq(c.Name, "|") {
		args = append(args, mixCase(rnd, part))
	}
	n := max(c.Arity, -c.Arity) + rnd.IntN(3)*rnd.IntN(6) - rnd.IntN(2)
	likely := words
	if own := options[c.Name]; own != nil && rnd.IntN(2) == 0 {
		likely = own
	}
	for len(args) < max(2, n) { // with fewer it is COMMAND GETKEYS that has too few
		args = append(args, argument(rnd, likely, len(args)))
	}
	for _, s := range c.specs { // mostly where it belongs
		if s.begin == beginKeyword && rnd.IntN(2) == 0 {
			args[rnd.IntN(len(args)-1)+1] = mixCase(rnd, s.keyword)
		}
		if s.find == findNum && s.at+s.num < len(args) && rnd.IntN(3) > 0 {
			args[s.at+s.num] = []byte(numbers[rnd.IntN(len(numbers))])
		}
	}
	if _, sub, isSub := strings.Cut(c.Name, "|"); isSub {
		args[1] = mixCase(rnd, sub)
	}
	return args
}

func argument(rnd *rand.Rand, words []string, at int) []byte {
	switch p := rnd.IntN(20); {
	case p < 8:
		return fmt.Appendf(nil, "key%d", at)
	case p < 12:
		return []byte(numbers[rnd.IntN(len(numbers))])
	case p == 12:
		return append(mixCase(rnd, words[rnd.IntN(len(words))]), "\x00tail"[:1+rnd.IntN(5)]...)
	}
	return mixCase(rnd, words[rnd.IntN(len(words))])
}

func mixCase(rnd *rand.Rand, word string) []byte {
	if rnd.IntN(2) == 0 {
		return []byte(word)
	}
	b := []byte(strings.ToLower(word))
	for i := range b {
		if 'a' <= b[i] && b[i] <= 'z' && rnd.IntN(2) == 0 {
			b[i] -= 'a' - 'A'
		}
	}
	return b
}

// asked is what COMMAND GETKEYS answers to each vector. has says that the command
// can have keys, whatever the arguments.
type asked struct {
	keys [][]byte
	has  bool
}

func getKeys(t *testing.T, conn *redistest.Conn, vectors [][][]byte) (answers []asked) {
	t.Helper()
	var out strings.Builder
	for _, args := range vectors {
		words := []string{"COMMAND", "GETKEYS"}
		for _, a := range args {
			words = append(words, string(a))
		}
		out.WriteString(redistest.Command(words...))
	}
	done := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn.Conn, out.String())
		done <- err
	}()
	for _, args := range vectors {
		v := conn.Read(t)
		a := asked{has: v.Text != "ERR The command has no key arguments"}
		if v.IsError() && a.has && !strings.HasPrefix(v.Text, "ERR Invalid arguments") && !strings.HasPrefix(v.Text, "ERR Invalid number of arguments") {
			t.Fatalf("COMMAND GETKEYS %q: %v", args, v)
		}
		for _, key := range v.Elems {
			a.keys = append(a.keys, []byte(key.Text))
		}
		answers = append(answers, a)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return answers
}

// named are the arguments at positions, after the dst that Keys was given.
func named(args [][]byte, positions []int) (keys [][]byte) {
	for _, at := range positions {
		keys = append(keys, args[at])
	}
	return keys
}

// Whatever the arguments, keys are what a real Redis says, for every command it has:
// by what it tells of itself, by what is built in, and by what servers before 7.0
// would tell.
func TestKeys_AsCommandGetKeys(t *testing.T) {
	server := redistest.Start(t)
	reply := server.Do(t, "COMMAND")
	tables := map[string]*Table{"built in": Builtin()}
	for name, text := range map[string]string{"learnt": reply.Raw, "as of 6.0": cut(reply, 6), "as of 6.2": cut(reply, 7)} {
		learnt, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		tables[name] = learnt
	}
	if !strings.HasPrefix(version(t, server), "7.0.") {
		tables = map[string]*Table{"learnt": tables["learnt"]}
	}
	conn, rnd := redistest.Open(t, server.Addr()), rand.New(rand.NewPCG(1, 7))
	total := 0
	for c := range tables["learnt"].All() {
		if c.subs != nil {
			continue // no call by itself
		}
		vectors := make([][][]byte, 200+800*len(options[c.Name]))
		for i := range vectors {
			vectors[i] = vector(rnd, c)
		}
		if c.Name == "xreadgroup" { // too odd to come up by chance
			vectors = append(vectors, bytes.Fields([]byte("xreadgroup group g streams a b streams x")))
		}
		with, has := 0, false
		for i, a := range getKeys(t, conn, vectors) {
			for name, table := range tables {
				checkKeys(t, name, table, c, vectors[i], a.keys)
			}
			has = a.has
			if len(a.keys) > 0 {
				with++
			}
		}
		if has && with == 0 {
			t.Errorf("%s has keys, and none of its calls had", c.Name)
		}
		if total += with; t.Failed() {
			return
		}
	}
	if total < 10000 {
		t.Errorf("only %d calls with keys", total)
	}
}

func checkKeys(t *testing.T, name string, table *Table, c *Command, args [][]byte, want [][]byte) {
	t.Helper()
	found := table.Lookup(args)
	if found == nil || found.Name != c.Name {
		t.Errorf("%s: Lookup(%q) found %v", name, args, found)
		return
	}
	at, ok := found.Keys(args, []int{-7})
	if at[0] != -7 || !ok || !slices.EqualFunc(named(args, at[1:]), want, bytes.Equal) {
		t.Errorf("%s: keys of %q are at %v, %v; COMMAND GETKEYS says %q", name, args, at[1:], ok, want)
	}
}

// cut is a reply to COMMAND as an older server gives it, with n elements of each
// command and no subcommands.
func cut(reply redistest.Value, n int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "*%d\r\n", len(reply.Elems))
	for _, c := range reply.Elems {
		fmt.Fprintf(&out, "*%d\r\n", n)
		for _, e := range c.Elems[:n] {
			out.WriteString(e.Raw)
		}
	}
	return out.String()
}

// What decides the slot without being a key.
func TestRouting_IncludesWhatIsNoKey(t *testing.T) {
	tests := []struct {
		call string
		want []int
	}{
		{"ssubscribe a b c", []int{1, 2, 3}},
		{"SUNSUBSCRIBE a", []int{1}},
		{"sunsubscribe", nil},
		{"spublish channel message", []int{1}},
		{"spublish channel", nil},
		{"publish channel message", nil},
		{"mget a b", []int{1, 2}},
		{"eval script 2 a b c", []int{3, 4}},
	}
	for _, tt := range tests {
		args := bytes.Fields([]byte(tt.call))
		if at, ok := Builtin().Lookup(args).Routing(args, nil); !ok || !slices.Equal(at, tt.want) {
			t.Errorf("%s: routed by %v, %v; want %v", tt.call, at, ok, tt.want)
		}
	}
}

// A module's command: what it says of itself holds, and where it keeps its keys to
// itself only the upstream can tell.
func TestKeys_ModuleCommand(t *testing.T) {
	tests := []struct {
		flags, specs, call string
		want               []int
		ok                 bool
	}{
		{"+module", "", "m a b", nil, true},
		{"+module +movablekeys", "", "m a b", nil, false},
		{"+module +movablekeys", "2:0,1,0!variable_flags", "m a b", nil, false},
		{"+module +movablekeys", "?:?", "m a b", nil, false},
		{"+module", "1:-1,2,0", "m a b c", []int{1, 3}, true},
		{"+module", "3:-1,1,0", "m a b", nil, true},
		{"+module", "WITH@-1:0,1,0", "m with b with c", []int{4}, true},
		{"+module", "WITH@-1:0,1,0", "m with b", nil, true},
		{"+module", "1:#1,3,2", "m a 3 b x c d", []int{4, 6}, true},
		{"+module", "1:#1,3,2", "m a 3 b x c", nil, true},
		{"+module", "1:#9,3,2", "m a 3 b x c", nil, true},
		{"+module", "1:-1,0,0", "m a b", nil, true},
		{"+write +fast", "1:0,1,0!variable_flags", "m a b", []int{1}, true}, // as DELEX of Redis 8.4, which is no module's
	}
	for _, tt := range tests {
		c := &Command{Name: "m", Arity: -1}
		for word := range strings.FieldsSeq(tt.flags) {
			c.Flags |= flagOf(word[1:])
		}
		for text := range strings.FieldsSeq(tt.specs) {
			s, err := parseKeySpec(text)
			if err != nil {
				t.Fatal(err)
			}
			c.specs = append(c.specs, s)
		}
		c.finish()
		args := bytes.Fields([]byte(tt.call))
		if at, ok := c.Keys(args, nil); ok != tt.ok || !slices.Equal(at, tt.want) {
			t.Errorf("%s of %s %s: keys %v, %v; want %v, %v", tt.call, tt.flags, tt.specs, at, ok, tt.want, tt.ok)
		}
	}
}

func TestParse_ModuleCommand(t *testing.T) {
	server := redistest.Start(t, "--loadmodule", redistest.Module(t))
	learnt, err := Parse([]byte(server.Do(t, "COMMAND").Raw))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		call  string
		flags Flags
		keys  []int
		ok    bool
	}{
		{"testmodule.wait", Module | Blocking, nil, true},
		{"TestModule.Pairs a 1 b 2", Module | Write, []int{1, 3}, true},
		{"testmodule.last a b", Module | ReadOnly | MovableKeys, nil, false},
	}
	for _, tt := range tests {
		args := bytes.Fields([]byte(tt.call))
		c := learnt.Lookup(args)
		if c == nil {
			t.Errorf("%s is not known", tt.call)
			continue
		}
		if keys, ok := c.Keys(args, nil); c.Flags != tt.flags || ok != tt.ok || !slices.Equal(keys, tt.keys) {
			t.Errorf("%s: flags %s, keys %v, %v", tt.call, formatFlags(c.Flags), keys, ok)
		}
	}
}

// Commands that an old server has of its own, or of a module, have the keys that its
// first, last and step say.
func TestParse_OldUpstream(t *testing.T) {
	text := "*3\r\n" +
		"*6\r\n$3\r\nGET\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n" +
		"*6\r\n$6\r\nM.MSET\r\n:-3\r\n*2\r\n+write\r\n+module\r\n:1\r\n:-1\r\n:2\r\n" +
		"*6\r\n$3\r\nget\r\n:2\r\n*2\r\n+module\r\n+movablekeys\r\n:0\r\n:0\r\n:0\r\n"
	learnt, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	args := bytes.Fields([]byte("m.Mset a 1 b 2"))
	c := learnt.Lookup(args)
	if at, ok := c.Keys(args, nil); !ok || !slices.Equal(at, []int{1, 3}) || c.Flags != Write|Module {
		t.Errorf("%+v: keys %v, %v", c, at, ok)
	}
	args = bytes.Fields([]byte("get a"))
	if _, ok := learnt.Lookup(args).Keys(args, nil); ok {
		t.Error("a module's command is taken for Redis's own of that name")
	}
}

func TestParse_RefusesMalformed(t *testing.T) {
	tests := []string{
		"", "*", "*1", "*1\r\n", "+OK\r\n", "*-1\r\n", "$-1\r\n", "*0\r\n*0\r\n", "-NOPERM no\r\n", "!4\r\nERR!\r\n",
		"*1\r\n*0\r\n", "*1\r\n+get\r\n", "*0\r\n+OK\r\n", "*1\r\n*6\r\n+m\r\n:2\r\n0\r\n:1\r\n:1\r\n:1\r\n", "*99999999999999999999\r\n", "*999999999\r\n", strings.Repeat("*1\r\n", 40),
		"*1\r\n*6\r\n+get\r\n+2\r\n*0\r\n:1\r\n:1\r\n:1\r\n",
		"*1\r\n*6\r\n+mine\r\n:2\r\n*0\r\n:1\r\n:-3000000000\r\n:1\r\n",
		"*1\r\n*6\r\n$3\r\nmine\r\n:2\r\n*0\r\n:1\r\n:1\r\n:1\r\n",
		"*1\r\n*6\r\n+a|b\r\n:2\r\n*0\r\n:1\r\n:1\r\n:1\r\n",
	}
	for _, tt := range tests {
		if got, err := Parse([]byte(tt)); err == nil {
			t.Errorf("%q: learnt %v", tt, got)
		}
	}
}

func TestTable_Lookup(t *testing.T) {
	tests := []struct{ call, want string }{
		{"GeT", "get"},
		{"config", "config"},
		{"CONFIG Set", "config|set"},
		{"config nonsense", ""},
		{"config|set x", ""},
		{"nonsense", ""},
		{strings.Repeat("x", 100), ""},
	}
	for _, tt := range tests {
		got := ""
		if c := Builtin().Lookup(bytes.Fields([]byte(tt.call))); c != nil {
			got = c.Name
		}
		if got != tt.want {
			t.Errorf("%s: found %q, want %q", tt.call, got, tt.want)
		}
	}
}

// Policies, as far as they decide what a Cluster's clients see.
func TestBuiltin_Policies(t *testing.T) {
	tests := []struct {
		call     string
		request  Request
		response Response
	}{
		{"get k", RequestDefault, ResponseDefault},
		{"del k", MultiShard, Sum},
		{"config set", AllNodes, AllSucceeded},
		{"dbsize", AllShards, Sum},
		{"wait 1 0", AllShards, Min},
		{"script exists", AllShards, LogicalAnd},
		{"script kill", AllShards, OneSucceeded},
		{"scan 0", RequestSpecial, ResponseDefault},
		{"info", AllShards, ResponseSpecial},
	}
	for _, tt := range tests {
		c := Builtin().Lookup(bytes.Fields([]byte(tt.call)))
		if c.Request != tt.request || c.Response != tt.response {
			t.Errorf("%s: policies %d, %d; want %d, %d", tt.call, c.Request, c.Response, tt.request, tt.response)
		}
	}
}

func TestSlot(t *testing.T) {
	keys := []string{"", "a", "foo", "123456789", "{user1000}.following", "foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}",
		"{}", "{", "}", "}{", "{a", "a}b{c}", "{{}}", "{\x00}x", "\xff\xfe", strings.Repeat("long", 1000)}
	rnd := rand.New(rand.NewPCG(2, 7))
	for range 2000 {
		key := make([]byte, rnd.IntN(12))
		for i := range key {
			key[i] = "{}ab\x00\xff"[rnd.IntN(6)]
		}
		keys = append(keys, string(key))
	}
	bus, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(bus)
	node := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-port", port)
	conn := redistest.Open(t, node.Addr())
	for _, key := range keys {
		if got, want := Slot([]byte(key)), conn.Do(t, "CLUSTER", "KEYSLOT", key); int64(got) != want.Int() || want.IsError() {
			t.Errorf("%q: slot %d, the server says %v", key, got, want)
		}
	}
}

// unordered are the commands of which Redis does not name keys in the order of the
// call: the destination last.
var unordered = []string{"zdiffstore", "zinterstore", "zunionstore", "georadius", "georadiusbymember"}
