package admin

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/meter"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/proxy"
)

// maxScrapes is how many may ask for metrics at once; more are told to come again.
const maxScrapes = 4

// metrics serves what can be counted, in the formats of Prometheus.
func (s *Server) metrics() http.Handler {
	return promhttp.HandlerFor(s.registry(), promhttp.HandlerOpts{
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: maxScrapes,
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            slog.NewLogLogger(s.opt.Log.Handler(), slog.LevelWarn),
	})
}

func (s *Server) registry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newCollector(s.numbers),
	)
	return reg
}

// numbers are all that is exported, read at one time. Reading them waits for nobody, and
// asks no node anything.
type numbers struct {
	version  string
	ready    bool
	draining bool
	clients  proxy.Stats
	commands commands.Stats
	masters  []beat
	upstream upstream.Stats
	locks    locks.Stats
	oldest   time.Duration // see locks.Service.Oldest
	nodes    []node
	shown    []certificate
}

// A certificate is one that the proxy shows, as it is now.
type certificate struct {
	use      string
	from, to time.Time
}

// A node is a lock node under a name that no other one has.
type node struct {
	name string
	seen locks.NodeStatus
	did  locks.NodeStats
}

func (s *Server) numbers() *numbers {
	n := &numbers{
		version: s.opt.Version, ready: isReady(s.readiness()),
		draining: s.opt.Proxy.Draining(), clients: s.opt.Proxy.Stats(), commands: s.opt.Commands(),
		masters: s.watch.beats(), upstream: s.opt.Upstream.Stats(), locks: s.opt.Locks.Stats(), oldest: s.opt.Locks.Oldest(),
	}
	for _, c := range s.opt.Certificates {
		leaf := c.Leaf()
		n.shown = append(n.shown, certificate{c.Use, leaf.NotBefore, leaf.NotAfter})
	}
	seen, taken := s.opt.Locks.Nodes(), map[string]bool{}
	for i, did := range n.locks.Each {
		name := did.Address
		if taken[name] { // sentinels have named one master for two
			name = fmt.Sprintf("%s#%d", name, i+1)
		}
		taken[name] = true
		n.nodes = append(n.nodes, node{name, seen[i], did})
	}
	return n
}

// A family is one metric. Its labels have few values, however long the proxy runs: none
// comes from a client.
type family struct {
	name   string
	kind   string // gauge, counter or histogram
	labels []string
	help   string
	read   func(*numbers, *samples)
}

// samples takes those of one family.
type samples struct {
	desc *prometheus.Desc
	kind prometheus.ValueType // of a gauge or a counter
	to   chan<- prometheus.Metric
}

func (s *samples) add(value float64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(s.desc, s.kind, value, labels...)
}

func (s *samples) say(yes bool, labels ...string) {
	value := 0.0
	if yes {
		value = 1
	}
	s.add(value, labels...)
}

// each adds a counter for every key, behind the labels.
func (s *samples) each(counts map[string]int64, labels ...string) {
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		s.add(float64(counts[key]), append(labels[:len(labels):len(labels)], key)...)
	}
}

// spread adds a histogram.
func (s *samples) spread(h meter.Snapshot, labels ...string) {
	buckets, sum := map[float64]uint64{}, uint64(0)
	for i, bound := range h.Bounds {
		sum += uint64(h.Counts[i])
		buckets[bound] = sum
	}
	s.to <- prometheus.MustNewConstHistogram(s.desc, uint64(h.Count()), h.Sum, buckets, labels...)
}

// one makes the read of a family with a single sample.
func one[T int | int64 | float64](value func(*numbers) T) func(*numbers, *samples) {
	return func(n *numbers, s *samples) { s.add(float64(value(n))) }
}

// aNode makes the read of a family with a sample for each lock node.
func aNode[T int | int64 | float64](value func(node) T) func(*numbers, *samples) {
	return func(n *numbers, s *samples) {
		for _, node := range n.nodes {
			s.add(float64(value(node)), node.name)
		}
	}
}

