package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A syntax is one argument of a command, as COMMAND DOCS describes it.
type syntax struct {
	name, kind, token                 string
	optional, multiple, repeatedToken bool
	args                              []syntax // of a block or a choice
}

// A catalog is every command of a server and of the proxy, subcommands as "client|list".
type catalog struct {
	names []string // sorted
	group map[string]string
	args  map[string][]syntax
}

// newCatalog reads the reply to COMMAND DOCS, in RESP2.
func newCatalog(docs redistest.Value) *catalog {
	c := &catalog{group: map[string]string{}, args: map[string][]syntax{}}
	c.add(docs)
	sort.Strings(c.names)
	return c
}

func (c *catalog) add(docs redistest.Value) {
	for i := 0; i+1 < len(docs.Elems); i += 2 {
		name := docs.Elems[i].Text
		c.names = append(c.names, name)
		doc := byName(docs.Elems[i+1])
		c.group[name] = doc["group"].Text
		c.args[name] = syntaxes(doc["arguments"])
		c.add(doc["subcommands"])
	}
}

// byName makes a map of a flat list of names and values.
func byName(v redistest.Value) map[string]redistest.Value {
	m := map[string]redistest.Value{}
	for i := 0; i+1 < len(v.Elems); i += 2 {
		m[v.Elems[i].Text] = v.Elems[i+1]
	}
	return m
}

func syntaxes(v redistest.Value) (all []syntax) {
	for _, e := range v.Elems {
		m := byName(e)
		a := syntax{name: m["name"].Text, kind: m["type"].Text, token: m["token"].Text, args: syntaxes(m["arguments"])}
		for _, f := range m["flags"].Elems {
			a.optional = a.optional || f.Text == "optional"
			a.multiple = a.multiple || f.Text == "multiple"
			a.repeatedToken = a.repeatedToken || f.Text == "multiple_token"
		}
		all = append(all, a)
	}
	return all
}

// A form replaces what COMMAND DOCS says of a command whose answers no two servers share, or
// that would end the server. Its templates are the grammar's, and the only ones that are sent.
type form struct {
	commands  string
	why       string
	templates []string
}

