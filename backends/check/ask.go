package check

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
)

const (
	// roundTrips is how many are measured at each server.
	roundTrips = 20
	// slowSince is for how long a slow command is worth a word.
	slowSince = time.Hour
)

// Facts are what one server said. Whatever it did not say is zero.
type facts struct {
	target
	err    error // why it could not be asked, or not to the end
	remote net.Addr
	cert   *x509.Certificate // nil: no TLS

	info      map[string]string // by field
	infoErr   error
	config    map[string]string // by parameter
	configErr error

	trips         []time.Duration // in order of length
	ahead, within time.Duration   // its clock, against this machine's; within 0: not known

	record    map[string]string // the node record; empty: there is none
	recordErr error
	tries     []try
	slow      []slowCommand
	cluster   map[string]string // CLUSTER INFO, of a Cluster's node
}

// A try is a command that scripts or the proxy need, and what came of it.
type try struct {
	needs string // as ACL SETUSER takes it: "evalsha", "script|load"
	err   error  // nil: it may be used
}

// A slowCommand is an entry of SLOWLOG.
type slowCommand struct {
	name string
	took time.Duration
}

// parameters are those that are asked of CONFIG GET.
var parameters = []string{"save", "appendonly", "appendfsync", "timeout", "tcp-keepalive", "maxclients", "bind", "protected-mode", "min-replicas-to-write", "min-slaves-to-write"}

// ask asks one server everything, with at most one question on its way.
func ask(ctx context.Context, t target, o *Options) *facts {
	f := &facts{target: t}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	if f.err = f.dial(ctx); f.err != nil {
		return f
	}
	c, err := t.server.Client(func(opt *rueidis.ClientOption) {
		opt.Dialer.Timeout = min(opt.Dialer.Timeout, callFor)
		opt.ConnWriteTimeout = callFor
		opt.ClientName = "lockproxy-check"
	})
	if err != nil {
		f.err = err
		return f
	}
	defer c.Close()
	q := &questions{ctx: ctx, c: c}
	if err := q.do("PING").Error(); err != nil {
		f.err = err
		return f
	}
	f.askAll(q, o)
	f.err = q.lost
	return f
}

// dial learns what only a bare connection tells.
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

func (f *facts) askAll(q *questions, o *Options) {
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
	if f.info["role"] != "slave" && f.mode() != "sentinel" && f.mode() != "cluster" {
		f.tries = q.tryAll(o)
	}
}

// measure makes round trips. Of all readings of the clock the one that took least
// says most: it was taken somewhere within that time.
func (f *facts) measure(q *questions) {
	for range roundTrips {
		sent := time.Now()
		r := q.do("TIME")
		took := time.Since(sent)
		if q.lost != nil {
			return
		}
		f.trips = append(f.trips, took)
		if at, ok := readTime(r); ok && (f.within == 0 || took/2 < f.within) {
			f.within = max(took/2, time.Microsecond)
			f.ahead = at.Sub(sent.Round(0).Add(took / 2))
		}
	}
	slices.Sort(f.trips)
}

// mode is what the server runs as: standalone, cluster or sentinel; empty if it did not
// say. Valkey has another name for it.
func (f *facts) mode() string { return cmp.Or(f.info["redis_mode"], f.info["server_mode"]) }

// software is what the server is, and its own version; empty if it did not say. Valkey
// also tells that of the last Redis that it is compatible with.
func (f *facts) software() (name, version string) {
	if v := f.info["valkey_version"]; v != "" {
		return "Valkey", v
	}
	return "Redis", f.info["redis_version"]
}

func (f *facts) look() Look {
	l := Look{Where: f.where()}
	if name, version := f.software(); version != "" {
		l.Software, l.Version = name, version
	}
	if n := len(f.trips); n > 0 {
		l.MedianMS, l.LongestMS = inMS(f.trips[n/2]), inMS(f.trips[n-1])
	}
	if f.within > 0 {
		l.ClockMS, l.WithinMS = inMS(f.ahead), inMS(f.within)
	}
	return l
}

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Questions are asked of one server, one after the other. After one that is not
// answered at all none is sent.
type questions struct {
	ctx  context.Context
	c    rueidis.Client
	lost error
}

