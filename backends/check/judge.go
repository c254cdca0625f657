package check

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
)

// findings are those of one place.
type findings struct {
	where string
	cli   string // in place of redis-cli; may be empty
	list  []Finding
}

func (out *findings) add(s Severity, id, problem, fix string) {
	if out.cli != "" {
		fix = strings.ReplaceAll(fix, "redis-cli", out.cli)
	}
	out.list = append(out.list, Finding{s, id, out.where, problem, fix})
}

// judge is the findings in the facts. It uses no network.
func judge(all []*facts, o *Options, now time.Time) (found []Finding) {
	for _, f := range all {
		out := &findings{where: f.where()}
		if name, _ := f.software(); name == "Valkey" {
			out.cli = "valkey-cli"
		}
		f.judge(out, o, now)
		found = append(found, out.list...)
	}
	return slices.Concat(found, judgeSet(all, o), o.judgeSettings(all, now))
}

func (f *facts) judge(out *findings, o *Options, now time.Time) {
	if f.err != nil {
		f.judgeError(out)
		f.judgeLatency(out, o)
		return
	}
	f.judgeAccess(out)
	f.judgeTLS(out, now)
	f.judgeLatency(out, o)
	f.judgeIncomplete(out)
	f.judgeConnections(out, o)
	if !f.judgeRole(out, o) || !f.node {
		f.judgeData(out)
		return
	}
	f.judgeVersion(out)
	f.judgeReplication(out, o)
	f.judgeMemory(out)
	f.judgePersistence(out, o)
	f.judgePauses(out, o)
	f.judgeCommands(out, o)
	f.judgeRecord(out, o)
}

// judgeError finds why a server could not be probed.
func (f *facts) judgeError(out *findings) {
	said, answered := rueidis.IsRedisErr(f.err)
	text := f.err.Error()
	switch word, _, _ := strings.Cut(text, " "); {
	case word == "NOAUTH" && answered && !f.node && f.noCredentials():
		out.add(Note, "could-not-look", "asks for a password, and its URL has none: clients bring their own, and it could not be looked at", "check with a URL that has one, to see the rest")
	case answered && slices.Contains([]string{"NOAUTH", "WRONGPASS"}, word):
		out.add(Error, "auth", "does not let this user in: "+text, "mend user and password in its URL (special characters percent-encoded); see: "+cli(f.server, "PING"))
	case answered && word == "NOPERM":
		out.add(Error, "auth", "the user may not even PING: "+text, "give the user what docs/configuration.md lists")
	case answered && word == "BUSY":
		out.add(Error, "busy", "is busy with a script and answers nobody: "+said.Error(), cli(f.server, "SCRIPT KILL"))
	case answered:
		out.add(Error, "unusable", "answers only: "+text, "see its log, and: "+cli(f.server, "INFO"))
	case errors.Is(f.err, context.DeadlineExceeded) && len(f.roundTrips) > 0:
		out.add(Error, "unreachable", "answers so late that not everything could be asked", "see its CPU, its swap and the network, and: "+cli(f.server, "SLOWLOG GET"))
	default:
		out.add(Error, "unreachable", "cannot be reached, or hangs: "+text, "see that it runs, and that nothing is between: "+cli(f.server, "PING"))
	}
}

// judgeAccess finds whether others have the proxy's access.
func (f *facts) judgeAccess(out *findings) {
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
		out.add(Warning, "no-password", "asks for no password: whoever reaches it can "+can, fix)
	case open:
		out.add(Warning, "no-password", "asks for no password, listens on "+cmp.Or(f.config["bind"], "every address")+" and protected-mode is off: whoever reaches it can "+can, fix)
	}
}

// loopbackOnly reports whether all addresses of the parameter bind are loopback ones.
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

