package check

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
)

// A judgement gathers what is found at one place.
type judgement struct {
	where string
	cli   string // what redis-cli is called there; empty: that
	found []Finding
}

func (j *judgement) add(s Severity, id, problem, fix string) {
	if j.cli != "" {
		fix = strings.ReplaceAll(fix, "redis-cli", j.cli)
	}
	j.found = append(j.found, Finding{s, id, j.where, problem, fix})
}

// judge says what of the facts would hurt. It touches no network.
func judge(all []*facts, o *Options, now time.Time) (found []Finding) {
	for _, f := range all {
		j := &judgement{where: f.where()}
		if name, _ := f.software(); name == "Valkey" {
			j.cli = "valkey-cli"
		}
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
		judgeEnd(j, "its certificate", f.cert, now)
	}
}

func judgeEnd(j *judgement, what string, c *x509.Certificate, now time.Time) {
	to, left := c.NotAfter, c.NotAfter.Sub(now)
	switch {
	case left <= 0:
		j.add(Error, "certificate-ends", fmt.Sprintf("%s ended on %s: no new connection is made", what, day(to)), "renew it; files are read again without a restart")
	case backends.ExpiresSoon(c, now):
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
		judgeEnd(j, "the certificate of "+c.Setting, c.Leaf, now)
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
	const own = "name a standalone server of its own"
	switch mode, role := f.mode(), f.info["role"]; {
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