var forms = []form{
	{"spop srandmember", "random members: of sets of one", []string{"=SADD u1 7", "=SPOP u1", "=SPOP u1 {n}", "=SPOP none", "=SRANDMEMBER u1", "=SRANDMEMBER u1 -2", "=SPOP {s}"}},
	{"hrandfield", "random fields: of hashes of one", []string{"=HSET v1 f 7", "=HRANDFIELD v1", "=HRANDFIELD v1 2 WITHVALUES", "=HRANDFIELD none", "=HRANDFIELD {s}"}},
	{"zrandmember", "random members: of sorted sets of one", []string{"=ZADD w1 7 m", "=ZRANDMEMBER w1", "=ZRANDMEMBER w1 2 WITHSCORES", "=ZRANDMEMBER none"}},
	{"randomkey", "a random key: there are several", []string{"=RANDOMKEY x"}},
	{"scan keys", "the order and the cursors of a hash table: at most one key matches", []string{"=SCAN 0 MATCH s1 COUNT 10000", "=SCAN x", "=SCAN 0 COUNT", "=KEYS {any}", "=KEYS"}},
	{"pubsub|channels pubsub|shardchannels subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe", "the order of a hash table: one channel of each kind",
		[]string{"=SUBSCRIBE c", "=PSUBSCRIBE c*", "=SSUBSCRIBE c", "=UNSUBSCRIBE c", "=PUNSUBSCRIBE c*", "=SUNSUBSCRIBE c", "=UNSUBSCRIBE", "=PUNSUBSCRIBE", "=SUNSUBSCRIBE", "=PUBSUB CHANNELS c", "=PUBSUB SHARDCHANNELS c", "PUBSUB NUMSUB c", "=SUBSCRIBE", "=PSUBSCRIBE"}},
	{"sadd srem smove spop sunionstore sinterstore sdiffstore sscan smembers", "the order of a hash table: sets of integers", grammar["sets"]},
	{"xclaim xautoclaim xpending xinfo|consumers xreadgroup xgroup|create xgroup|createconsumer xack", "idle times in ms", append(slices.Clone(grammar["streams"][14:]), "=XPENDING none g - + 1", "=XINFO CONSUMERS none g", "=XINFO CONSUMERS {x}")},
	{"object|idletime object|freq", "idle times", []string{"=OBJECT IDLETIME none", "=OBJECT IDLETIME", "=OBJECT FREQ none"}},
	{"memory|stats memory|malloc-stats memory|doctor memory|usage", "memory figures", []string{"=MEMORY STATS x", "=MEMORY MALLOC-STATS x", "=MEMORY DOCTOR x", "=MEMORY USAGE none", "=MEMORY"}},
	{"latency|histogram latency|graph", "times, and what the proxy asks by itself", []string{"=LATENCY HISTOGRAM nosuch", "=LATENCY GRAPH nosuch", "=LATENCY"}},
	{"acl|setuser acl|deluser", "the users of the streams must stay", []string{"=ACL SETUSER extra on", "=ACL SETUSER extra nosuchrule", "=ACL DELUSER extra", "=ACL DELUSER none default", "=ACL SETUSER"}},
	{"acl|log acl|genpass", "ages and ids; random words", []string{"=ACL LOG RESET", "=ACL LOG x", "=ACL GENPASS x", "=ACL GENPASS 1 2"}},
	{"client|kill client|pause", "others than the client would feel it", []string{"=CLIENT KILL ID 99999999", "=CLIENT KILL nobody:1", "=CLIENT KILL TYPE master SKIPME no", "=CLIENT KILL", "=CLIENT KILL ID x", "=CLIENT PAUSE x", "=CLIENT PAUSE 1 WRITE", "=CLIENT PAUSE 1"}},
	{"client|id", "at the upstream, once CLIENT REPLY has been used, it counts connections", []string{"=CLIENT ID x"}},
	{"config|set config|get", "settings hold on; the order of a hash table", []string{"=CONFIG SET maxmemory-samples 5", "=CONFIG SET nosuch 5", "=CONFIG SET", "=CONFIG SET maxmemory-samples", "=CONFIG GET maxmemory-samples", "=CONFIG GET nosuch", "=CONFIG GET"}},
	{"shutdown", "ends the server", []string{"=SHUTDOWN ABORT", "=SHUTDOWN x", "=SHUTDOWN SAVE NOSAVE"}},
	{"debug", "ends the server, or stops it", []string{"=DEBUG", "=DEBUG NOSUCH", "=DEBUG PROTOCOL null", "=DEBUG PROTOCOL map", "=DEBUG HELP"}},
	{"replicaof slaveof failover", "changes who is the master", []string{"=REPLICAOF NO ONE x", "=REPLICAOF x", "=SLAVEOF", "=SLAVEOF a", "=FAILOVER ABORT", "=FAILOVER x"}},
	{"sync psync replconf", "begins a dump, which has times and run ids in it", []string{"=SYNC x", "=PSYNC x", "=PSYNC a b c", "=REPLCONF x", "=REPLCONF capa eof"}},
	{"save bgsave bgrewriteaof", "forks: how soon it is done depends on the machine", []string{"=SAVE x", "=BGSAVE x", "=BGSAVE SCHEDULE x", "=BGREWRITEAOF x"}},
	{"pfselftest", "takes a second", []string{"=PFSELFTEST x"}},
	{"migrate", "needs another server", []string{"=MIGRATE 127.0.0.1 1 none 0 10", "=MIGRATE 127.0.0.1 1 none", "=MIGRATE"}},
	{"script|debug", "forks, and is refused in a pipeline", []string{"=SCRIPT DEBUG", "=SCRIPT DEBUG a b"}},
	{"lolwut", "random art", []string{"=LOLWUT VERSION 0"}},
	{"wait waitaof", "what replicas have acknowledged by then", []string{"=WAIT x 1", "=WAIT", "=WAIT 0", "=WAIT 0 -1", "=WAIT 0 1 2"}},
	{"lockctl|list", "cursors, and which locks are on a page", []string{"=LOCKCTL LIST MATCH none", "=LOCKCTL LIST MATCH none COUNT 100", "LOCKCTL LIST CURSOR x", "=LOCKCTL LIST MATCH", "=LOCKCTL LIST BOGUS", "=LOCKCTL NOSUCH", "=LOCKCTL"}},
	{"lock renew unlock", "to meet the same lock and owner again, and leases that last beyond the stream", []string{
		"LOCK {k} 40s OWNER {o}", "LOCK {k} 40s OWNER {o}", "LOCK {k} 40s", "LOCK {k} 40s OWNER {o} REQ r1", "LOCK {k} 40s OWNER {o} INFO it SESSION MAXHOLD 1m", "LOCK {k} 40s SESSION ONLOSS PUSH", "LOCK {k} 40s OWNER {o} FRESH", "LOCK {k} 40s OWNER {o} NOREENTER",
		"LOCK {k} 40s OWNER {o} RETRYAFTER", "LOCK {k} 40s WAIT 5ms RETRYAFTER", "=LOCK held 40s OWNER {o} WAIT 5ms", "=LOCK held 40s", "LOCK {k} 1h", "LOCK {k} 5", "LOCK {k} 40s WAIT -1", "LOCK {k} 40s BOGUS",
		"RENEW {k} 39s", "RENEW {k} 39s {o}", "RENEW {k} 39s {o} ALL", "UNLOCK {k}", "UNLOCK {k} {o}", "UNLOCK {k} {o}", "UNLOCK {k} {o} ALL", "UNLOCK {k} {o} FENCE x", "UNLOCK {k} {o} FENCE 1",
	}},
}

