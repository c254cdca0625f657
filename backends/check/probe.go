package check

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
)

const (
	// roundTripCount is the number of round trips to each server.
	roundTripCount = 20
	// slowSince is the age up to which slow commands count.
	slowSince = time.Hour
)

// facts are the answers of one server. Those that are missing are zero.
type facts struct {
	target
	err    error // it could not be probed, or not completely
	remote net.Addr
	cert   *x509.Certificate // nil: no TLS

	info      map[string]string // by field
	infoErr   error
	config    map[string]string // by parameter
	configErr error

	roundTrips             []time.Duration // sorted
	clockAhead, clockError time.Duration   // its clock against this machine's; clockError 0: not known

	record    map[string]string // the node record; empty: there is none
	recordErr error
	announced []Announcement
	tries     []commandTry
	refused   error // what it says to a write, of tries; nil: it takes them
	slow      []slowCommand
	cluster   map[string]string // CLUSTER INFO, of a Cluster's node
}

// A commandTry is a command that scripts or the proxy need, and its outcome.
type commandTry struct {
	command string // in the form of ACL SETUSER: "evalsha", "script|load"
	err     error  // nil: it is allowed
}

// A slowCommand is an entry of SLOWLOG.
type slowCommand struct {
	name string
	took time.Duration
}

// parameters are read with CONFIG GET.
var parameters = []string{"save", "appendonly", "appendfsync", "timeout", "tcp-keepalive", "maxclients", "bind", "protected-mode", "min-replicas-to-write", "min-slaves-to-write", "repl-backlog-ttl"}

// probe asks one server everything, one call after the other.
func probe(ctx context.Context, t target, o *Options) *facts {
	f := &facts{target: t}
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	if f.err = f.dial(ctx); f.err != nil {
		return f
	}
	c, err := t.server.Client(func(opt *rueidis.ClientOption) {
		opt.Dialer.Timeout = min(opt.Dialer.Timeout, callTimeout)
		opt.ConnWriteTimeout = callTimeout
		opt.ClientName = "lockproxy-check"
	})
	if err != nil {
		f.err = err
		return f
	}
	defer c.Close()
	q := &querier{ctx: ctx, c: c}
	if err := q.do("PING").Error(); err != nil {
		f.err = err
		return f
	}
	f.probeAll(q, o)
	f.err = q.broken
	return f
}

// dial reads what only a bare connection shows: address and certificate.
func (f *facts) dial(ctx context.Context) error {
	conn, err := f.server.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	f.remote = conn.RemoteAddr()
	if secure, ok := conn.(*tls.Conn); ok {
		if shown := secure.ConnectionState().PeerCertificates; len(shown) > 0 {
			f.cert = shown[0]
		}
	}
	return nil
}

func (f *facts) probeAll(q *querier, o *Options) {
	f.info, f.infoErr = readInfo(q.do("INFO"))
	f.config, f.configErr = q.config()
	f.measure(q)
	f.slow = readSlow(q.do("SLOWLOG", "GET", "32"))
	if f.mode() == "cluster" {
		f.cluster, _ = readInfo(q.do("CLUSTER", "INFO"))
	}
	if !f.node {
		return
	}
	f.record, f.recordErr = q.record(o.Prefix + "node")
	f.announced = q.announced(o.Prefix + "adopt")
	if f.info["role"] != "slave" && f.mode() != "sentinel" && f.mode() != "cluster" {
		f.tries = q.tryCommands(o)
	}
}

// measure makes round trips. Of all readings of the clock that of the shortest trip is used:
// its error is at most half of it.
func (f *facts) measure(q *querier) {
	for range roundTripCount {
		sent := time.Now()
		r := q.do("TIME")
		took := time.Since(sent)
		if q.broken != nil {
			break
		}
		f.roundTrips = append(f.roundTrips, took)
		if at, ok := readTime(r); ok && (f.clockError == 0 || took/2 < f.clockError) {
			f.clockError = max(took/2, time.Microsecond)
			f.clockAhead = at.Sub(sent.Round(0).Add(took / 2))
		}
	}
	slices.Sort(f.roundTrips)
}

// mode is standalone, cluster or sentinel; empty: not known. Valkey names the field
// differently.
func (f *facts) mode() string { return cmp.Or(f.info["redis_mode"], f.info["server_mode"]) }

// software is Redis or Valkey, with its own version; empty: not known. Valkey also has the
// version of the last Redis that it is compatible with.
func (f *facts) software() (name, version string) {
	if v := f.info["valkey_version"]; v != "" {
		return "Valkey", v
	}
	return "Redis", f.info["redis_version"]
}

