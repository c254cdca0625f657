package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/backends/topology"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/store"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/proxy"
)

// A setting can be given as a flag (--min-ttl), in the environment (LOCKPROXY_MIN_TTL) and
// in the configuration file (min-ttl:).
type setting struct {
	name  string
	group string // the heading in --help that it stands under; empty: none
	usage string
	value string // the default, as an operator would write it; empty for none

	list   bool // may be given more than once
	spaced bool // a value has spaces in it: in the environment, a list of such is separated by ";" or line ends
	toggle bool // true or false; the bare flag means true
	url    bool // each value is a URL of a Redis
	secret bool // a password, or a URL that may hold one: never printed; has a -file variant

	read func(text string) error // once for each value; its errors repeat no secret
}

// env is the environment variable of the setting.
func (s setting) env() string {
	return "LOCKPROXY_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// options are valid settings, ready to wire.
type options struct {
	// Addresses.
	listen        string
	listener      net.Listener // passed on by a service manager, in place of listen; may be nil
	upstream      *backends.Server
	nodes         []*backends.Server // at least one, unless store is an etcd
	upstreamVotes bool               // the upstream is the one lock node, as none is given
	store         store.Choice

	mode                           string // of the upstream
	readFrom                       string
	sentinelUser, sentinelPassword string

	// TLS.
	clientFiles, serverFiles tlsFiles
	clientTLS, serverTLS     *backends.TLS // what the files hold; nil: no setting names one

	// Locks.
	minTTL, maxTTL          time.Duration
	nodeTimeout             time.Duration // 0: derived from the lease
	fenceRetention          time.Duration
	bootstrap, restartGrace string
	prefix                  string
	requireOwner            bool
	replicaAcks             int
	maxWait                 time.Duration
	maxWaiters              int
	maxHold, sessionGrace   time.Duration
	onLoss                  string
	adopt                   []*pattern.Pattern
	adoptReport             bool

	// Clients and connections.
	maxClients                int
	maxBulk, maxOutput        int64 // bytes
	idleTimeout, drainTimeout time.Duration
	upstreamConns             int
	maxIdentities             int
	engine                    string // what reads from clients
	procs                     int    // 0: chosen by setThreads

	// The admin server.
	admin                  string // where it listens; empty: there is none
	adminPassword          string
	adminTLS               bool
	adminPprof, adminForce bool

	// The log.
	logLevel slog.Level
	logJSON  bool
	logLimit int

	// Findings of validation, for the log.
	exposed  []string // lets others see or do more than they should
	warnings []string // legal but unwise
}

// settings are those of serve, in the order of --help. Each is read into o.
func (o *options) settings() []setting {
	return slices.Concat(under(groupServers, []setting{
		{name: "listen", value: "127.0.0.1:6380", usage: "where clients connect: `host:port`, or the path of a Unix socket", read: o.readListen},
		{name: "upstream", url: true, secret: true, usage: "the Redis that ordinary commands go to, as a `URL` (redis://, rediss://, unix://)", read: o.readUpstream},
		{name: "upstream-mode", value: "auto", usage: "standalone, replicated (the URL names the master and its replicas), sentinel (it names sentinels), cluster, or auto: as the URL and the servers say", read: oneOf(&o.mode, modes...)},
		{name: "read-from", value: "master", usage: "where commands that only read may go: master, replica (a master that has none serves them itself), any", read: oneOf(&o.readFrom, "master", "replica", "any")},
		{name: "sentinel-user", usage: "the user name for sentinels; that in the upstream's URL is for the servers that they watch", read: word(&o.sentinelUser)},
		{name: "sentinel-password", secret: true, usage: "the password for sentinels", read: word(&o.sentinelPassword)},
		{name: "lock-node", url: true, secret: true, list: true, usage: "a master that votes on locks, as a `URL`; repeat it, an odd number is best (default: the upstream alone)", read: o.readNode},
		{name: "lock-store", value: "nodes", url: true, secret: true, usage: "where locks are kept: nodes, the ones of lock-node; or the `URL` of an etcd, etcd://user:password@host:2379,host:2379/prefix, etcds:// for TLS (docs/stores.md)", read: o.store.Read},
	}), under("TLS", o.tlsSettings()), under("Locks", []setting{
		{name: "min-ttl", value: "100ms", usage: "the shortest lease a client may ask for", read: duration(time.Millisecond, &o.minTTL)},
		{name: "max-ttl", value: "60s", usage: "the longest lease; also how long a lock node that forgot sits out, where too few others remember to tell it what they hold", read: duration(time.Millisecond, &o.maxTTL)},
		{name: "node-timeout", value: "0", usage: "how long a lock node may take to vote, 2.25s at most; 0: a 200th of the lease, within 5ms and 50ms, and up to 200ms while less than a majority has answered", read: duration(0, &o.nodeTimeout)},
		{name: "bootstrap", value: "auto", usage: "auto: lock nodes that are all empty are new and vote at once, unless this proxy has seen them otherwise; strict: only lockproxy init says so", read: oneOf(&o.bootstrap, "auto", "strict")},
		{name: "restart-grace", value: "available", usage: "with fewer than three lock nodes, after one lost its memory: available goes on at once, safe sits out max-ttl", read: oneOf(&o.restartGrace, "available", "safe")},
		{name: "replica-acks", value: "0", usage: "how many replicas of a lock node must have a grant or a renewal before the node's vote counts; weaker than more lock nodes", read: count(0, &o.replicaAcks)},
		{name: "fence-retention", value: "10m", usage: "how long a fence counter outlives the last lease of its lock; 10m at least", read: duration(10*time.Minute, &o.fenceRetention)},
		{name: "key-prefix", value: "lockproxy:", usage: "what every key on the lock nodes begins with; the same at every proxy", read: o.readPrefix},
		{name: "require-owner", toggle: true, value: "false", usage: "refuse UNLOCK and RENEW that do not name their owner", read: toggle(&o.requireOwner)},
		{name: "max-wait", value: "10m", usage: "the longest WAIT a client may ask for", read: duration(time.Millisecond, &o.maxWait)},
		{name: "max-waiters", value: "100000", usage: "how many LOCKs may wait at once", read: count(1, &o.maxWaiters)},
		{name: "max-hold", value: "1h", usage: "when a lock with SESSION, or an adopted one without an end, ends at the latest; a MAXHOLD can only be shorter", read: duration(time.Millisecond, &o.maxHold)},
		{name: "session-grace", value: "0", usage: "how long locks with SESSION are kept when their connection has closed", read: duration(0, &o.sessionGrace)},
		{name: "on-loss", value: "close", usage: "what happens to a connection that loses a lock with SESSION, if its LOCK has no ONLOSS: close, or keep; a kept one is told by a push with RESP3, and by RENEW or UNLOCK", read: oneOf(&o.onLoss, "close", "keep")},
	}), under("Existing lock code", []setting{
		{name: "adopt", list: true, spaced: true, usage: "keys that are locks: a `PATTERN` as KEYS takes it, then words: db, mode, as, no-expiry, flush, guard, timestamps, fence-key (docs/adopt.md); repeat it for more", read: o.readAdopt},
		{name: "adopt-report", toggle: true, value: "false", usage: "watch all traffic for keys that are used as locks, and report them; this changes nothing (docs/adopt.md)", read: toggle(&o.adoptReport)},
	}), under("Clients and connections", []setting{
		{name: "max-clients", value: "10000", usage: "how many clients may be connected at once", read: count(1, &o.maxClients)},
		{name: "max-bulk", value: "512mb", usage: "the largest argument of a command", read: size(&o.maxBulk)},
		{name: "max-output", value: "256mb", usage: "how much may wait for a client that does not read, before it is closed", read: size(&o.maxOutput)},
		{name: "idle-timeout", value: "0", usage: "close clients that are silent for so long, also since a reply they have waited for; 0: never", read: duration(0, &o.idleTimeout)},
		{name: "drain-timeout", value: "10s", usage: "how long running commands may take to finish after SIGTERM", read: duration(time.Millisecond, &o.drainTimeout)},
		{name: "upstream-conns", value: "1", usage: "shared upstream connections for each identity (user, database, protocol); 0: one for each client, shared with nobody", read: count(0, &o.upstreamConns)},
		{name: "max-identities", value: "1024", usage: "how many identities keep their shared connections open", read: count(1, &o.maxIdentities)},
		{name: "engine", value: "loop", usage: "what reads from clients: loop, a few event loops, on Linux and without TLS; goroutines, one for each client, as everywhere else", read: oneOf(&o.engine, "loop", "goroutines")},
		{name: "procs", value: "0", usage: "threads that run Go code at once; 0: GOMAXPROCS if it is set, else half the cores, since each wake-up across cores costs more than relaying a command", read: count(0, &o.procs)},
	}), under("Operators", []setting{
		{name: "admin", usage: "where the page and API for operators are served, over HTTP: `host:port`, or the path of a Unix socket; empty: nowhere (docs/admin.md)", read: o.readAdmin},
		{name: "admin-password", secret: true, usage: "the password of operators, with any user name; without one, the page is served on a loopback address or a Unix socket only", read: o.readAdminPassword},
		{name: "admin-tls", toggle: true, value: "false", usage: "serve operators over TLS, with the certificate of tls-cert; they need none themselves", read: toggle(&o.adminTLS)},
		{name: "admin-pprof", toggle: true, value: "false", usage: "serve profiles of the process to operators, at /debug/pprof/", read: toggle(&o.adminPprof)},
		{name: "admin-force", toggle: true, value: "false", usage: "let operators take locks away on the page", read: toggle(&o.adminForce)},
	}), under("Log", []setting{
		{name: "log-level", value: "info", usage: "debug, info, warn or error", read: o.readLevel},
		{name: "log-format", value: "text", usage: "text or json", read: o.readFormat},
		{name: "log-limit", value: "20", usage: "at most so many lines with the same message in ten seconds, and 50 times as many of level debug; 0: all (docs/logging.md)", read: count(0, &o.logLimit)},
	}))
}

// groupServers is the heading of the settings that say which servers there are.
const groupServers = "Servers"

// under is these settings with their heading in --help.
func under(group string, all []setting) []setting {
	for i := range all {
		all[i].group = group
	}
	return all
}

// modes are what an upstream may be.
var modes = []string{topology.ModeAuto, topology.ModeStandalone, topology.ModeReplicated, topology.ModeSentinel, topology.ModeCluster}

// without is all but the named settings.
func without(all []setting, names ...string) []setting {
	return slices.DeleteFunc(slices.Clone(all), func(s setting) bool { return slices.Contains(names, s.name) })
}

func only(all []setting, names ...string) []setting {
	return slices.DeleteFunc(slices.Clone(all), func(s setting) bool { return !slices.Contains(names, s.name) })
}

func (o *options) readListen(text string) error {
	o.listen = text
	return checkListen(text)
}

// checkListen returns an error if text is no address to listen at.
func checkListen(text string) error {
	if proxy.IsSocketPath(text) {
		return nil
	}
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is neither host:port nor the path of a Unix socket", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: the port is not a number from 0 to 65535", text)
	}
	return nil
}