func (q *questions) do(args ...string) rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(q.ctx, callFor)
	defer cancel()
	if q.lost != nil {
		cancel() // the answer is an error, at once
	}
	r := q.c.Do(ctx, q.c.B().Arbitrary(args[0]).Args(args[1:]...).Build())
	if err := r.NonRedisError(); err != nil && q.lost == nil {
		q.lost = err
	}
	return r
}

// config is what CONFIG GET says, each parameter asked for alone: before Redis 7.0 it
// takes one only.
func (q *questions) config() (map[string]string, error) {
	out := map[string]string{}
	for _, p := range parameters {
		said, err := q.do("CONFIG", "GET", p).AsStrMap()
		if err != nil {
			return out, err
		}
		for k, v := range said {
			out[k] = v
		}
	}
	return out, nil
}

// recordFields are the fields of the node record, see scripts/prologue.lua.
var recordFields = []string{"id", "until", "sync", "ttl"}

// record reads the node record. No script is run for it: one would begin a quarantine.
func (q *questions) record(key string) (map[string]string, error) {
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

// tryAll uses every command that lock nodes are sent, and that scripts call, in a way
// that has no effect: on a key that is not there, to a channel that nobody listens to,
// or with arguments that are refused after the permission was looked at.
func (q *questions) tryAll(o *Options) (out []try) {
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
		{"pexpireat", []string{"PEXPIREAT", key, "1"}},
		{"publish", []string{"PUBLISH", key, ""}},
		{"pubsub|numsub", []string{"PUBSUB", "NUMSUB", key}},
		{"ping", []string{"PING"}},
		{"scan", []string{"SCAN", "0", "MATCH", key, "COUNT", "1"}},
	}
	for _, call := range calls {
		out = append(out, try{call.needs, refusal(q.do(call.args...).Error())})
	}
	if o.ReplicaAcks > 0 {
		out = append(out, try{"wait", refusal(q.do("WAIT", "0", "0").Error())})
	}
	return append(out, try{"subscribe", refusal(q.subscribe(key))})
}

// subscribe listens to a channel until the server says that it does.
func (q *questions) subscribe(channel string) error {
	ctx, cancel := context.WithTimeout(q.ctx, callFor)
	defer cancel()
	if q.lost != nil {
		return q.lost
	}
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { cancel() })
	err := q.c.Receive(ctx, q.c.B().Subscribe().Channel(channel).Build(), func(rueidis.PubSubMessage) {})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// refusal is err where that says that a command may not be used, or not now; else nil.
func refusal(err error) error {
	said, ok := rueidis.IsRedisErr(err)
	if !ok {
		return nil // it was answered, or nobody answers any more, which is told elsewhere
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
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) { // so begin RESP3's verbatim strings
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

// readSlow reads the reply of SLOWLOG GET: of each command its name and how long it
// took. Its arguments are somebody's data and are dropped.
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

// host is the address without its port, where a connection went; of a socket "this
// machine", and empty if there was none.
func (f *facts) host() string {
	switch a := f.remote.(type) {
	case *net.TCPAddr:
		return a.IP.String()
	case *net.UnixAddr:
		return "this machine"
	}
	return ""
}

// local says that the server is on this machine, as far as its address tells.
func (f *facts) local() bool {
	a, ok := f.remote.(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
}

// anonymous says that a connection was let in without a password.
func (f *facts) anonymous() bool {
	return f.silent() && f.err == nil
}

// silent says that the URL has neither user nor password.
func (f *facts) silent() bool {
	user, password := f.server.Credentials()
	return user == "" && password == ""
}

// cli is a redis-cli command line that asks the server.
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