// neverSent are commands that no stream has, and why.
var neverSent = map[string]string{"restore-asking": "only nodes of a Cluster send it"}

// formOf is what a command is sent as, if not as COMMAND DOCS says.
func formOf(name string) []string {
	for _, f := range forms {
		if slices.Contains(strings.Fields(f.commands), name) {
			return f.templates
		}
	}
	return nil
}

// A mode is how the connection of a stream begins, and what comes up in it again and again.
type mode struct {
	name   string
	begin  string   // commands, separated by semicolons
	within []string // templates that are mixed in, some of several commands
	// loose modes put replies of verbs before or behind what was sent before them: the proxy
	// cannot know when that has been answered. Nothing is sent beside a verb.
	loose bool
}

// inTransactions has what is watched changed between WATCH and EXEC, too.
var inTransactions = []string{
	"MULTI", "MULTI", "EXEC", "EXEC", "DISCARD", "WATCH {any}", "UNWATCH",
	"=DISCARD;=WATCH s1;=SET s1 {v};=MULTI;=GET s1;=EXEC", "=DISCARD;=WATCH s1;=SET s2 {v};=MULTI;=GET s2;=EXEC", "=DISCARD;=MULTI;=SELECT {d};=LPUSH {l} {v};=EXEC",
}

var modes = []mode{
	{name: "plain"},
	{name: "plain RESP3", begin: "HELLO 3"},
	{name: "transactions", within: inTransactions},
	{name: "transactions RESP3", begin: "HELLO 3", within: inTransactions},
	{name: "subscriber", begin: "SUBSCRIBE c", within: []string{"PUBLISH c {v}", "=UNSUBSCRIBE c", "=SUBSCRIBE c"}},
	{name: "subscriber RESP3", begin: "HELLO 3;SUBSCRIBE c", within: []string{"PUBLISH c {v}", "=UNSUBSCRIBE c", "=SUBSCRIBE c"}},
	{name: "monitor", begin: "MONITOR", loose: true},
	{name: "replies off", within: []string{"CLIENT REPLY OFF", "CLIENT REPLY ON", "CLIENT REPLY SKIP", "CLIENT REPLY SKIP"}},
	{name: "tracking", begin: "HELLO 3;CLIENT TRACKING ON", within: []string{"GET {s}", "SET {s} {v}"}},
	{name: "user with rights", begin: "AUTH app pw"},
	{name: "user without rights", begin: "HELLO 3 AUTH reader pw"},
	{name: "refused", begin: "AUTH app wrong;HELLO 3 AUTH none none", within: []string{"AUTH app wrong", "AUTH app pw", "RESET"}},
	{name: "another database", begin: "SELECT 1", within: []string{"SELECT {d}", "SWAPDB {d} {d}", "MOVE {any} {d}"}},
	{name: "passthrough", begin: "REPLCONF capa eof", within: []string{"HELLO 3", "SELECT {d}", "MULTI", "EXEC"}, loose: true},
}