func (f *facts) measurement() Measurement {
	l := Measurement{Where: f.where()}
	if name, version := f.software(); version != "" {
		l.Software, l.Version = name, version
	}
	if n := len(f.roundTrips); n > 0 {
		l.MedianMS, l.LongestMS = inMS(f.roundTrips[n/2]), inMS(f.roundTrips[n-1])
	}
	if f.clockError > 0 {
		l.ClockMS, l.WithinMS = inMS(f.clockAhead), inMS(f.clockError)
	}
	return l
}

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// A querier calls one server. After a call without an answer it sends no more.
type querier struct {
	ctx    context.Context
	c      rueidis.Client
	broken error
}

func (q *querier) do(args ...string) rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(q.ctx, callTimeout)
	defer cancel()
	if q.broken != nil {
		cancel() // the answer is an error, at once
	}
	r := q.c.Do(ctx, q.c.B().Arbitrary(args[0]).Args(args[1:]...).Build())
	if err := r.NonRedisError(); err != nil && q.broken == nil {
		q.broken = err
	}
	return r
}

// config reads the parameters, one CONFIG GET each: before Redis 7.0 it takes one only.
func (q *querier) config() (map[string]string, error) {
	out := map[string]string{}
	for _, p := range parameters {
		said, err := q.do("CONFIG", "GET", p).AsStrMap()
		if err != nil {
			return out, err
		}
		maps.Copy(out, said)
	}
	return out, nil
}

// recordFields are the fields of the node record, see scripts/prologue.lua.
var recordFields = []string{"id", "until", "sync", "ttl", "doubt"}

// record reads the node record. It runs no script: that would begin a quarantine.
func (q *querier) record(key string) (map[string]string, error) {
	values, err := q.do(append([]string{"HMGET", key}, recordFields...)...).ToArray()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i, v := range values {
		if text, err := v.ToString(); err == nil && i < len(recordFields) {
			out[recordFields[i]] = text
		}
	}
	return out, nil
}

// announced reads what proxies have left for one another. ids is the key of a hash; what it names is behind it and a colon.
func (q *querier) announced(ids string) (all []Announcement) {
	known, _ := q.do("HKEYS", ids).AsStrSlice()
	for _, id := range known {
		if text, err := q.do("GET", ids+":"+id).ToString(); err == nil {
			all = append(all, Announcement{id, text})
		}
	}
	return all
}

// tryCommands tries each command that the proxy or a script needs at lock nodes, without
// effect: on a missing key, to a channel without subscribers, or with arguments that are
// refused after the permission was checked.
func (q *querier) tryCommands(o *Options) (out []commandTry) {
	key := o.Prefix + "check:" + rand.Text()
	calls := []struct {
		needs string
		args  []string
	}{
		{"evalsha", []string{"EVALSHA", strings.Repeat("0", 40), "0"}},
		{"script|load", []string{"SCRIPT", "LOAD", "("}},
		{"info", []string{"INFO", "replication"}},
		{"time", []string{"TIME"}},
		{"hmget", []string{"HMGET", key, "f"}},
		{"hset", []string{"HSET", key, "f", "v", "f"}},
		{"hdel", []string{"HDEL", key, "f"}},
		{"hgetall", []string{"HGETALL", key}},
		{"hkeys", []string{"HKEYS", key}},
		{"hlen", []string{"HLEN", key}},
		{"get", []string{"GET", key}},
		{"set", []string{"SET", key, "v", "XX"}},
		{"del", []string{"DEL", key}},
		{"pexpire", []string{"PEXPIRE", key, "1"}},
		{"pttl", []string{"PTTL", key}},
		{"pexpireat", []string{"PEXPIREAT", key, "1"}},
		{"zadd", []string{"ZADD", key, "XX", "1", "o"}},
		{"zcount", []string{"ZCOUNT", key, "1", "2"}},
		{"zrangebyscore", []string{"ZRANGEBYSCORE", key, "1", "2"}},
		{"zremrangebyscore", []string{"ZREMRANGEBYSCORE", key, "1", "2"}},
		{"zrem", []string{"ZREM", key, "o"}},
		{"zrevrange", []string{"ZREVRANGE", key, "0", "1"}},
		{"zscore", []string{"ZSCORE", key, "o"}},
		{"publish", []string{"PUBLISH", key, ""}},
		{"pubsub|numsub", []string{"PUBSUB", "NUMSUB", key}},
		{"ping", []string{"PING"}},
		{"scan", []string{"SCAN", "0", "MATCH", key, "COUNT", "1"}},
	}
	for _, call := range calls {
		out = append(out, commandTry{call.needs, denial(q.do(call.args...).Error())})
	}
	if o.ReplicaAcks > 0 {
		out = append(out, commandTry{"wait", denial(q.do("WAIT", "0", "0").Error())})
	}
	return append(out, commandTry{"subscribe", denial(q.subscribe(key))})
}

