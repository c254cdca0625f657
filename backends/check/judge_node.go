package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// minVersion is the first with RESP3, which the proxy speaks to lock nodes, and where
// scripts are replicated by effect; the tests use testedVersion and later.
const (
	minVersion    = 6.0
	testedVersion = 7.0
)

func (f *facts) judgeVersion(out *findings) {
	name, version := f.software()
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return
	}
	v, err := strconv.ParseFloat(parts[0]+"."+parts[1], 64)
	switch {
	case err != nil:
	case v < minVersion:
		out.add(Error, "version", name+" "+version+" is too old for the scripts of locks", "upgrade it to 7.0 or later")
	case v < testedVersion:
		out.add(Warning, "version", name+" "+version+" is older than any that locks are tested with", "upgrade it to 7.0 or later")
	}
}

func (f *facts) judgeReplication(out *findings, o *Options) {
	replicas := number(f.info["connected_slaves"])
	needed := number(cmp.Or(f.config["min-replicas-to-write"], f.config["min-slaves-to-write"]))
	switch {
	case int64(o.ReplicaAcks) > replicas:
		out.add(Error, "replicas", fmt.Sprintf("has %d replicas, and replica-acks asks for %d: its votes do not count", replicas, o.ReplicaAcks), "attach replicas, or lower --replica-acks")
	case f.chosen && f.configErr == nil && needed == 0:
		out.add(Warning, "replicas", "is chosen by sentinels and min-replicas-to-write is 0: cut off from them, it may vote beside its successor", cli(f.server, "CONFIG SET min-replicas-to-write 1"))
	case !f.chosen && replicas > 0 && o.ReplicaAcks == 0:
		out.add(Warning, "replicas", fmt.Sprintf("has %d replicas. Replication is asynchronous: one that takes its place has not heard of the last locks; if that is noticed, %s", replicas, o.afterLoss()), "use independent masters; at each replica: redis-cli REPLICAOF NO ONE")
	}
	if needed > replicas {
		out.add(Error, "replicas", fmt.Sprintf("min-replicas-to-write is %d and there are %d: it refuses every vote", needed, replicas), cli(f.server, "CONFIG SET min-replicas-to-write 0"))
	}
}

func (f *facts) judgeMemory(out *findings) {
	policy, most, used := f.info["maxmemory_policy"], number(f.info["maxmemory"]), number(f.info["used_memory"])
	fix := cli(f.server, "CONFIG SET maxmemory-policy noeviction")
	switch {
	case policy == "" || policy == "noeviction":
	case most > 0:
		out.add(Error, "evicts", fmt.Sprintf("maxmemory-policy is %s: when %d bytes are full it drops locks that are held, unnoticed, and they are granted a second time", policy, most), fix)
	default:
		out.add(Warning, "evicts", "maxmemory-policy is "+policy+": harmless until somebody sets maxmemory, then locks that are held are dropped, unnoticed, and granted a second time", fix)
	}
	if most > 0 && used*10 >= most*8 {
		s, more := Warning, cli(f.server, fmt.Sprintf("CONFIG SET maxmemory %d", 2*max(most, used)))
		if used >= most {
			s = Error
		}
		out.add(s, "memory", fmt.Sprintf("uses %d of %d bytes of maxmemory: full, it grants no lock (what is held can still be freed)", used, most), more)
	}
}

