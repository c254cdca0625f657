package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// A judgement gathers what is found at one place.
type judgement struct {
	where string
	found []Finding
}

func (j *judgement) add(s Severity, id, problem, fix string) {
	j.found = append(j.found, Finding{s, id, j.where, problem, fix})
}

// judge says what of the facts would hurt. It touches no network.
func judge(all []*facts, o *Options, now time.Time) (found []Finding) {
	for _, f := range all {
		j := &judgement{where: f.where()}
		f.judge(j, o, now)
		found = append(found, j.found...)
	}
	return slices.Concat(found, together(all, o), o.judgeSettings(all, now))
}

func (f *facts) judge(j *judgement, o *Options, now time.Time) {
	if f.err != nil {
		f.judgeError(j)
		return
	}
	f.judgeAccess(j)
	f.judgeTLS(j, now)
	f.judgeTrips(j, o)
	f.judgeUnseen(j)
	f.judgeConnections(j, o)
	if !f.judgeRole(j, o) || !f.node {
		f.judgeData(j)
		return
	}
	f.judgeVersion(j)
	f.judgeReplication(j, o)
	f.judgeMemory(j)
	f.judgePersistence(j, o)
	f.judgePauses(j, o)
	f.judgeTries(j, o)
	f.judgeRecord(j, o)
}

// judgeError says why a server could not be asked.
func (f *facts) judgeError(j *judgement) {
	said, answered := rueidis.IsRedisErr(f.err)
	text := f.err.Error()
	switch word, _, _ := strings.Cut(text, " "); {
	case word == "NOAUTH" && answered && !f.node && f.silent():
		j.add(Note, "could-not-look", "asks for a password, and its URL has none: clients bring their own, and it could not be looked at", "check with a URL that has one, to see the rest")
	case answered && slices.Contains([]string{"NOAUTH", "WRONGPASS"}, word):
		j.add(Error, "auth", "does not let this user in: "+text, "mend user and password in its URL (special characters percent-encoded); see: "+cli(f.server, "ACL WHOAMI"))
	case answered && word == "NOPERM":
		j.add(Error, "auth", "the user may not even PING: "+text, "give the user what docs/configuration.md lists")
	case answered && word == "BUSY":
		j.add(Error, "busy", "is busy with a script and answers nobody: "+said.Error(), cli(f.server, "SCRIPT KILL"))
	case answered:
		j.add(Error, "unusable", "answers only: "+text, "see its log, and: "+cli(f.server, "INFO"))
	default:
		j.add(Error, "unreachable", "cannot be reached, or hangs: "+text, "see that it runs, and that nothing is between: "+cli(f.server, "PING"))
	}
}

// judgeAccess says who else may do what the proxy may.
func (f *facts) judgeAccess(j *judgement) {
	if !f.anonymous() {
		return
	}
	can := "read and write all data, past the proxy"
	if f.node {
		can = "take, forge and free every lock"
	}
	fix := cli(f.server, "ACL SETUSER default '>…'") + ", and the password in the URL, in a file (docs/security.md)"
	_, bare := f.config["bind"]
	open := bare && f.config["protected-mode"] == "no" && !loopbackOnly(f.config["bind"])
	switch {
	case !f.local():
		j.add(Warning, "no-password", "asks for no password: whoever reaches it can "+can, fix)
	case open:
		j.add(Warning, "no-password", "asks for no password, listens on "+cmp.Or(f.config["bind"], "every address")+" and protected-mode is off: whoever reaches it can "+can, fix)
	}
}

// loopbackOnly says that all addresses that the parameter bind lists are loopback ones.
func loopbackOnly(bind string) bool {
	list := strings.Fields(bind)
	for _, a := range list {
		a = strings.TrimPrefix(a, "-")
		if !strings.HasPrefix(a, "127.") && a != "::1" && a != "localhost" {
			return false
		}
	}
	return len(list) > 0
}

func (f *facts) judgeTLS(j *judgement, now time.Time) {
	_, password := f.server.Credentials()
	if !f.server.Secure() && !f.local() {
		s, what := Note, "what is said to it can be read and changed on the way"
		if password != "" {
			s, what = Warning, "its password, and all that is said to it, can be read and changed on the way"
		}
		j.add(s, "no-tls", "is reached without TLS: "+what, "tls-port at the server, and a rediss:// URL")
	}
	if f.server.Unverified() {
		j.add(Warning, "tls-unverified", "skip_verify is on: anybody on the way can pretend to be this server, and gets its password", "remove skip_verify from the URL; name the authority with --tls-ca")
	}
	if f.cert != nil {
		judgeEnd(j, "its certificate", f.cert.NotBefore, f.cert.NotAfter, now)
	}
}