// loosening are commands that make a connection loose.
var loosening = []string{"sync", "psync", "replconf", "monitor", "script|debug"}

// A sweeper makes up streams over a whole catalog.
type sweeper struct {
	speaker
	*catalog
}

// eachTime is in the names of locks, and becomes another number each time a stream is sent, so
// that no lock is left from the time before.
const eachTime = "@@@@@@@@"

// newSweep makes a stream over the catalog in one mode. All of it follows from the seed.
func newSweep(seed uint64, c *catalog) (stream, mode) {
	s := &sweeper{speaker{Rand: rand.New(rand.NewPCG(seed, 3))}, c}
	m := modes[s.IntN(len(modes))]
	st := stream{seed: seed}
	for _, line := range strings.Split(m.begin, ";") {
		if line != "" {
			st.commands = append(st.commands, strings.Fields(line))
		}
	}
	families := []string{"strings", "lists", "hashes", "sets", "sorted sets", "streams", "scripts", "keys", "types", "connection", "blocking"}
	locks := formOf("lock")
	for range 20 + s.IntN(100) {
		switch n := s.IntN(20); {
		case n < 3 && len(m.within) > 0:
			for template := range strings.SplitSeq(m.within[s.IntN(len(m.within))], ";") {
				st.commands = append(st.commands, s.fill(template))
			}
		case n < 5:
			st.commands = append(st.commands, s.fill(locks[s.IntN(len(locks))]))
		case n < 9:
			family := grammar[s.one(families...)]
			st.commands = append(st.commands, s.fill(family[s.IntN(len(family))]))
		default:
			name := s.names[s.IntN(len(s.names))]
			if slices.Contains(loosening, name) && !m.loose {
				continue
			}
			if args := s.command(name); args != nil {
				st.commands = append(st.commands, args)
			}
		}
	}
	silenced := slices.ContainsFunc(st.commands, func(args []string) bool { return len(args) > 2 && args[1] == "REPLY" })
	if s.IntN(8) == 0 && !silenced { // without replies a QUIT does not end the connection
		st.commands = append(st.commands, []string{"QUIT"})
	}
	return st, m
}

// fill makes a command of a template, whose words {k} and {o} are a lock and its owner.
func (s *sweeper) fill(template string) []string {
	template = strings.ReplaceAll(template, "{k}", fmt.Sprint("n", eachTime, "-", s.IntN(3)))
	return s.say(strings.ReplaceAll(template, "{o}", s.one("one", "two")))
}

// command makes one by name, nil if it is never sent.
func (s *sweeper) command(name string) []string {
	if neverSent[name] != "" || name == "quit" {
		return nil
	}
	if templates := formOf(name); templates != nil {
		return s.fill(templates[s.IntN(len(templates))])
	}
	args := strings.Split(strings.ToUpper(name), "|")
	for _, a := range s.args[name] {
		args = s.argument(args, a, s.group[name])
	}
	countKeys(args, s.args[name])
	blocks := slices.ContainsFunc(s.args[name], func(a syntax) bool { return a.name == "timeout" })
	if blocks || s.group[name] == "set" { // a timeout of 0 never ends; in a set, what is no integer brings the order of a hash table
		return args
	}
	return s.mutate(args)
}