func (o *options) readUpstream(text string) error {
	s, err := parseServer(text)
	o.upstream = s
	return err
}

func (o *options) readNode(text string) error {
	s, err := parseServer(text)
	if err != nil {
		return err
	}
	if !s.Single() && s.MasterSet() == "" {
		return errors.New("names several addresses; a lock node is one server (or a master and its sentinels, ?master_set=…), and a Cluster cannot vote")
	}
	if i := slices.IndexFunc(o.nodes, func(n *backends.Server) bool { return n.String() == s.String() }); i >= 0 {
		return fmt.Errorf("%s is named twice; each lock node must be a server of its own", s)
	}
	o.nodes = append(o.nodes, s)
	return nil
}

// parseServer is backends.Parse with errors that are safe to print. They have details only
// if nothing in the URL can be a password: an unescaped one turns up anywhere in a parser's
// message.
func parseServer(text string) (*backends.Server, error) {
	if text == "" {
		return nil, errors.New("is empty; write redis://host:port")
	}
	s, err := backends.Parse(text)
	if err != nil && strings.ContainsAny(text, "@?") {
		return nil, errors.New("not a Redis URL (not shown, it may hold a password); write redis://user:password@host:port/db, with special characters in the password percent-encoded")
	}
	return s, err
}

func (o *options) readPrefix(text string) error {
	o.prefix = text
	if text == "" {
		return errors.New("is empty; keys of locks would mix with yours")
	}
	return voters.CheckPrefix(text)
}