const (
	gauge     = "gauge"
	counter   = "counter"
	histogram = "histogram"
)

// A collector reads everything once for each scrape.
type collector struct {
	read     func() *numbers
	families []family
	descs    []*prometheus.Desc
}

func newCollector(read func() *numbers) *collector {
	c := &collector{read: read, families: families()}
	for _, f := range c.families {
		c.descs = append(c.descs, prometheus.NewDesc(f.name, f.help, f.labels, nil))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	n := c.read()
	for i, f := range c.families {
		s := &samples{desc: c.descs[i], kind: prometheus.GaugeValue, to: to}
		if f.kind == counter {
			s.kind = prometheus.CounterValue
		}
		f.read(n, s)
	}
}

// families are all metrics of our own, in the order of docs/metrics.md.
func families() []family {
	return slices.Concat(proxyFamilies(), upstreamFamilies(), lockFamilies(), roundFamilies(), nodeFamilies())
}

func proxyFamilies() []family {
	return []family{
		{"lockproxy_build_info", gauge, []string{"version", "go_version"}, "Always 1; the labels say which build this is.",
			func(n *numbers, s *samples) { s.add(1, n.version, runtime.Version()) }},
		{"lockproxy_ready", gauge, nil, "1 if /readyz says that clients may be sent here, else 0.",
			func(n *numbers, s *samples) { s.say(n.ready) }},
		{"lockproxy_draining", gauge, nil, "1 since the proxy was told to end; it lets no more clients in.",
			func(n *numbers, s *samples) { s.say(n.draining) }},
		{"lockproxy_certificate_begins_timestamp_seconds", gauge, []string{"use"}, "When the certificate becomes valid that the proxy shows to clients, operators or servers, in Unix time; nothing where it shows none.",
			func(n *numbers, s *samples) {
				for _, c := range n.shown {
					s.add(float64(c.from.Unix()), c.use)
				}
			}},
		{"lockproxy_certificate_ends_timestamp_seconds", gauge, []string{"use"}, "When it ends.",
			func(n *numbers, s *samples) {
				for _, c := range n.shown {
					s.add(float64(c.to.Unix()), c.use)
				}
			}},
		{"lockproxy_clients", gauge, nil, "Clients that are connected.",
			one(func(n *numbers) int { return n.clients.Clients })},
		{"lockproxy_clients_most", gauge, nil, "Clients that may be connected at once: max-clients.",
			one(func(n *numbers) int { return n.clients.Most })},
		{"lockproxy_clients_accepted_total", counter, nil, "Clients that have connected.",
			one(func(n *numbers) int64 { return n.clients.Accepted })},
		{"lockproxy_clients_refused_total", counter, nil, "Clients that were turned away, since max-clients were connected.",
			one(func(n *numbers) int64 { return n.clients.Refused })},
		{"lockproxy_clients_unsecured_total", counter, nil, "Clients whose TLS handshake failed.",
			one(func(n *numbers) int64 { return n.clients.Unsecured })},
		{"lockproxy_clients_closed_total", counter, []string{"reason"}, "Clients that are gone: client, they left; quit; idle, for longer than idle-timeout; protocol, they broke it; output, they did not read; drain, the proxy ends; killed; lost_lock, a lock with SESSION was, and its client is told so; upstream, what they had there is lost.",
			func(n *numbers, s *samples) { s.each(n.clients.Closed) }},
		{"lockproxy_client_reads_total", counter, nil, "Reads from clients; each brings a burst of commands, or a part of one.",
			one(func(n *numbers) int64 { return n.clients.Reads })},
		{"lockproxy_client_writes_total", counter, nil, "Writes to clients.",
			one(func(n *numbers) int64 { return n.clients.Writes })},
		{"lockproxy_client_received_bytes_total", counter, nil, "Bytes received from clients.",
			one(func(n *numbers) int64 { return n.clients.BytesIn })},
		{"lockproxy_client_sent_bytes_total", counter, nil, "Bytes sent to clients.",
			one(func(n *numbers) int64 { return n.clients.BytesOut })},
		{"lockproxy_commands_total", counter, []string{"family"}, "Commands that clients sent, by what they do: read, write, blocking, script, transaction, pubsub, connection, admin, lock, renew, unlock, lockctl; other: a module's, or none that Redis knows.",
			func(n *numbers, s *samples) { s.each(n.commands.Commands) }},
		{"lockproxy_command_bursts_total", counter, nil, "Bursts in which they came: commands that were read together count as one.",
			one(func(n *numbers) int64 { return n.commands.Bursts })},
		{"lockproxy_command_seconds", histogram, nil, "How long clients waited for commands that only read or write: one in 64 bursts of each connection, from its being read to the last reply being written.",
			func(n *numbers, s *samples) { s.spread(n.commands.Took) }},
		{"lockproxy_command_errors_total", counter, []string{"error"}, "Errors that the proxy answered itself, by their first word; other: one that is not among those that are counted apart.",
			func(n *numbers, s *samples) { s.each(n.commands.Errors) }},
	}
}

func upstreamFamilies() []family {
	return []family{
		{"lockproxy_upstream_up", gauge, []string{"server"}, "1 if this master of the upstream has answered a PING within the last 3 seconds, else 0.",
			func(n *numbers, s *samples) {
				for _, b := range n.masters {
					s.say(b.up, b.addr)
				}
			}},
		{"lockproxy_upstream_ping_seconds", gauge, []string{"server"}, "How long this master's last answer to a PING took, behind what clients had asked for before.",
			func(n *numbers, s *samples) {
				for _, b := range n.masters {
					s.add(b.took.Seconds(), b.addr)
				}
			}},
		{"lockproxy_upstream_reply_seconds", histogram, nil, "How long the upstream took to answer: one in 64 bursts of commands on shared connections, from its being handed over to the last of its replies.",
			func(n *numbers, s *samples) { s.spread(n.upstream.Took) }},
		{"lockproxy_upstream_errors_total", counter, []string{"error"}, "Error replies of the upstream by their first word; other: one that is not among those that are counted apart.",
			func(n *numbers, s *samples) { s.each(n.upstream.Errors) }},
		{"lockproxy_upstream_replies_total", counter, nil, "Replies of the upstream.",
			one(func(n *numbers) int64 { return n.upstream.Replies })},
		{"lockproxy_upstream_connections", gauge, []string{"kind"}, "Connections to the upstream: shared by clients; pinned, one client's own; spare, opened ahead for one.",
			func(n *numbers, s *samples) {
				s.add(float64(n.upstream.Pinned), "pinned")
				s.add(float64(n.upstream.Shared), "shared")
				s.add(float64(n.upstream.Spare), "spare")
			}},
		{"lockproxy_upstream_identities", gauge, nil, "Users, databases and protocols that connections are kept for, at all servers together.",
			one(func(n *numbers) int { return n.upstream.Identities })},
		{"lockproxy_upstream_servers", gauge, nil, "Servers that commands may go to, replicas too.",
			one(func(n *numbers) int { return n.upstream.Nodes })},
		{"lockproxy_upstream_servers_down", gauge, nil, "Servers that could not be reached when last tried, a second ago at most.",
			one(func(n *numbers) int { return n.upstream.Down })},
		{"lockproxy_upstream_opened_total", counter, nil, "Connections opened to the upstream.",
			one(func(n *numbers) int64 { return n.upstream.Opened })},
		{"lockproxy_upstream_failures_total", counter, nil, "Connections that could not be opened, since the upstream was not there.",
			one(func(n *numbers) int64 { return n.upstream.Failures })},
		{"lockproxy_upstream_lost_total", counter, nil, "Connections that ended without the proxy having closed them.",
			one(func(n *numbers) int64 { return n.upstream.Lost })},
		{"lockproxy_upstream_reconnects_total", counter, nil, "Shared connections opened again after they were lost.",
			one(func(n *numbers) int64 { return n.upstream.Reconnects })},
		{"lockproxy_upstream_queued_bytes", gauge, nil, "Bytes that wait for the upstream to read.",
			one(func(n *numbers) int64 { return n.upstream.Queued })},
		{"lockproxy_upstream_writes_total", counter, nil, "Writes to the upstream; each carries the commands of one client or of many.",
			one(func(n *numbers) int64 { return n.upstream.Writes })},
		{"lockproxy_upstream_reads_total", counter, nil, "Reads from the upstream.",
			one(func(n *numbers) int64 { return n.upstream.Reads })},
		{"lockproxy_upstream_sent_bytes_total", counter, nil, "Bytes sent to the upstream.",
			one(func(n *numbers) int64 { return n.upstream.BytesOut })},
		{"lockproxy_upstream_received_bytes_total", counter, nil, "Bytes received from the upstream.",
			one(func(n *numbers) int64 { return n.upstream.BytesIn })},
	}
}

func lockFamilies() []family {
	return []family{
		{"lockproxy_lock_requests_total", counter, []string{"outcome"}, "LOCKs that were answered: granted; refused, since another owner has the name, also after waiting; failed, for want of a quorum or since their time or client was gone.",
			func(n *numbers, s *samples) {
				s.add(float64(n.locks.Failures), "failed")
				s.add(float64(n.locks.Grants), "granted")
				s.add(float64(n.locks.Refusals), "refused")
			}},
		{"lockproxy_lock_grants_total", counter, []string{"ground"}, "Granted LOCKs by what made them ask: at_once, when they came; handed, behind an UNLOCK at this proxy; woken, by a lock node; timer, when the holder's lease ended or to be safe; own, since their owner had got the name meanwhile.",
			func(n *numbers, s *samples) { s.each(n.locks.Triggers) }},
		{"lockproxy_lock_reentries_total", counter, nil, "Granted LOCKs of an owner that had the name already.",
			one(func(n *numbers) int64 { return n.locks.Reentries })},
		{"lockproxy_lock_wait_seconds", histogram, []string{"outcome"}, "From the call of LOCK to its grant or refusal.",
			func(n *numbers, s *samples) {
				s.spread(n.locks.GrantWait, "granted")
				s.spread(n.locks.RefusalWait, "refused")
			}},
		{"lockproxy_lock_hold_seconds", histogram, nil, "From a grant through this proxy to its release through it, its loss, or the end of its validity if nobody came back.",
			func(n *numbers, s *samples) { s.spread(n.locks.Held) }},
		{"lockproxy_lock_oldest_hold_seconds", gauge, nil, "Since the oldest grant through this proxy that still runs, as far as it knows; 0 if there is none. One that only grows is a lock that its owner renews without an end, or takes again and again.",
			one(func(n *numbers) float64 { return n.oldest.Seconds() })},
		{"lockproxy_lock_waiting", gauge, nil, "LOCKs with WAIT that are in line at this proxy.",
			one(func(n *numbers) int { return n.locks.Waiting })},
		{"lockproxy_lock_releases_total", counter, nil, "Holds given back, and repeats of that.",
			one(func(n *numbers) int64 { return n.locks.Releases })},
		{"lockproxy_lock_renewals_total", counter, nil, "Leases renewed, those of sessions too.",
			one(func(n *numbers) int64 { return n.locks.Renewals })},
		{"lockproxy_lock_repeats_total", counter, nil, "LOCKs and UNLOCKs with a REQ that had been done before: their first answer was lost.",
			one(func(n *numbers) int64 { return n.locks.Repeats })},
		{"lockproxy_lock_forces_total", counter, nil, "Locks that an operator took away through this proxy.",
			one(func(n *numbers) int64 { return n.locks.Forces })},
		{"lockproxy_lock_noquorum_total", counter, nil, "LOCK, RENEW, UNLOCK and LOCKCTL that too few lock nodes answered to decide.",
			one(func(n *numbers) int64 { return n.locks.NoQuorum })},
		{"lockproxy_lock_splits_total", counter, nil, "Acquisitions in which several owners had some nodes and none a majority; they are tried again.",
			one(func(n *numbers) int64 { return n.locks.Splits })},
		{"lockproxy_lock_undos_total", counter, nil, "Acquisitions taken back that some lock node may have done.",
			one(func(n *numbers) int64 { return n.locks.Undos })},
		{"lockproxy_lock_sessions", gauge, nil, "Connections that have locks with SESSION.",
			one(func(n *numbers) int { return n.locks.Sessions })},
		{"lockproxy_lock_session_holds", gauge, nil, "Holds that are kept for connections with SESSION.",
			one(func(n *numbers) int { return n.locks.SessionLocks })},
		{"lockproxy_lock_session_renewals_total", counter, nil, "Renewals of locks with SESSION that a quorum took.",
			one(func(n *numbers) int64 { return n.locks.SessionRenewals })},
		{"lockproxy_lock_session_misses_total", counter, nil, "Renewals of locks with SESSION that decided nothing, and are tried again while the lease runs.",
			one(func(n *numbers) int64 { return n.locks.SessionMisses })},
		{"lockproxy_lock_lost_total", counter, []string{"reason"}, "Locks with SESSION that were lost to their holders: expired; forced, by an operator; maxhold, held for as long as allowed; noquorum, too few nodes voted; taken, another owner has it; gone from the nodes.",
			func(n *numbers, s *samples) { s.each(n.locks.Lost) }},
	}
}

func roundFamilies() []family {
	return []family{
		{"lockproxy_lock_rounds_total", counter, []string{"question", "outcome"}, "Questions put to the lock nodes, once they have ended, by what was asked and what came of it.",
			func(n *numbers, s *samples) {
				for _, q := range slices.Sorted(maps.Keys(n.locks.Asked)) {
					s.each(n.locks.Asked[q].Ends, q)
				}
			}},
		{"lockproxy_lock_round_seconds", histogram, []string{"question"}, "From a question to the lock nodes to its end, whatever that was.",
			func(n *numbers, s *samples) {
				for _, q := range slices.Sorted(maps.Keys(n.locks.Asked)) {
					s.spread(n.locks.Asked[q].Took, q)
				}
			}},
		{"lockproxy_lock_nodes", gauge, nil, "Lock nodes that there are.",
			one(func(n *numbers) int { return len(n.nodes) })},
		{"lockproxy_lock_nodes_voting", gauge, nil, "Lock nodes that vote, or are unused.",
			one(func(n *numbers) int { return n.locks.Voting })},
		{"lockproxy_lock_nodes_quorum", gauge, nil, "Lock nodes that must vote for anything to be decided.",
			one(func(n *numbers) int { return len(n.nodes)/2 + 1 })},
	}
}

// nodeStates are the values of the label state, with what the program calls them.
var nodeStates = []struct {
	label string
	state locks.NodeState
}{
	{"unknown", locks.NodeUnknown}, {"down", locks.NodeDown}, {"refuses", locks.NodeRefusing}, {"voting", locks.NodeVoting}, {"unregistered", locks.NodeNew}, {"unused", locks.NodeUnused}, {"quarantine", locks.NodeQuarantine},
	{"floorless", locks.NodeFloorless}, {"list", locks.NodeMismatch}, {"refused", locks.NodeBarred},
}

// refusals are the errors of lock nodes that are told apart, and what stands for the rest.
var refusals = [...]string{"LOADING", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM", "READONLY", "WRONGPASS", "other"}

// refusal is which of refusals a node refuses with; empty if it does not refuse.
func refusal(n locks.NodeStatus) string {
	why := locks.WhySilent(n.Err)
	switch {
	case n.State != locks.NodeRefusing:
		return ""
	case slices.Contains(refusals[:], why):
		return why
	}
	return "other"
}

func sinceSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Since(t).Seconds())
}