func (f *facts) judgeTLS(out *findings, now time.Time) {
	_, password := f.server.Credentials()
	if !f.server.Secure() && !f.local() {
		s, what := Note, "what is said to it can be read and changed on the way"
		if password != "" {
			s, what = Warning, "its password, and all that is said to it, can be read and changed on the way"
		}
		out.add(s, "no-tls", "is reached without TLS: "+what, "tls-port at the server, and a rediss:// URL")
	}
	if f.server.Unverified() {
		out.add(Warning, "tls-unverified", "skip_verify is on: anybody on the way can pretend to be this server, and gets its password", "remove skip_verify from the URL; name the authority with --tls-ca")
	}
	if f.cert != nil {
		judgeExpiry(out, "its certificate", f.cert, now)
	}
}

func judgeExpiry(out *findings, what string, c *x509.Certificate, now time.Time) {
	to, left := c.NotAfter, c.NotAfter.Sub(now)
	switch {
	case left <= 0:
		out.add(Error, "certificate-ends", fmt.Sprintf("%s ended on %s: no new connection is made", what, day(to)), "renew it; files are read again without a restart")
	case backends.ExpiresSoon(c, now):
		out.add(Warning, "certificate-ends", fmt.Sprintf("%s ends on %s, in %s: then no new connection is made", what, day(to), roundedDuration(left)), "renew it; files are read again without a restart")
	}
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// roundedDuration is a duration for people.
func roundedDuration(d time.Duration) string {
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
	out := &findings{where: "settings"}
	for _, c := range o.Certificates {
		judgeExpiry(out, "the certificate of "+c.Setting, c.Leaf, now)
	}
	for _, text := range o.Exposed {
		out.add(Warning, "exposed", text, "")
	}
	for _, f := range all {
		if o.Unguarded && f.err == nil && (!f.node || o.UpstreamVotes) {
			out.add(Warning, "exposed", "other machines reach the proxy, and clients that say nothing may do what its user at "+f.server.String()+" may", "no password in the upstream's URL and one at the upstream, so that clients need it; or tls-client-ca; or listen on a loopback address")
			break
		}
	}
	return out.list
}

// nodeTime is the proxy's timeout for a lock node if the lease is 10 s or longer; while fewer
// than a quorum have answered it is patience.
const (
	nodeTime  = 50 * time.Millisecond
	shortTime = 5 * time.Millisecond // with a lease of a second or less
	patience  = 200 * time.Millisecond
	slowTrip  = 100 * time.Millisecond // of the upstream
)

func (f *facts) judgeLatency(out *findings, o *Options) {
	if len(f.roundTrips) == 0 {
		return
	}
	median, longest := f.roundTrips[len(f.roundTrips)/2], f.roundTrips[len(f.roundTrips)-1]
	says := fmt.Sprintf("a round trip takes %s, the longest of %d %s", roundedDuration(median), len(f.roundTrips), roundedDuration(longest))
	const nearer = "bring it nearer to the proxy"
	if !f.node {
		if median >= slowTrip {
			out.add(Warning, "latency", says+": every command takes as long", nearer)
		}
		return
	}
	limit, hopeless, raise := nodeTime, patience, nearer+", or --node-timeout "+ceilMillis(4*median)
	if o.NodeTimeout > 0 {
		limit, hopeless = o.NodeTimeout, o.NodeTimeout
	}
	switch {
	case median >= hopeless:
		out.add(Error, "latency", says+": longer than the "+hopeless.String()+" that it has to vote, so it never does", raise)
	case median >= limit/2:
		out.add(Warning, "latency", says+": of the "+limit.String()+" that it has to vote, so its vote often comes too late", raise)
	case longest >= limit:
		out.add(Note, "latency", says+": a vote as late as the longest does not count", raise)
	case o.NodeTimeout == 0 && median >= shortTime:
		out.add(Note, "latency", says+": leases under "+ceilMillis(200*median)+" give it less time than that to vote", raise)
	}
}

// ceilMillis is a duration in the form of a setting, rounded up to milliseconds.
func ceilMillis(d time.Duration) string {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond).String()
}