func (o *options) readLevel(text string) error {
	if err := o.logLevel.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("%q is not one of debug, info, warn, error", text)
	}
	return nil
}

func (o *options) readFormat(text string) error {
	var format string
	err := oneOf(&format, "text", "json")(text)
	o.logJSON = format == "json"
	return err
}

// duration reads a number with a unit; 0 needs none. Anything else without one is
// refused, since 30 may mean seconds to one reader and milliseconds to another.
func duration(least time.Duration, field *time.Duration) func(string) error {
	return func(text string) error {
		d, err := time.ParseDuration(text)
		if _, bare := strconv.ParseFloat(text, 64); err != nil && bare == nil {
			return fmt.Errorf("%q has no unit; write %sms, %ss or %sm", text, text, text, text)
		}
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 100ms, 30s or 10m", text)
		}
		if d < least {
			return fmt.Errorf("%s is under the minimum of %s", d, least)
		}
		if d%time.Millisecond != 0 {
			return fmt.Errorf("%s is finer than a millisecond", d)
		}
		*field = d
		return nil
	}
}

// count reads a whole number from least up to 2^31-1.
func count(least int, field *int) func(string) error {
	return func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > math.MaxInt32 {
			return fmt.Errorf("%q is not a whole number from %d to %d", text, least, math.MaxInt32)
		}
		*field = n
		return nil
	}
}

// size reads a number of bytes, plain or in kb, mb or gb of 1024.
func size(field *int64) func(string) error {
	return func(text string) error {
		digits, unit := strings.ToLower(text), int64(1)
		for suffix, of := range map[string]int64{"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30} {
			if rest, ok := strings.CutSuffix(digits, suffix); ok {
				digits, unit = rest, of
			}
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || n > math.MaxInt64/unit {
			return fmt.Errorf("%q is not a size such as 65536, 64kb, 512mb or 1gb", text)
		}
		*field = n * unit
		return nil
	}
}

// word reads any text.
func word(field *string) func(string) error {
	return func(text string) error {
		*field = text
		return nil
	}
}

// oneOf reads one of a few words.
func oneOf(field *string, words ...string) func(string) error {
	return func(text string) error {
		if !slices.Contains(words, text) {
			return fmt.Errorf("%q is not one of %s", text, strings.Join(words, ", "))
		}
		*field = text
		return nil
	}
}

// toggle reads true or false, in the forms of strconv.ParseBool.
func toggle(field *bool) func(string) error {
	return func(text string) error {
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*field = b
		return nil
	}
}