func nodeFamilies() []family {
	return []family{
		{"lockproxy_lock_node_up", gauge, []string{"node"}, "1 if the lock node answered when last looked at, a second ago at most, else 0.",
			func(n *numbers, s *samples) {
				for _, node := range n.nodes {
					s.say(node.seen.Up, node.name)
				}
			}},
		{"lockproxy_lock_node_state", gauge, []string{"node", "state"}, "1 for the state that the lock node is in, 0 for the others: unknown, it was not asked yet; down, it does not answer; refuses, it answers with errors, see lockproxy_lock_node_refuses; voting; unregistered, it is new; unused, it is the upstream, and no lock was asked for; quarantine, it may have forgotten leases; floorless, it may have forgotten fences; list, it is one of other lock nodes than the proxy has; refused, a Cluster or the same server as another node.",
			func(n *numbers, s *samples) {
				for _, node := range n.nodes {
					for _, st := range nodeStates {
						s.say(node.seen.State == st.state, node.name, st.label)
					}
				}
			}},
		{"lockproxy_lock_node_state_seconds", gauge, []string{"node"}, "For how long the lock node has been in its state, as far as this proxy has seen.",
			aNode(func(n node) float64 { return sinceSeconds(n.seen.Since) })},
		{"lockproxy_lock_node_refuses", gauge, []string{"node", "error"}, "1 for the error with which the lock node refuses writes, or everything, 0 for the others; other: one that is not among those that are told apart.",
			func(n *numbers, s *samples) {
				for _, node := range n.nodes {
					says := refusal(node.seen)
					for _, err := range refusals {
						s.say(says == err, node.name, err)
					}
				}
			}},
		{"lockproxy_lock_node_quarantine_seconds", gauge, []string{"node"}, "For how long the lock node still sits out; 0 if it does not.",
			aNode(func(n node) float64 { return n.seen.Left.Seconds() })},
		{"lockproxy_lock_node_quarantines_total", counter, []string{"node"}, "How often the lock node was seen to enter quarantine: it had lost its memory.",
			aNode(func(n node) int64 { return n.did.Quarantines })},
		{"lockproxy_lock_node_reconnects_total", counter, []string{"node"}, "Connections to the lock node made again after one was lost.",
			aNode(func(n node) int64 { return n.did.Reconnects })},
		{"lockproxy_lock_node_paused", gauge, []string{"node"}, "1 while the lock node is not asked, since it failed a moment ago.",
			func(n *numbers, s *samples) {
				for _, node := range n.nodes {
					s.say(node.did.Paused, node.name)
				}
			}},
		{"lockproxy_lock_node_queued", gauge, []string{"node"}, "Scripts that wait to be sent to the lock node.",
			aNode(func(n node) int { return n.did.Queued })},
		{"lockproxy_lock_node_votes_total", counter, []string{"node", "vote"}, "What the lock node said when asked, yes or no, or why it said nothing: timeout, connection, quarantine, unregistered, floor, list, refused, busy, error, unwanted, closed.",
			func(n *numbers, s *samples) {
				for _, node := range n.nodes {
					s.each(node.did.Votes, node.name)
				}
			}},
		{"lockproxy_lock_node_reply_seconds", histogram, []string{"node"}, "How long the lock node took to answer a batch of scripts.",
			func(n *numbers, s *samples) {
				for _, node := range n.nodes {
					s.spread(node.did.Replies, node.name)
				}
			}},
	}
}