// soon is from when the end of a certificate is told, unless it is a short-lived one
// with more than a quarter of its time left.
const soon = 14 * 24 * time.Hour

func judgeEnd(j *judgement, what string, from, to, now time.Time) {
	left := to.Sub(now)
	switch {
	case left <= 0:
		j.add(Error, "certificate-ends", fmt.Sprintf("%s ended on %s: no new connection is made", what, day(to)), "renew it; files are read again without a restart")
	case left < soon && left < to.Sub(from)/4:
		j.add(Warning, "certificate-ends", fmt.Sprintf("%s ends on %s, in %s: then no new connection is made", what, day(to), rough(left)), "renew it; files are read again without a restart")
	}
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// rough is a duration in words for people.
func rough(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= time.Minute:
		return d.Round(time.Minute).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

func (o *Options) judgeSettings(all []*facts, now time.Time) []Finding {
	j := &judgement{where: "settings"}
	for _, c := range o.Certificates {
		judgeEnd(j, "the certificate of "+c.Setting, c.Leaf.NotBefore, c.Leaf.NotAfter, now)
	}
	for _, text := range o.Exposed {
		j.add(Warning, "exposed", text, "")
	}
	for _, f := range all {
		if o.Unguarded && f.err == nil && (!f.node || o.Voting) {
			j.add(Warning, "exposed", "other machines reach the proxy, and clients that say nothing may do what its user at "+f.server.String()+" may", "no password in the upstream's URL and one at the upstream, so that clients need it; or tls-client-ca; or listen on a loopback address")
			break
		}
	}
	return j.found
}

// nodeTime is how long the proxy waits for a lock node whose lease is 10 s or longer;
// fewer than a quorum in time have up to patience.
const (
	nodeTime  = 50 * time.Millisecond
	shortTime = 5 * time.Millisecond // with a lease of a second or less
	patience  = 200 * time.Millisecond
	slowTrip  = 100 * time.Millisecond // of the upstream
)

func (f *facts) judgeTrips(j *judgement, o *Options) {
	if len(f.trips) == 0 {
		return
	}
	median, longest := f.trips[len(f.trips)/2], f.trips[len(f.trips)-1]
	says := fmt.Sprintf("a round trip takes %s, the longest of %d %s", rough(median), len(f.trips), rough(longest))
	const nearer = "bring it nearer to the proxy"
	if !f.node {
		if median >= slowTrip {
			j.add(Warning, "latency", says+": every command takes as long", nearer)
		}
		return
	}
	limit, hopeless, raise := nodeTime, patience, nearer+", or --node-timeout "+ceil(4*median)
	if o.NodeTimeout > 0 {
		limit, hopeless = o.NodeTimeout, o.NodeTimeout
	}
	switch {
	case median >= hopeless:
		j.add(Error, "latency", says+": longer than the "+hopeless.String()+" that it has to vote, so it never does", raise)
	case median >= limit/2:
		j.add(Warning, "latency", says+": of the "+limit.String()+" that it has to vote, so its vote often comes too late", raise)
	case longest >= limit:
		j.add(Note, "latency", says+": a vote as late as the longest does not count", raise)
	case o.NodeTimeout == 0 && median >= shortTime:
		j.add(Note, "latency", says+": leases under "+ceil(200*median)+" give it less time than that to vote", raise)
	}
}

// ceil is a duration as a setting takes it, rounded up to a "round" millisecond.
func ceil(d time.Duration) string {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond).String()
}

// judgeUnseen says what could not be looked at, which is not to say that it is fine.
func (f *facts) judgeUnseen(j *judgement) {
	if f.infoErr != nil {
		j.add(Warning, "could-not-look", "could not look at version, role, memory, persistence and run_id: INFO says "+f.infoErr.Error(), "let the user run INFO, or look by hand")
	}
	if f.configErr != nil {
		j.add(Note, "could-not-look", "could not look at save, appendfsync, timeout, tcp-keepalive and bind: CONFIG GET says "+f.configErr.Error(), "look by hand, or check as a user with +config|get")
	}
	if f.node && f.within == 0 {
		j.add(Warning, "could-not-look", "could not look at its clock: TIME is refused", "let the user run TIME, as scripts do")
	}
}

func (f *facts) judgeConnections(j *judgement, o *Options) {
	if n, err := strconv.Atoi(f.config["timeout"]); err == nil && n > 0 && (!f.node || n < 10) {
		j.add(Note, "closes-idle", fmt.Sprintf("closes connections that are idle for %ds: the proxy opens them again, clients with a connection of their own are cut off", n), cli(f.server, "CONFIG SET timeout 0"))
	}
	if f.config["tcp-keepalive"] == "0" {
		j.add(Note, "no-keepalive", "tcp-keepalive is off: connections of a machine that vanished stay open for ever", cli(f.server, "CONFIG SET tcp-keepalive 300"))
	}
	most := number(cmp.Or(f.config["maxclients"], f.info["maxclients"]))
	if now := number(f.info["connected_clients"]); most > 0 && now*5 >= most*4 {
		j.add(Warning, "maxclients", fmt.Sprintf("%d of %d connections are in use: the next ones are refused", now, most), cli(f.server, fmt.Sprintf("CONFIG SET maxclients %d", 2*most)))
	}
	if !f.node && o.Unshared && most > 0 && most < int64(o.MaxClients) {
		j.add(Warning, "maxclients", fmt.Sprintf("takes %d connections, and with upstream-conns 0 each of up to %d clients needs one", most, o.MaxClients), cli(f.server, fmt.Sprintf("CONFIG SET maxclients %d", o.MaxClients+100)))
	}
}

// number is a decimal number; anything else is 0.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// judgeRole says what the server is that it should not be. It reports whether it can
// do its part at all.
func (f *facts) judgeRole(j *judgement, o *Options) (usable bool) {
	const own = "name a standalone Redis of its own"
	switch mode, role := f.info["redis_mode"], f.info["role"]; {
	case mode == "sentinel":
		j.add(Error, "role", "is a sentinel, and its URL does not say so", "add ?master_set=name to the URL")
	case f.node && mode == "cluster":
		j.add(Error, "role", "belongs to a Cluster, which is no lock node: the node record must live beside the lock", own)
	case f.node && role == "slave":
		j.add(Error, "role", "is a replica of "+f.info["master_host"]+":"+f.info["master_port"]+": it refuses writes, and has no vote", "name its master, or: "+cli(f.server, "REPLICAOF NO ONE"))
	case role == "slave":
		j.add(Error, "role", "is a replica of "+f.info["master_host"]+":"+f.info["master_port"]+": it refuses writes", "name the master, or all servers with ?addr=… (docs/configuration.md)")
		return true
	default:
		return true
	}
	return false
}

// judgeData is about the upstream's data, as far as it makes commands fail.
func (f *facts) judgeData(j *judgement) {
	if f.node {
		return
	}
	if state := f.cluster["cluster_state"]; state != "" && state != "ok" {
		j.add(Error, "cluster", "the Cluster's state is "+state+": slots are not served, or most masters are gone", cli(f.server, "CLUSTER NODES"))
	}
	used, most := number(f.info["used_memory"]), number(f.info["maxmemory"])
	if f.info["maxmemory_policy"] == "noeviction" && most > 0 && used*10 >= most*9 {
		j.add(Warning, "memory", fmt.Sprintf("uses %d %% of maxmemory, and evicts nothing: writes are refused when it is full", used*100/most), cli(f.server, "CONFIG SET maxmemory …"))
	}
}

// leastVersion is the first with RESP3, which the proxy speaks to lock nodes, and where
// scripts are replicated by effect; the tests use triedVersion and later.
const (
	leastVersion = 6.0
	triedVersion = 7.0
)

func (f *facts) judgeVersion(j *judgement) {
	version := f.info["redis_version"]
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return
	}
	v, err := strconv.ParseFloat(parts[0]+"."+parts[1], 64)
	switch {
	case err != nil:
	case v < leastVersion:
		j.add(Error, "version", "Redis "+version+" is too old for the scripts of locks", "upgrade it to 7.0 or later")
	case v < triedVersion:
		j.add(Warning, "version", "Redis "+version+" is older than any that locks are tested with", "upgrade it to 7.0 or later")
	}
}

