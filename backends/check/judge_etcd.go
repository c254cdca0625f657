package check

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// oldestEtcd is the first minor version of etcd 3 whose gateway has what is used.
const oldestEtcd = 4

func (m *Member) where() string { return "etcd member " + m.Address }

func (m *Member) measurement() Measurement {
	l := Measurement{Where: m.where()}
	if m.Version != "" {
		l.Software, l.Version = "etcd", m.Version
	}
	if n := len(m.RoundTrips); n > 0 {
		l.MedianMS, l.LongestMS = inMS(m.RoundTrips[n/2]), inMS(m.RoundTrips[n-1])
	}
	return l
}

// host is that of its address.
func (m *Member) host() string {
	host, _, err := net.SplitHostPort(m.Address)
	if err != nil {
		return ""
	}
	return host
}

// ctl is an etcdctl command line for the member.
func (m *Member) ctl(words string) string {
	return "etcdctl --endpoints " + m.Address + " " + words
}

// judgeMembers is the findings in what is known of an etcd.
func judgeMembers(all []Member, o *Options) (found []Finding) {
	for i := range all {
		out := &findings{where: all[i].where()}
		all[i].judge(out, o)
		found = append(found, out.list...)
	}
	out := &findings{where: "etcd"}
	judgeCluster(out, all)
	return append(found, out.list...)
}

func (m *Member) judge(out *findings, o *Options) {
	switch {
	case m.Denied != nil:
		out.add(Error, "auth", "does not let this user in, or not to the keys of locks: "+m.Denied.Error(), "mend user and password in the URL (special characters percent-encoded); grant readwrite on the prefix, as docs/stores.md says")
	case m.Err != nil:
		out.add(Error, "unreachable", "cannot be reached, or hangs: "+m.Err.Error(), "see that it runs, that its JSON gateway is on, and that nothing is between: "+m.ctl("endpoint health"))
		return
	}
	m.judgeAccess(out)
	m.judgeTrips(out, o)
	if v := strings.SplitN(m.Version, ".", 3); len(v) > 1 {
		major, _ := strconv.Atoi(v[0]) // not a number: it is too new to know
		if minor, err := strconv.Atoi(v[1]); err == nil && (major < 3 || major == 3 && minor < oldestEtcd) {
			out.add(Error, "version", fmt.Sprintf("etcd %s is too old for the gateway that locks use", m.Version), "upgrade it to 3.4 or later")
		}
	}
	full := strings.Contains(strings.Join(m.Alarms, " "), "NOSPACE")
	switch {
	case m.Denied != nil:
	case m.Leader == "":
		out.add(Error, "no-leader", "knows of no leader: most members are down, or do not reach each other", m.ctl("endpoint status --cluster -w table"))
	case m.Learner:
		out.add(Error, "learner", "is a learner: it has no vote, and answers nothing that locks ask", m.ctl("member promote")+", or leave it out of the URL")
	case full:
		out.add(Error, "space", "is out of space, and grants nothing", "compact, "+m.ctl("defrag")+", "+m.ctl("alarm disarm")+"; then --auto-compaction-retention, as docs/stores.md says")
	case len(m.Alarms) > 0:
		out.add(Error, "alarm", "has an alarm: "+strings.Join(m.Alarms, ", "), m.ctl("alarm list"))
	case m.Refused != nil:
		out.add(Error, "refuses-writes", "does not do what a LOCK asks: "+m.Refused.Error(), m.ctl("endpoint health"))
	}
	if !full && m.Quota > 0 && m.Size >= m.Quota/10*8 {
		out.add(Warning, "space", fmt.Sprintf("has %d %% of the bytes that its database may have: when it is full it grants nothing", m.Size*100/m.Quota), "--auto-compaction-retention, as docs/stores.md says, and "+m.ctl("defrag"))
	}
}

// judgeAccess finds who else can come in, or listen.
func (m *Member) judgeAccess(out *findings) {
	if ip := net.ParseIP(m.host()); ip != nil && ip.IsLoopback() || m.host() == "localhost" {
		return
	}
	switch {
	case m.Secure:
	case m.Credential:
		out.add(Warning, "no-tls", "is reached without TLS: its password, and all that is said to it, can be read and changed on the way", "client certificates at etcd, and an etcds:// URL")
	default:
		out.add(Note, "no-tls", "is reached without TLS: what is said to it can be read and changed on the way", "client certificates at etcd, and an etcds:// URL")
	}
	if !m.Credential && m.Denied == nil {
		out.add(Warning, "no-password", "asks for no password: whoever reaches it can take, forge and free every lock", m.ctl("auth enable")+", and a user in the URL, in a file (docs/stores.md)")
	}
}

// etcdTime is how long a member may take unless node-timeout says so.
const etcdTime = time.Second

func (m *Member) judgeTrips(out *findings, o *Options) {
	if len(m.RoundTrips) == 0 {
		return
	}
	limit := etcdTime
	if o.NodeTimeout > 0 {
		limit = o.NodeTimeout
	}
	if median := m.RoundTrips[len(m.RoundTrips)/2]; median >= limit/4 { // a LOCK also waits for the others' disks
		out.add(Warning, "latency", fmt.Sprintf("a round trip takes %s, of the %s after which the next member is asked", roundedDuration(median), limit), "bring it nearer to the proxy, or --node-timeout "+ceilMillis(8*median))
	}
}

// judgeCluster finds faults between members.
func judgeCluster(out *findings, all []Member) {
	switch n := len(all); {
	case n == 1:
		out.add(Note, "number", "one member is named: while that is down, or restarts, nobody gets a lock", "name all members in lock-store; three or five, on machines of their own")
	case n%2 == 0:
		out.add(Warning, "number", fmt.Sprintf("%d members are named, which survive the loss of %d, as %d would, if the cluster has no others", n, n/2-1, n-1), "name all members in lock-store; three or five")
	}
	var places []place
	answer := 0
	leader := "" // as the first one says that knows of one
	byID := map[string]*Member{}
	var cluster *Member
	for i := range all {
		m := &all[i]
		places = append(places, place{m.Address, m.host()})
		if m.Err == nil {
			answer++
		}
		if m.Damaged != nil {
			out.add(Error, "damaged", m.Damaged.Error()+"; what needs it fails, as do lists of locks", "find out what writes there; when nobody has that lock, "+m.ctl("del")+" of that key")
		}
		if m.ID == "" {
			continue
		}
		if first := byID[m.ID]; first != nil {
			out.add(Error, "same-server", fmt.Sprintf("%s and %s are the same member; the proxy refuses to start", first.Address, m.Address), "name another member in place of one of them")
		}
		byID[m.ID] = m
		switch {
		case cluster == nil:
			cluster = m
		case m.Cluster != cluster.Cluster:
			out.add(Error, "other-cluster", fmt.Sprintf("%s and %s are of different clusters; the proxy refuses to start", cluster.Address, m.Address), "name members of one cluster")
			continue
		}
		switch {
		case m.Leader == "":
		case leader == "":
			leader = m.Leader
		case m.Leader != leader:
			out.add(Warning, "leader", fmt.Sprintf("%s and %s name different leaders: there is an election, or the members do not reach each other", cluster.Address, m.Address), "look again; "+m.ctl("endpoint status --cluster -w table"))
		}
	}
	if need := len(all)/2 + 1; answer < need && len(all) > 1 {
		out.add(Error, "quorum", fmt.Sprintf("%d of %d members answer, and %d must agree: nobody gets a lock", answer, len(all), need), "start the others")
	}
	judgePlaces(out, places, len(all), "member")
}