// subscribe subscribes to a channel, until the server confirms it.
func (q *querier) subscribe(channel string) error {
	ctx, cancel := context.WithTimeout(q.ctx, callTimeout)
	defer cancel()
	if q.broken != nil {
		return q.broken
	}
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { cancel() })
	err := q.c.Receive(ctx, q.c.B().Subscribe().Channel(channel).Build(), func(rueidis.PubSubMessage) {})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// denial is err if it means that a command is not allowed, or not now; else nil.
func denial(err error) error {
	said, ok := rueidis.IsRedisErr(err)
	if !ok {
		return nil // it is allowed, or the connection is broken, which is a finding of its own
	}
	word, _, _ := strings.Cut(said.Error(), " ")
	if slices.Contains([]string{"NOPERM", "OOM", "MISCONF", "NOREPLICAS", "READONLY", "MASTERDOWN"}, word) || strings.Contains(said.Error(), "unknown command") {
		return said
	}
	return nil
}

// readInfo is the reply of INFO, or of CLUSTER INFO, by field.
func readInfo(r rueidis.RedisResult) (map[string]string, error) {
	text, err := r.ToString()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) { // the format of a verbatim string
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[k] = v
		}
	}
	return out, nil
}

func readTime(r rueidis.RedisResult) (at time.Time, ok bool) {
	parts, err := r.AsStrSlice()
	if err != nil || len(parts) != 2 {
		return at, false
	}
	s, err1 := strconv.ParseInt(parts[0], 10, 64)
	us, err2 := strconv.ParseInt(parts[1], 10, 64)
	return time.Unix(s, us*1000), err1 == nil && err2 == nil
}

// readSlow reads the reply of SLOWLOG GET: each command's name and duration. Arguments are
// somebody's data and are dropped.
func readSlow(r rueidis.RedisResult) (out []slowCommand) {
	list, _ := r.ToArray()
	for _, m := range list {
		entry, err := m.ToArray()
		if err != nil || len(entry) < 4 {
			continue
		}
		at, _ := entry[1].AsInt64()
		us, _ := entry[2].AsInt64()
		if time.Since(time.Unix(at, 0)) > slowSince {
			continue
		}
		if args, err := entry[3].AsStrSlice(); err == nil && len(args) > 0 {
			out = append(out, slowCommand{strings.ToUpper(args[0]), time.Duration(us) * time.Microsecond})
		}
	}
	return out
}

// host is the server's IP address, "this machine" for a Unix socket, or empty if it was not
// reached.
func (f *facts) host() string {
	switch a := f.remote.(type) {
	case *net.TCPAddr:
		return a.IP.String()
	case *net.UnixAddr:
		return "this machine"
	}
	return ""
}

// local reports whether the server is on this machine, by its address.
func (f *facts) local() bool {
	a, ok := f.remote.(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
}

// anonymous reports whether the server needs no password.
func (f *facts) anonymous() bool {
	return f.noCredentials() && f.err == nil
}

// noCredentials reports whether the URL has neither user nor password.
func (f *facts) noCredentials() bool {
	user, password := f.server.Credentials()
	return user == "" && password == ""
}

// needsAdmin are the first words of commands that a user with the rights of docs/configuration.md may not run.
var needsAdmin = []string{"CONFIG ", "REPLICAOF ", "ACL ", "SCRIPT KILL", "SLOWLOG "}

// cli is a redis-cli command line for the server. It names the user of the URL, or, of a command that this user is not
// meant to run, leaves a place for another.
func cli(s *backends.Server, command string) string {
	line := "redis-cli"
	if host, port, err := net.SplitHostPort(s.String()); err == nil {
		line += " -h " + host + " -p " + port
	} else {
		line += " -s " + s.String()
	}
	if s.Secure() {
		line += " --tls"
	}
	user, password := s.Credentials()
	if user != "" && slices.ContainsFunc(needsAdmin, func(word string) bool { return strings.HasPrefix(command, word) }) {
		user = "…"
	}
	if user != "" {
		line += " --user " + user
	}
	if password != "" {
		line += " --askpass"
	}
	if s.DB() != 0 {
		line += " -n " + strconv.Itoa(s.DB())
	}
	return line + " " + command
}