func (f *facts) judgeReplication(j *judgement, o *Options) {
	replicas := number(f.info["connected_slaves"])
	switch {
	case int64(o.ReplicaAcks) > replicas:
		j.add(Error, "replicas", fmt.Sprintf("has %d replicas, and replica-acks asks for %d: its votes do not count", replicas, o.ReplicaAcks), "attach replicas, or lower --replica-acks")
	case f.chosen:
		f.judgeChosen(j)
	case replicas > 0 && o.ReplicaAcks == 0:
		j.add(Warning, "replicas", fmt.Sprintf("has %d replicas. Replication is asynchronous: one that takes its place has not heard of the last locks, and sits out max-ttl, %s, if it is noticed%s", replicas, o.MaxTTL, o.grantsAgain()), "use independent masters; at each replica: redis-cli REPLICAOF NO ONE")
	}
	if n := number(cmp.Or(f.config["min-replicas-to-write"], f.config["min-slaves-to-write"])); n > replicas {
		j.add(Error, "replicas", fmt.Sprintf("min-replicas-to-write is %d and there are %d: it refuses every vote", n, replicas), cli(f.server, "CONFIG SET min-replicas-to-write 0"))
	}
}

// judgeChosen is about a master that sentinels choose.
func (f *facts) judgeChosen(j *judgement) {
	if f.configErr == nil && number(cmp.Or(f.config["min-replicas-to-write"], f.config["min-slaves-to-write"])) == 0 {
		j.add(Warning, "replicas", "is chosen by sentinels and min-replicas-to-write is 0: cut off from them, it may vote beside its successor", cli(f.server, "CONFIG SET min-replicas-to-write 1"))
	}
}

