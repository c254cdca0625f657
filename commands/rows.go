package commands

import (
	"context"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/commands/acl"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/spec"
	"github.com/lockproxy/lockproxy/commands/stats"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// allRows are the rows of the table. Each command of Redis 7.0 has one, and each
// subcommand that is not as its container.
func allRows() []*command {
	return slices.Concat(lockRows(), identityRows(), clientRows(), txRows(), subscriptionRows(), blockingRows(), scriptRows(), serverRows(), keylessRows(), keyedRows())
}

func lockRows() []*command {
	row := func(name string, class stats.Class, verb lockcmd.Verb) *command {
		return &command{name: name, class: class, verb: verb, effect: lockVerb | whileSubscribed | sessionOnly,
			run: (*Session).runVerb, tryInTx: (*Session).refuseVerbInTx, passthrough: mustWait}
	}
	return []*command{row("lock", stats.Lock, nil), row("renew", stats.Renew, (*lockcmd.Client).Renew), row("unlock", stats.Unlock, (*lockcmd.Client).Unlock), row("lockctl", stats.Lockctl, (*lockcmd.Client).Ctl)}
}

// mustWait is the try of a command that always waits.
func mustWait(*Session, request) bool { return false }

func identityRows() []*command {
	const identity = changesClient | changesVerbs | sessionOnly
	return []*command{
		{name: "auth", class: stats.Connection, effect: identity, run: (*Session).auth, changes: tx.AuthChanges, passthrough: (*Session).passAuth},
		{name: "hello", class: stats.Connection, effect: identity, run: (*Session).hello, changes: tx.HelloChanges, passthrough: (*Session).passHello, tryInTx: (*Session).queueTranslated},
		{name: "select", class: stats.Connection, effect: identity, run: (*Session).selectDB, changes: tx.SelectChanges, passthrough: (*Session).passSelect},
		{name: "reset", class: stats.Connection, effect: changesVerbs | whileSubscribed | sessionOnly, run: (*Session).reset, tryInTx: (*Session).refusedReset, passthrough: (*Session).refusedReset},
		{name: "quit", class: stats.Connection, effect: changesVerbs | whileSubscribed | sessionOnly, run: (*Session).quit, tryInTx: mustWait, passthrough: (*Session).passQuit},
		{name: "post", class: stats.Other, effect: isHTTP}, {name: "host:", class: stats.Other, effect: isHTTP},
	}
}

// clientRows are CLIENT, whose subcommands mean the client's own connection at the
// upstream, or others by the proxy's ids.
func clientRows() []*command {
	row := func(sub string, run func(*Session, context.Context, request)) *command {
		return &command{name: "client" + sub, class: stats.Connection, effect: changesClient | sessionOnly, run: onClient(run),
			tryInTx: (*Session).queueClient, changes: tx.ClientChanges, passthrough: (*Session).passClient}
	}
	ask := func(sub string) *command { return row(sub, (*Session).runTranslated) }
	list, kill := ask("|list"), row("|kill", func(s *Session, ctx context.Context, q request) { s.kill(ctx, q.args) })
	list.runInTx, kill.runInTx = (*Session).queueFiltered, (*Session).queueFiltered
	reply := row("|reply", (*Session).startPassthrough)
	reply.tryInTx, reply.effect = mustWait, reply.effect|changesVerbs // then replies can no longer be counted
	client := row("", (*Session).forwardClient)
	client.otherSub = row("|", (*Session).runPinnedForLife)
	return []*command{client,
		list, kill, reply, ask("|id"), ask("|info"), ask("|getredir"), ask("|trackinginfo"),
		row("|unblock", (*Session).runUnblock), row("|setname", (*Session).setName), row("|getname", (*Session).getName),
		row("|pause", (*Session).pause), row("|unpause", (*Session).pause),
		row("|setinfo", (*Session).setInfo), row("|help", (*Session).forwardClient),
		row("|caching", (*Session).runPinnedForLife), row("|no-evict", (*Session).runPinnedForLife), row("|tracking", (*Session).runPinnedForLife),
	}
}

func txRows() []*command {
	begin := func(name string, e effect) *command {
		return &command{name: name, class: stats.Transactions, effect: e, try: (*Session).tryBegin, run: (*Session).runBegin}
	}
	end := func(name string) *command {
		return &command{name: name, class: stats.Transactions, effect: endsTx | changesVerbs | sessionOnly, cluster: cluster.Rule{AnyNode: true},
			try: (*Session).tryEnd, tryInTx: (*Session).endTx, passthrough: (*Session).passEnd}
	}
	multi, watch := begin("multi", beginsTx|changesVerbs|sessionOnly), begin("watch", watches)
	multi.passthrough = (*Session).passMulti
	watch.runInCluster = (*Session).runWatch
	return []*command{multi, watch, end("exec"), end("discard"),
		{name: "unwatch", class: stats.Transactions, effect: unwatches, cluster: cluster.Rule{AnyNode: true}, try: (*Session).tryUnwatch}}
}

// subscriptionRows are the commands with replies and messages that are not one per
// command.
func subscriptionRows() []*command {
	var all []*command
	for _, name := range strings.Fields("subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe monitor sync psync replconf") {
		c := &command{name: name, class: stats.PubSub, effect: messages | whileSubscribed | sessionOnly, need: always(passthroughConn),
			tryInTx: mustWait, passthrough: (*Session).passSubscribe}
		if strings.HasSuffix(name, "sync") || name == "replconf" {
			c.cluster.Refuse = cluster.AboutOneNode
		}
		all = append(all, c)
	}
	return all
}

func blockingRows() []*command {
	var all []*command
	for _, name := range strings.Fields("blpop brpop blmove brpoplpush blmpop bzpopmin bzpopmax bzmpop") {
		all = append(all, &command{name: name, class: stats.Blocking, need: always(blockingConn)})
	}
	unlessAsked := func(args [][]byte) need {
		if spec.HasBlock(args) {
			return blockingConn
		}
		return anyConn
	}
	return append(all,
		&command{name: "xread", class: stats.Blocking, need: unlessAsked}, &command{name: "xreadgroup", class: stats.Blocking, need: unlessAsked},
		&command{name: "wait", class: stats.Blocking, run: (*Session).runWait, runInCluster: (*Session).runWaitMasters},
		&command{name: "waitaof", class: stats.Blocking, run: (*Session).runWait, runInCluster: (*Session).runWaitMasters})
}

func scriptRows() []*command {
	var all []*command
	for _, name := range strings.Fields("eval evalsha fcall eval_ro evalsha_ro fcall_ro") {
		all = append(all, &command{name: name, class: stats.Scripts, need: always(scriptConn), cluster: cluster.Rule{AnyNode: true}})
	}
	kill := func(name string) *command { // it must overtake the script that it kills
		return &command{name: name, need: always(pinnedConn), runInCluster: (*Session).runScriptKill}
	}
	// The debugger takes over the connection.
	debug := &command{name: "script|debug", need: always(passthroughConn), cluster: cluster.Rule{AnyNode: true}}
	return slices.Concat(all, []*command{{name: "script", class: stats.Scripts}, {name: "function", class: stats.Scripts}, kill("script|kill"), kill("function|kill"), debug},
		onAllMasters(cluster.First, "script|load script|flush function|load function|delete function|flush function|restore"),
		onAllMasters(cluster.Least, "script|exists"),
		onAnyNode("script|help function|dump function|help function|list function|stats"))
}

// serverRows are about the server: who may do what there, which commands it has, and what
// it is.
func serverRows() []*command {
	var all []*command
	users := func(names string, handles func(*Session, [][]byte) bool) {
		for _, c := range onAllMasters(cluster.First, names) {
			c.run, c.handles = (*Session).changeUsers, handles
			all = append(all, c)
		}
	}
	users("acl|setuser acl|deluser acl|load", func(s *Session, _ [][]byte) bool { return s.changesUsersHere() })
	users("config|set", func(s *Session, args [][]byte) bool { return s.changesUsersHere() && acl.SetsPassword(args) })
	for _, sub := range strings.Fields("count list docs info getkeys getkeysandflags") {
		all = append(all, &command{name: "command|" + sub, augment: augmented, cluster: cluster.Rule{AnyNode: true}})
	}
	for _, sub := range strings.Fields("load loadex unload") {
		all = append(all, &command{name: "module|" + sub, effect: sessionOnly, run: (*Session).runModule, cluster: cluster.Rule{AnyNode: true}})
	}
	for _, name := range strings.Fields("shutdown failover") {
		all = append(all, &command{name: name, class: stats.Admin, need: always(pinnedConn), cluster: cluster.Rule{Refuse: cluster.AboutOneNode}})
	}
	for _, name := range strings.Fields("readonly readwrite asking") {
		all = append(all, &command{name: name, class: stats.Admin, need: always(pinnedConn), cluster: cluster.Rule{Refuse: cluster.Disabled}})
	}
	for _, name := range strings.Fields("replicaof slaveof") {
		all = append(all, &command{name: name, class: stats.Admin, cluster: cluster.Rule{Refuse: cluster.AboutOneNode}})
	}
	return slices.Concat(all, []*command{
		{name: "acl", class: stats.Admin}, {name: "config", class: stats.Admin}, {name: "module", class: stats.Admin, effect: sessionOnly},
		{name: "command", class: stats.Admin, augment: func(args [][]byte) bool { return len(args) == 1 }},
		{name: "info", class: stats.Admin, augment: func(args [][]byte) bool { return stats.WantsSection(args[1:]) }, cluster: cluster.Rule{FanOut: cluster.Info}},
		{name: "cluster", class: stats.Admin, cluster: cluster.Rule{Refuse: cluster.Disabled}},
	},
		onAllMasters(cluster.First, "acl|save config|resetstat config|rewrite"),
		onAnyNode("acl|cat acl|dryrun acl|genpass acl|getuser acl|help acl|list acl|log acl|users acl|whoami config|get config|help command|help module|help module|list"))
}

func augmented([][]byte) bool { return true }

// onAllMasters are ordinary commands without keys that all masters of a Cluster do.
func onAllMasters(merge cluster.Merger, names string) []*command {
	return ordinary(names, cluster.Rule{FanOut: merge})
}

// onAnyNode are ordinary commands without keys of which one node's reply will do.
func onAnyNode(names string) []*command { return ordinary(names, cluster.Rule{AnyNode: true}) }

func ordinary(names string, rule cluster.Rule) (all []*command) {
	for _, name := range strings.Fields(names) {
		c := &command{name: name, cluster: rule}
		if !strings.Contains(name, "|") {
			c.class = stats.ClassOf(spec.Builtin().Lookup([][]byte{[]byte(name)}))
		}
		all = append(all, c)
	}
	return all
}

func keylessRows() []*command {
	return slices.Concat(
		onAllMasters(cluster.Sum, "dbsize slowlog|len latency|reset pubsub|numpat"),
		onAllMasters(cluster.Union, "keys pubsub|channels pubsub|shardchannels"),
		onAllMasters(cluster.Pairs, "pubsub|numsub pubsub|shardnumsub"),
		onAllMasters(cluster.Any, "randomkey"), onAllMasters(cluster.Min, "lastsave"),
		onAllMasters(cluster.First, "flushall flushdb save bgsave bgrewriteaof slowlog|reset memory|purge"),
		[]*command{{name: "scan", class: stats.Reads, cluster: cluster.Rule{Cursor: true}}},
		onAnyNode("debug echo lolwut pfselftest ping publish role swapdb time latency memory pubsub slowlog"),
		onAnyNode("latency|doctor latency|graph latency|help latency|histogram latency|history latency|latest"),
		onAnyNode("memory|doctor memory|help memory|malloc-stats memory|stats pubsub|help slowlog|get slowlog|help"),
		onAnyNode("object|help xgroup|help xinfo|help"))
}

// keyedRows are the ordinary commands that go by their keys.
func keyedRows() []*command {
	sum := &cluster.Split{Merge: cluster.AnyPlace(cluster.Sum)}
	split := func(name string, rule *cluster.Split) []*command { return ordinary(name, cluster.Rule{Split: rule}) }
	return slices.Concat(
		split("mget", &cluster.Split{Merge: cluster.Elements}), split("mset", &cluster.Split{Values: 1, Merge: cluster.AnyPlace(cluster.First)}),
		split("del", sum), split("unlink", sum), split("exists", sum), split("touch", sum),
		ordinary(`
		append bitcount bitfield bitfield_ro bitop bitpos copy decr decrby dump expire expireat expiretime geoadd
		geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore
		get getbit getdel getex getrange getset hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset
		hrandfield hscan hset hsetnx hstrlen hvals incr incrby incrbyfloat lcs lindex linsert llen lmove lmpop lpop
		lpos lpush lpushx lrange lrem lset ltrim migrate move msetnx object persist pexpire pexpireat pexpiretime
		pfadd pfcount pfdebug pfmerge psetex pttl rename renamenx restore restore-asking rpop rpoplpush rpush rpushx
		sadd scard sdiff sdiffstore set setbit setex setnx setrange sinter sintercard sinterstore sismember smembers
		smismember smove sort sort_ro spop spublish srandmember srem sscan strlen substr sunion sunionstore ttl type
		xack xadd xautoclaim xclaim xdel xgroup xinfo xlen xpending xrange xrevrange xsetid xtrim zadd zcard zcount
		zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember
		zrange zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore
		zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunion zunionstore
`, cluster.Rule{}))
}