// judgePersistence finds what a restart would forget. Any restart is noticed, by the ID of the
// replication stream; what matters is whether the node then votes at once.
func (f *facts) judgePersistence(out *findings, o *Options) {
	snapshots, aof := f.config["save"] != "", f.info["aof_enabled"] == "1"
	fsync := f.config["appendfsync"]
	keeps := "keeps nothing on disk: a restart forgets every lock"
	switch {
	case aof && fsync == "always":
		keeps = ""
		out.add(Note, "appendfsync-always", "appendfsync is always: it forgets nothing, and every vote waits for the disk", "nothing, if its round trips are short enough; with three lock nodes or more it is not needed")
	case aof:
		keeps = "appendfsync is " + cmp.Or(fsync, "not known") + ": a crash forgets up to a second of locks, or what the system had not written"
	case snapshots:
		keeps = "has snapshots only: a restart brings back an older state, without the locks since"
	case f.configErr != nil:
		return
	}
	switch fix := "--restart-grace safe, or three lock nodes; or: " + cli(f.server, "CONFIG SET appendonly yes") + " and CONFIG SET appendfsync always"; {
	case keeps == "":
	case o.votesAfterLoss():
		out.add(Warning, "forgets", fmt.Sprintf("%s; with %s and restart-grace available it votes at once, so what was held is granted a second time", keeps, count(len(o.Nodes), "lock node")), fix)
	case aof:
		out.add(Note, "forgets", keeps+". It is noticed, as every restart is: "+o.afterLoss()+". So this persistence costs and brings locks nothing", cli(f.server, "CONFIG SET appendonly no"))
	case snapshots:
		out.add(Note, "forgets", keeps+". It is noticed, as every restart is: "+o.afterLoss()+". Snapshots cost forks, and a full disk stops its votes", cli(f.server, `CONFIG SET save ""`))
	}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// judgePauses finds what has kept the node from answering.
func (f *facts) judgePauses(out *findings, o *Options) {
	limit := cmp.Or(o.NodeTimeout, nodeTime)
	if fork := time.Duration(number(f.info["latest_fork_usec"])) * time.Microsecond; fork >= limit && f.forks() {
		fix := cli(f.server, `CONFIG SET save ""`)
		if f.info["aof_enabled"] == "1" {
			fix = cli(f.server, "CONFIG SET appendonly no") + ", and " + fix
		}
		out.add(Warning, "pauses", "its last fork, for a snapshot or a rewrite, took "+roundedDuration(fork)+": no vote comes meanwhile", fix)
	}
	slowest := slowCommand{}
	for _, s := range f.slow {
		if s.took > slowest.took {
			slowest = s
		}
	}
	if slowest.took >= limit {
		out.add(Warning, "pauses", fmt.Sprintf("%s took %s within the last hour: no vote comes meanwhile", slowest.name, roundedDuration(slowest.took)), "keep other work off lock nodes; "+cli(f.server, "SLOWLOG GET"))
	}
}

// forks reports whether the node may fork again, as far as is known: INFO has the duration of
// the last fork as long as the node runs.
func (f *facts) forks() bool {
	return f.configErr != nil || f.config["save"] != "" || f.info["aof_enabled"] == "1" || number(f.info["connected_slaves"]) > 0
}

// judgeCommands finds commands that scripts need and the user may not use.
func (f *facts) judgeCommands(out *findings, o *Options) {
	var denied, unknown, grants []string
	keys, channels := false, false
	for _, t := range f.tries {
		switch text := fmt.Sprint(t.err); {
		case t.err == nil:
		case strings.Contains(text, "access a channel") || strings.Contains(text, "channels used"):
			denied, channels = append(denied, t.command), true
		case strings.Contains(text, "access a key") || strings.Contains(text, "keys used"):
			denied, keys = append(denied, t.command), true
		case strings.HasPrefix(text, "NOPERM"):
			denied, grants = append(denied, t.command), append(grants, "+"+t.command)
		case strings.Contains(text, "unknown command"):
			unknown = append(unknown, t.command)
		default:
			f.refused = t.err
		}
	}
	if len(denied) > 0 {
		if keys {
			grants = append(grants, "~"+o.Prefix+"*")
		}
		if channels {
			grants = append(grants, "'&"+o.Prefix+"*'")
		}
		user, _ := f.server.Credentials()
		out.add(Error, "permissions", "the user may not do what locks need: "+strings.Join(denied, ", "), cli(f.server, "ACL SETUSER "+cmp.Or(user, "default")+" "+strings.Join(grants, " ")))
	}
	if len(unknown) > 0 {
		out.add(Error, "renamed", "does not know what locks need: "+strings.Join(unknown, ", "), "take rename-command for these out of its configuration; use ACLs instead")
	}
	if f.refused != nil {
		fix := cli(f.server, "INFO") + ", and its log"
		if most := number(f.info["maxmemory"]); most > 0 && strings.HasPrefix(f.refused.Error(), "OOM") {
			fix = cli(f.server, fmt.Sprintf("CONFIG SET maxmemory %d", 2*max(most, number(f.info["used_memory"]))))
		}
		out.add(Error, "refuses-writes", "refuses every vote: "+f.refused.Error(), fix)
	}
}

// afterWrites returns a finding about nodes that forgot, and what to do about it. A node that refuses writes does not come back by
// itself: where there is one, the finding says so.
func afterWrites(says, fix string, nodes ...*facts) (string, string) {
	refusing := slices.DeleteFunc(slices.Clone(nodes), func(f *facts) bool { return f.refused == nil })
	if len(refusing) == 0 {
		return says, fix
	}
	return says + "; not before it takes writes again: " + addresses(refusing), "let it take writes (see refuses-writes); then " + strings.TrimPrefix(fix, "nothing; ")
}

// forgot reports whether a node has lost its memory since a proxy last asked it.
func (f *facts) forgot() bool {
	id := f.info["master_replid"]
	return id != "" && id != f.record["id"]
}

// left is how long it is until a time in the node record, by the node's clock.
func (f *facts) left(field string) time.Duration {
	return time.UnixMilli(number(f.record[field])).Sub(time.Now().Add(f.clockAhead))
}

// sitsOut reports whether a node has no vote since it forgot, or will have none when it is asked next.
func (f *facts) sitsOut() bool { return f.forgot() || f.left("until") > 0 || f.record["sync"] != "1" }

func (f *facts) judgeRecord(out *findings, o *Options) {
	switch {
	case f.recordErr != nil:
		out.add(Warning, "could-not-look", "could not look at the node record: HMGET says "+f.recordErr.Error(), "let the user read "+o.Prefix+"*")
		return
	case f.record["id"] == "":
		return // judged with those of the others
	}
	if longest := time.Duration(number(f.record["ttl"])) * time.Millisecond; longest > o.MaxTTL {
		out.add(Note, "other-max-ttl", fmt.Sprintf("knows of a proxy with max-ttl %s, and this one has %s. Leases of both are safe; a node that forgets sits out the larger one where a majority does not remember, until no proxy has it any more", longest, o.MaxTTL), "nothing, if max-ttl is being changed; else give all proxies the same")
	}
	if f.forgot() && !o.votesAfterLoss() {
		says, fix := afterWrites("was restarted, emptied, or replaced by a replica since a proxy last asked it: "+o.afterLoss(), "nothing; it comes back by itself while a proxy runs", f)
		out.add(Warning, "forgot", says, fix)
		return
	}
	switch left := f.left("until"); {
	case left > 0:
		says := "may have forgotten locks, and has no vote for another " + roundedDuration(left)
		if len(o.Nodes) >= 3 {
			says += ", or until it knows what a majority of the others hold, which takes a proxy seconds if they vote"
		}
		says, fix := afterWrites(says, "nothing; it comes back by itself. Find out what restarted or emptied it", f)
		out.add(Warning, "quarantine", says, fix)
	case f.record["sync"] != "1":
		says, fix := afterWrites("may have forgotten fences, and has no vote until a proxy that runs gives them back", "run a proxy; it asks the other lock nodes, and they must be up", f)
		out.add(Warning, "quarantine", says, fix)
	}
	if left := f.left("doubt"); left > 0 && f.record["sync"] == "1" {
		out.add(Note, "doubt", "had forgotten its locks, and abstains for names that were held then, for "+roundedDuration(left)+" at most", "nothing; it ends with these locks. While it lasts, do not restart another lock node if they matter")
	}
}