// grantsAgain is what follows on forgetting where it is not sat out.
func (o *Options) grantsAgain() string {
	if o.lenient() {
		return "; with restart-grace available it does not sit out anything, and grants held locks again"
	}
	return ""
}

func (f *facts) judgeMemory(j *judgement) {
	policy, most, used := f.info["maxmemory_policy"], number(f.info["maxmemory"]), number(f.info["used_memory"])
	fix := cli(f.server, "CONFIG SET maxmemory-policy noeviction")
	switch {
	case policy == "" || policy == "noeviction":
	case most > 0:
		j.add(Error, "evicts", fmt.Sprintf("maxmemory-policy is %s: when %d bytes are full it drops locks that are held, unnoticed, and they are granted a second time", policy, most), fix)
	default:
		j.add(Warning, "evicts", "maxmemory-policy is "+policy+": harmless until somebody sets maxmemory, then locks that are held are dropped, unnoticed, and granted a second time", fix)
	}
	if most > 0 && used*10 >= most*8 {
		s, more := Warning, cli(f.server, fmt.Sprintf("CONFIG SET maxmemory %d", 2*most))
		if used >= most {
			s = Error
		}
		j.add(s, "memory", fmt.Sprintf("uses %d of %d bytes of maxmemory: full, it grants no lock (what is held can still be freed)", used, most), more)
	}
}