// judgeIncomplete finds what could not be checked.
func (f *facts) judgeIncomplete(out *findings) {
	if f.infoErr != nil {
		out.add(Warning, "could-not-look", "could not look at version, role, memory, persistence and run_id: INFO says "+f.infoErr.Error(), "let the user run INFO, or look by hand")
	}
	if f.configErr != nil {
		out.add(Note, "could-not-look", "could not look at save, appendfsync, timeout, tcp-keepalive and bind: CONFIG GET says "+f.configErr.Error(), "look by hand, or check as a user with +config|get")
	}
	if f.node && f.clockError == 0 {
		out.add(Warning, "could-not-look", "could not look at its clock: TIME is refused", "let the user run TIME, as scripts do")
	}
}

func (f *facts) judgeConnections(out *findings, o *Options) {
	if n, err := strconv.Atoi(f.config["timeout"]); err == nil && n > 0 && (!f.node || n < 10) {
		out.add(Note, "closes-idle", fmt.Sprintf("closes connections that are idle for %ds: the proxy opens them again, clients with a connection of their own are cut off", n), cli(f.server, "CONFIG SET timeout 0"))
	}
	if f.config["tcp-keepalive"] == "0" {
		out.add(Note, "no-keepalive", "tcp-keepalive is off: connections of a machine that vanished stay open for ever", cli(f.server, "CONFIG SET tcp-keepalive 300"))
	}
	most := number(cmp.Or(f.config["maxclients"], f.info["maxclients"]))
	if now := number(f.info["connected_clients"]); most > 0 && now*5 >= most*4 {
		out.add(Warning, "maxclients", fmt.Sprintf("%d of %d connections are in use: the next ones are refused", now, most), cli(f.server, fmt.Sprintf("CONFIG SET maxclients %d", 2*most)))
	}
	if !f.node && o.Unshared && most > 0 && most < int64(o.MaxClients) {
		out.add(Warning, "maxclients", fmt.Sprintf("takes %d connections, and with upstream-conns 0 each of up to %d clients needs one", most, o.MaxClients), cli(f.server, fmt.Sprintf("CONFIG SET maxclients %d", o.MaxClients+100)))
	}
}

// number is a decimal number; anything else is 0.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// judgeRole finds a server in a wrong role. It reports whether the server is usable in its
// part at all.
func (f *facts) judgeRole(out *findings, o *Options) (usable bool) {
	const own = "name a standalone server of its own"
	switch mode, role := f.mode(), f.info["role"]; {
	case mode == "sentinel":
		out.add(Error, "role", "is a sentinel, and its URL does not say so", "add ?master_set=name to the URL")
	case f.node && mode == "cluster":
		out.add(Error, "role", "belongs to a Cluster, which is no lock node: the node record must live beside the lock", own)
	case f.node && role == "slave":
		out.add(Error, "role", "is a replica of "+f.info["master_host"]+":"+f.info["master_port"]+": it refuses writes, and has no vote", "name its master, or: "+cli(f.server, "REPLICAOF NO ONE"))
	case role == "slave":
		out.add(Error, "role", "is a replica of "+f.info["master_host"]+":"+f.info["master_port"]+": it refuses writes", "name the master, or all servers with ?addr=… (docs/configuration.md)")
		return true
	default:
		return true
	}
	return false
}

// judgeData finds what in the upstream's data makes commands fail.
func (f *facts) judgeData(out *findings) {
	if f.node {
		return
	}
	if state := f.cluster["cluster_state"]; state != "" && state != "ok" {
		out.add(Error, "cluster", "the Cluster's state is "+state+": slots are not served, or most masters are gone", cli(f.server, "CLUSTER NODES"))
	}
	used, most := number(f.info["used_memory"]), number(f.info["maxmemory"])
	if f.info["maxmemory_policy"] == "noeviction" && most > 0 && used*10 >= most*9 {
		out.add(Warning, "memory", fmt.Sprintf("uses %d %% of maxmemory, and evicts nothing: writes are refused when it is full", used*100/most), cli(f.server, "CONFIG SET maxmemory …"))
	}
}