// argument appends one argument to a command.
func (s *sweeper) argument(args []string, a syntax, group string) []string {
	if a.optional && s.IntN(3) > 0 {
		return args
	}
	times := 1
	if a.multiple {
		times += s.IntN(3)
	}
	for i := range times {
		if a.token != "" && a.kind != "pure-token" && (i == 0 || a.repeatedToken) {
			args = append(args, a.token)
		}
		switch a.kind {
		case "pure-token":
			args = append(args, a.token)
		case "oneof":
			args = s.argument(args, a.args[s.IntN(len(a.args))], group)
		case "block":
			for _, b := range a.args {
				args = s.argument(args, b, group)
			}
		default:
			args = append(args, s.word(s.valueOf(a, group), true))
		}
	}
	return args
}

// classOf are the classes of keys of the grammar by group of commands.
var classOf = map[string]string{"string": "{s}", "bitmap": "{s}", "list": "{l}", "hash": "{h}", "set": "{i}", "sorted-set": "{z}", "stream": "{x}", "hyperloglog": "{p}", "geo": "{g}", "scripting": "{s}"}

// valueOf is the word of the grammar, or the word itself, for a simple argument.
func (s *sweeper) valueOf(a syntax, group string) string {
	switch {
	case a.kind == "key" && group == "lock":
		return fmt.Sprint("n", eachTime, "-", s.IntN(3))
	case a.kind == "key" && classOf[group] != "":
		return classOf[group]
	case a.kind == "key":
		return "{any}"
	case strings.HasPrefix(a.name, "unix-time"):
		return s.one("9999999999", "9999999999999")
	case a.name == "seconds" || a.name == "milliseconds" && a.token != "BLOCK" || a.name == "ttl":
		return s.one("9000", "9000000", "-1") // far from any end within the stream
	case a.name == "timeout" || a.name == "milliseconds":
		return map[bool]string{true: "0.001", false: "1"}[a.kind == "double"]
	case a.kind == "double":
		return "{f}"
	case a.kind == "integer":
		return "{n}"
	case a.kind == "pattern":
		return "{s}"
	case group == "set":
		return "{e}"
	case a.name == "member" || a.name == "field" || a.name == "element":
		return "{m}"
	case a.name == "id":
		return "{id}"
	case a.name == "username":
		return s.one("app", "reader", "none")
	}
	return s.one("{v}", "{m}", "{n}")
}

// countKeys puts the number of keys where a command wants it, so that it is right more often
// than by chance.
func countKeys(args []string, of []syntax) {
	at := slices.IndexFunc(of, func(a syntax) bool { return a.name == "numkeys" })
	if at < 0 {
		return
	}
	n := 0
	for _, a := range args {
		if anyKey.MatchString(a) {
			n++
		}
	}
	for i := range args[1:] {
		if _, err := strconv.Atoi(args[i+1]); err == nil {
			args[i+1] = strconv.Itoa(max(1, n-at/2))
			return
		}
	}
}

// tagged gives the keys of a stream the tags that a Cluster wants: those of one command belong
// together, but for the commands that are split; those of a transaction too, now and then.
func tagged(st stream) stream {
	r := rand.New(rand.NewPCG(st.seed, 4))
	tags := []string{"{a}", "{b}", "{c}", "{d}"}
	tag, inTx := tags[0], false
	for n, args := range st.commands {
		if !inTx || r.IntN(20) == 0 {
			tag = tags[r.IntN(len(tags))]
		}
		args = slices.Clone(args)
		for i, a := range args {
			if i > 0 && (anyKey.MatchString(a) || slices.Contains([]string{"u1", "v1", "w1"}, a)) {
				if args[i] = tag + a; slices.Contains(splitCommands, args[0]) {
					args[i] = tags[r.IntN(len(tags))] + a
				}
			}
		}
		st.commands[n] = args
		if len(args) == 1 {
			inTx = args[0] == "MULTI" || inTx && args[0] != "EXEC" && args[0] != "DISCARD" && args[0] != "RESET"
		}
	}
	return st
}