// judgePersistence is about what a node remembers over a restart. Any restart is
// noticed, by the id of its replication stream; what matters is whether it is sat out.
func (f *facts) judgePersistence(j *judgement, o *Options) {
	snapshots, aof := f.config["save"] != "", f.info["aof_enabled"] == "1"
	fsync := f.config["appendfsync"]
	keeps := "keeps nothing on disk: a restart forgets every lock"
	switch {
	case aof && fsync == "always":
		keeps = ""
		j.add(Note, "appendfsync-always", "appendfsync is always: it forgets nothing, and every vote waits for the disk", "nothing, if its round trips are short enough; with three lock nodes or more it is not needed")
	case aof:
		keeps = "appendfsync is " + cmp.Or(fsync, "not known") + ": a crash forgets up to a second of locks, or what the system had not written"
	case snapshots:
		keeps = "has snapshots only: a restart brings back an older state, without the locks since"
	case f.configErr != nil:
		return
	}
	switch fix := "--restart-grace safe, or three lock nodes; or: " + cli(f.server, "CONFIG SET appendonly yes") + " and CONFIG SET appendfsync always"; {
	case keeps == "":
	case o.lenient():
		j.add(Warning, "forgets", fmt.Sprintf("%s; with %s and restart-grace available it votes at once, so what was held is granted a second time", keeps, count(len(o.Nodes), "lock node")), fix)
	case aof:
		j.add(Note, "forgets", keeps+". It is noticed, as every restart is: the node sits out max-ttl, "+o.MaxTTL.String()+". So this persistence costs and brings locks nothing", cli(f.server, "CONFIG SET appendonly no"))
	case snapshots:
		j.add(Note, "forgets", keeps+". It is noticed, and the node sits out max-ttl, "+o.MaxTTL.String()+". Snapshots cost forks, and a full disk stops its votes", cli(f.server, `CONFIG SET save ""`))
	}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// judgePauses is about what has kept the node from answering.
func (f *facts) judgePauses(j *judgement, o *Options) {
	limit := cmp.Or(o.NodeTimeout, nodeTime)
	if fork := time.Duration(number(f.info["latest_fork_usec"])) * time.Microsecond; fork >= limit {
		j.add(Warning, "pauses", "its last fork, for a snapshot or a rewrite, took "+rough(fork)+": no vote comes meanwhile", cli(f.server, `CONFIG SET save ""`))
	}
	slowest := slowCommand{}
	for _, s := range f.slow {
		if s.took > slowest.took {
			slowest = s
		}
	}
	if slowest.took >= limit {
		j.add(Warning, "pauses", fmt.Sprintf("%s took %s within the last hour: no vote comes meanwhile", slowest.name, rough(slowest.took)), "keep other work off lock nodes; "+cli(f.server, "SLOWLOG GET"))
	}
}

// judgeTries is about commands that scripts need.
func (f *facts) judgeTries(j *judgement, o *Options) {
	var denied, unknown, grants []string
	keys, channels, refused := false, false, error(nil)
	for _, t := range f.tries {
		switch text := fmt.Sprint(t.err); {
		case t.err == nil:
		case strings.Contains(text, "access a channel") || strings.Contains(text, "channels used"):
			denied, channels = append(denied, t.needs), true
		case strings.Contains(text, "access a key") || strings.Contains(text, "keys used"):
			denied, keys = append(denied, t.needs), true
		case strings.HasPrefix(text, "NOPERM"):
			denied, grants = append(denied, t.needs), append(grants, "+"+t.needs)
		case strings.Contains(text, "unknown command"):
			unknown = append(unknown, t.needs)
		default:
			refused = t.err
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
		j.add(Error, "permissions", "the user may not do what locks need: "+strings.Join(denied, ", "), cli(f.server, "ACL SETUSER "+cmp.Or(user, "default")+" "+strings.Join(grants, " ")))
	}
	if len(unknown) > 0 {
		j.add(Error, "renamed", "does not know what locks need: "+strings.Join(unknown, ", "), "take rename-command for these out of its configuration; use ACLs instead")
	}
	if refused != nil {
		j.add(Error, "refuses-writes", "refuses every vote: "+refused.Error(), cli(f.server, "INFO")+", and its log")
	}
}

// judgeRecord is about what the node says of its own memory.
func (f *facts) judgeRecord(j *judgement, o *Options) {
	switch {
	case f.recordErr != nil:
		j.add(Warning, "could-not-look", "could not look at the node record: HMGET says "+f.recordErr.Error(), "let the user read "+o.Prefix+"*")
		return
	case f.record["id"] == "":
		return // judged with those of the others
	}
	if ms := o.MaxTTL.Milliseconds(); number(f.record["max"]) != ms {
		was := time.Duration(number(f.record["max"])) * time.Millisecond
		j.add(Error, "other-max-ttl", fmt.Sprintf("was enlisted with max-ttl %s, and this proxy has %s: it gets no vote", was, o.MaxTTL), "--max-ttl "+was.String()+"; or to change it, stop every proxy, wait "+was.String()+", and at every lock node: "+cli(f.server, "DEL "+o.Prefix+"node"))
	}
	if id := f.info["master_replid"]; id != "" && id != f.record["id"] && !o.lenient() {
		j.add(Warning, "forgot", "was restarted, emptied, or replaced by a replica since a proxy last asked it: it will sit out max-ttl, "+o.MaxTTL.String(), "nothing; it comes back by itself while a proxy runs")
		return
	}
	left := time.UnixMilli(number(f.record["until"])).Sub(time.Now().Add(f.ahead))
	switch {
	case left > 0:
		j.add(Warning, "quarantine", "may have forgotten locks, and has no vote for another "+rough(left), "nothing; it comes back by itself. Find out what restarted or emptied it")
	case f.record["sync"] != "1":
		j.add(Warning, "quarantine", "may have forgotten fences, and has no vote until a proxy that runs gives them back", "run a proxy; it asks the other lock nodes, and they must be up")
	}
}
