package table

import (
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/spec"
	"github.com/lockproxy/lockproxy/commands/stats"
)

// Plain are the rows of the commands of Redis 7.0, and of their subcommands that are not as their
// container, which no session handles in a way of its own.
func Plain[H any]() []*Row[H] {
	return slices.Concat(blockingRows[H](), scriptRows[H](), serverRows[H](), keylessRows[H](), keyedRows[H]())
}

func blockingRows[H any]() []*Row[H] {
	var all []*Row[H]
	for _, name := range strings.Fields("blpop brpop blmove brpoplpush blmpop bzpopmin bzpopmax bzmpop") {
		all = append(all, &Row[H]{Name: name, Class: stats.Blocking, Need: Always(BlockingConn)})
	}
	unlessAsked := func(args [][]byte) Need {
		if spec.HasBlock(args) {
			return BlockingConn
		}
		return AnyConn
	}
	return append(all,
		&Row[H]{Name: "xread", Class: stats.Blocking, Need: unlessAsked}, &Row[H]{Name: "xreadgroup", Class: stats.Blocking, Need: unlessAsked})
}

func scriptRows[H any]() []*Row[H] {
	var all []*Row[H]
	for _, name := range strings.Fields("eval evalsha fcall eval_ro evalsha_ro fcall_ro") {
		all = append(all, &Row[H]{Name: name, Class: stats.Scripts, Need: Always(ScriptConn), Cluster: cluster.Rule{AnyNode: true}})
	}
	// The debugger takes over the connection.
	debug := &Row[H]{Name: "script|debug", Need: Always(PassthroughConn), Cluster: cluster.Rule{AnyNode: true}}
	return slices.Concat(all, []*Row[H]{{Name: "script", Class: stats.Scripts}, {Name: "function", Class: stats.Scripts}, debug},
		OnAllMasters[H](cluster.First, "script|load script|flush function|load function|delete function|flush function|restore"),
		OnAllMasters[H](cluster.Least, "script|exists"),
		onAnyNode[H]("script|help function|dump function|help function|list function|stats"))
}

// serverRows are about the server: who may do what there, which commands it has, and what
// it is.
func serverRows[H any]() []*Row[H] {
	var all []*Row[H]
	for _, sub := range strings.Fields("count list docs info getkeys getkeysandflags") {
		all = append(all, &Row[H]{Name: "command|" + sub, Augment: func([][]byte) bool { return true }, Cluster: cluster.Rule{AnyNode: true}})
	}
	for _, name := range strings.Fields("shutdown failover") {
		all = append(all, &Row[H]{Name: name, Class: stats.Admin, Need: Always(PinnedConn), Cluster: cluster.Rule{Refuse: cluster.AboutOneNode}})
	}
	for _, name := range strings.Fields("readonly readwrite asking") {
		all = append(all, &Row[H]{Name: name, Class: stats.Admin, Need: Always(PinnedConn), Cluster: cluster.Rule{Refuse: cluster.Disabled}})
	}
	for _, name := range strings.Fields("replicaof slaveof") {
		all = append(all, &Row[H]{Name: name, Class: stats.Admin, Cluster: cluster.Rule{Refuse: cluster.AboutOneNode}})
	}
	return slices.Concat(all, []*Row[H]{
		{Name: "acl", Class: stats.Admin}, {Name: "config", Class: stats.Admin}, {Name: "module", Class: stats.Admin, Effect: SessionOnly},
		{Name: "command", Class: stats.Admin, Augment: func(args [][]byte) bool { return len(args) == 1 }},
		{Name: "info", Class: stats.Admin, Augment: func(args [][]byte) bool { return stats.WantsSection(args[1:]) }, Cluster: cluster.Rule{FanOut: cluster.Info}},
		{Name: "cluster", Class: stats.Admin, Cluster: cluster.Rule{Refuse: cluster.Disabled}},
	},
		OnAllMasters[H](cluster.First, "acl|save config|resetstat config|rewrite"),
		onAnyNode[H]("acl|cat acl|dryrun acl|genpass acl|getuser acl|help acl|list acl|log acl|users acl|whoami config|get config|help command|help module|help module|list"))
}

// OnAllMasters are ordinary commands without keys that all masters of a Cluster do. names are separated by spaces.
func OnAllMasters[H any](merge cluster.Merger, names string) []*Row[H] {
	return ordinary[H](names, cluster.Rule{FanOut: merge})
}

// onAnyNode are ordinary commands without keys of which one node's reply will do.
func onAnyNode[H any](names string) []*Row[H] {
	return ordinary[H](names, cluster.Rule{AnyNode: true})
}

func ordinary[H any](names string, rule cluster.Rule) (all []*Row[H]) {
	for _, name := range strings.Fields(names) {
		r := &Row[H]{Name: name, Cluster: rule}
		if !strings.Contains(name, "|") {
			r.Class = stats.ClassOf(spec.Builtin().Lookup([][]byte{[]byte(name)}))
		}
		all = append(all, r)
	}
	return all
}

func keylessRows[H any]() []*Row[H] {
	return slices.Concat(
		OnAllMasters[H](cluster.Sum, "dbsize slowlog|len latency|reset pubsub|numpat"),
		OnAllMasters[H](cluster.Union, "keys pubsub|channels pubsub|shardchannels"),
		OnAllMasters[H](cluster.Pairs, "pubsub|numsub pubsub|shardnumsub"),
		OnAllMasters[H](cluster.Any, "randomkey"), OnAllMasters[H](cluster.Min, "lastsave"),
		OnAllMasters[H](cluster.First, "flushall flushdb save bgsave bgrewriteaof slowlog|reset memory|purge"),
		[]*Row[H]{{Name: "scan", Class: stats.Reads, Cluster: cluster.Rule{Cursor: true}}},
		onAnyNode[H]("debug echo lolwut pfselftest ping publish role swapdb time latency memory pubsub slowlog"),
		onAnyNode[H]("latency|doctor latency|graph latency|help latency|histogram latency|history latency|latest"),
		onAnyNode[H]("memory|doctor memory|help memory|malloc-stats memory|stats pubsub|help slowlog|get slowlog|help"),
		onAnyNode[H]("object|help xgroup|help xinfo|help"))
}

// keyedRows are the ordinary commands that go by their keys.
func keyedRows[H any]() []*Row[H] {
	sum := &cluster.Split{Merge: cluster.AnyPlace(cluster.Sum)}
	split := func(name string, rule *cluster.Split) []*Row[H] { return ordinary[H](name, cluster.Rule{Split: rule}) }
	return slices.Concat(
		split("mget", &cluster.Split{Merge: cluster.Elements}), split("mset", &cluster.Split{Values: 1, Merge: cluster.AnyPlace(cluster.First)}),
		split("del", sum), split("unlink", sum), split("exists", sum), split("touch", sum),
		ordinary[H](`
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
