package check

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// judgeSet finds faults between servers.
func judgeSet(all []*facts, o *Options) []Finding {
	var nodes, ups []*facts
	for _, f := range all {
		if f.node {
			nodes = append(nodes, f)
		} else {
			ups = append(ups, f)
		}
	}
	out := &findings{where: "lock nodes"}
	judgeCount(out, o)
	judgeQuorum(out, nodes, o)
	judgeMaxTTL(out, o)
	judgeDuplicates(out, nodes)
	judgeShared(out, nodes, ups, o)
	judgeMachines(out, nodes, o)
	judgeClocks(out, nodes)
	judgeRecords(out, nodes, o)
	judgeReplids(out, nodes, o)
	judgeAnnounced(out, nodes, ups, o)
	return out.list
}

// judgeAnnounced finds proxies for which a key is a lock, and others for which it is none.
func judgeAnnounced(out *findings, nodes, ups []*facts, o *Options) {
	if o.Conflicts == nil {
		return
	}
	var all []Announcement
	for _, f := range nodes {
		all = append(all, f.announced...)
	}
	if o.UpstreamVotes {
		ups = nodes
	}
	var upstream []string
	for _, f := range ups {
		for _, id := range []string{f.info["master_replid"], f.info["master_replid2"]} {
			if strings.Trim(id, "0") != "" {
				upstream = append(upstream, id)
			}
		}
	}
	for _, text := range o.Conflicts(upstream, all) {
		out.add(Error, "adoption", text+": where it is a lock, it is refused", "the same --adopt at every proxy of the upstream; one that was killed counts for a minute")
	}
}

func judgeCount(out *findings, o *Options) {
	switch n := len(o.Nodes); {
	case n == 0: // etcd keeps the locks
	case n == 1:
		out.add(Note, "number", "there is one: while it is down, or restarts, nobody gets a lock", "--lock-node three or five times, on machines of their own")
	case n%2 == 0:
		out.add(Warning, "number", fmt.Sprintf("there are %d, which survive the loss of %d, as %d would: the last one only adds a node that can fail", n, n/2-1, n-1), fmt.Sprintf("one more, or one less: %d or %d", n+1, n-1))
	}
}

// judgeQuorum finds that nobody gets a lock now. A node that forgot is a warning alone: only with others it costs the majority.
func judgeQuorum(out *findings, nodes []*facts, o *Options) {
	total, silent := len(o.Nodes), 0
	enlisted := slices.ContainsFunc(nodes, func(f *facts) bool { return f.record["id"] != "" })
	for _, f := range nodes {
		if f.err != nil || f.refused != nil || enlisted && f.recordErr == nil && !o.votesAfterLoss() && f.sitsOut() {
			silent++
		}
	}
	if most := total - silent; total > 0 && most < total/2+1 {
		out.add(Error, "no-quorum", fmt.Sprintf("at most %d of %d vote now and %d must: no lock is granted or renewed", most, total, total/2+1),
			"what is said of each node here: those that are down or refuse first, so that those that forgot can learn from them; lockproxy nodes shows how far it is")
	}
}

// longMaxTTL is a max-ttl that nobody wants to wait for.
const longMaxTTL = 10 * time.Minute

// judgeMaxTTL finds lock nodes that are too few to remember for one another.
func judgeMaxTTL(out *findings, o *Options) {
	if n := len(o.Nodes); (n == 1 || n == 2) && o.MaxTTL > longMaxTTL && !o.votesAfterLoss() {
		out.add(Warning, "long-max-ttl", fmt.Sprintf("there are fewer than three, and max-ttl is %s: after a restart of one nobody gets a lock for so long", o.MaxTTL), "three lock nodes, of which one votes again within seconds; or a smaller --max-ttl")
	}
}

// judgeReplids finds nodes that may take a new replication id at the same time, as Redis does when the last replica has been gone for
// repl-backlog-ttl. Each of them then looks as if it had forgotten, and if too few others are left to remember, none votes for max-ttl.
func judgeReplids(out *findings, nodes []*facts, o *Options) {
	var may []string
	for _, f := range nodes {
		if ttl := f.config["repl-backlog-ttl"]; ttl != "" && ttl != "0" && (number(f.info["connected_slaves"]) > 0 || f.info["repl_backlog_active"] == "1") {
			may = append(may, f.server.String())
		}
	}
	if n := len(o.Nodes); n >= 3 && len(may) > n-(n/2+1) {
		out.add(Warning, "replication-id", fmt.Sprintf("%s have replicas, or had: when these have been gone for repl-backlog-ttl, Redis takes a new replication id, and the node looks as if it had forgotten. If %d do at once, nobody gets a lock for max-ttl or twice that, %s", strings.Join(may, ", "), len(may), o.MaxTTL),
			"at each of them: redis-cli CONFIG SET repl-backlog-ttl 0; attach and detach replicas of one lock node at a time")
	}
}

// judgeDuplicates finds a server with two votes.
func judgeDuplicates(out *findings, nodes []*facts) {
	seen := map[string]*facts{}
	for _, f := range nodes {
		id := f.info["run_id"]
		if id == "" {
			continue
		}
		if first := seen[id]; first != nil {
			out.add(Error, "same-server", fmt.Sprintf("%s and %s are one server, which would have two votes; the proxy refuses to start", first.server, f.server), "name another server in place of one of them")
			continue
		}
		seen[id] = f
	}
}

// judgeShared finds a lock node that is the upstream too.
func judgeShared(out *findings, nodes, ups []*facts, o *Options) {
	const (
		hurts = "a FLUSHALL there, a slow command or memory that runs out hits the locks, and its clients can write lock records"
		fix   = "--lock-node, for instances of their own; at least deny clients the keys %s* and FLUSHALL by ACL"
	)
	if o.UpstreamVotes {
		out.add(Warning, "shared", "the upstream "+o.Upstream.String()+" is the lock node: "+hurts, fmt.Sprintf(fix, o.Prefix))
		return
	}
	for _, f := range nodes {
		same := func(u *facts) bool {
			id := f.info["run_id"]
			return id != "" && id == u.info["run_id"] || f.server.String() == u.server.String()
		}
		if slices.ContainsFunc(ups, same) {
			out.add(Warning, "shared", f.server.String()+" is the upstream too: "+hurts, fmt.Sprintf(fix, o.Prefix))
		}
	}
}

// judgeMachines finds machines whose failure leaves no quorum.
func judgeMachines(out *findings, nodes []*facts, o *Options) {
	var all []place
	for _, f := range nodes {
		all = append(all, place{f.server.String(), f.host()})
	}
	judgePlaces(out, all, len(o.Nodes), "lock node")
}

// A place is where a lock node or a member of etcd runs; host is empty if that is not known.
type place struct{ name, host string }

// judgePlaces is judgeMachines for some of so many.
func judgePlaces(out *findings, all []place, total int, kind string) {
	at := map[string][]string{}
	var hosts []string
	for _, p := range all {
		if p.host == "" {
			continue
		}
		if at[p.host] == nil {
			hosts = append(hosts, p.host)
		}
		at[p.host] = append(at[p.host], p.name)
	}
	for _, h := range hosts {
		here := len(at[h])
		if here < 2 {
			continue
		}
		says := fmt.Sprintf("%d of %d are at %s (%s): ", here, total, h, strings.Join(at[h], ", "))
		if total-here <= total/2 { // no quorum is left
			out.add(Warning, "one-machine", says+"when that goes down nobody gets a lock", "run each "+kind+" on a machine of its own")
		} else {
			out.add(Note, "one-machine", says+"they go down together", "run each "+kind+" on a machine of its own")
		}
	}
}

const (
	// clockMargin is by how much clocks may differ before scripts no longer correct for
	// it: locks.Options.Skew.
	clockMargin = time.Second
	// clockWorry is a difference that synchronised clocks do not reach.
	clockWorry = 100 * time.Millisecond
)

// judgeClocks compares the clocks of all lock nodes and this machine with their median. It
// finds only differences larger than their errors.
func judgeClocks(out *findings, nodes []*facts) {
	type reading struct {
		who           string
		ahead, within time.Duration
	}
	all := []reading{{who: "this machine's clock"}}
	for _, f := range nodes {
		if f.clockError > 0 {
			all = append(all, reading{"the clock of " + f.server.String(), f.clockAhead, f.clockError})
		}
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b reading) int { return int((a.ahead - b.ahead) / time.Microsecond) })
	middle := sorted[len(sorted)/2]
	if len(sorted) == 2 {
		middle = all[0]
	}
	for _, r := range all {
		off := r.ahead - middle.ahead
		proven := max(off, -off) - r.within - middle.within
		if r == middle || proven < clockWorry {
			continue
		}
		way := "ahead of"
		if off < 0 {
			way = "behind"
		}
		says := fmt.Sprintf("%s is %s (±%s) %s the others'", r.who, roundedDuration(max(off, -off)), roundedDuration(r.within+middle.within), way)
		if len(sorted) == 2 {
			says = fmt.Sprintf("%s is %s (±%s) %s this machine's", r.who, roundedDuration(max(off, -off)), roundedDuration(r.within), way)
		}
		const fix = "set it right by small steps (chrony or systemd-timesyncd): timedatectl set-ntp true; a step forward frees locks early"
		if proven >= clockMargin {
			out.add(Error, "clock", says+": beyond the second that is allowed for, fences may go backwards after nodes lost their memory", fix)
		} else {
			out.add(Warning, "clock", says+": nobody looks after it, and it will go further or be stepped", fix)
		}
	}
}

// addresses are the addresses of nodes, as a text.
func addresses(nodes []*facts) string {
	var all []string
	for _, f := range nodes {
		all = append(all, f.server.String())
	}
	return strings.Join(all, ", ")
}

// judgeRecords distinguishes new nodes from those that lost their memory.
func judgeRecords(out *findings, nodes []*facts, o *Options) {
	var missing []*facts
	others := false // have a record
	for _, f := range nodes {
		switch {
		case f.err != nil || f.recordErr != nil || f.record == nil:
		case f.record["id"] == "":
			missing = append(missing, f)
		default:
			others = true
		}
	}
	switch names := addresses(missing); {
	case len(missing) == 0:
	case o.UpstreamVotes && !o.Strict:
		out.add(Note, "new", "has no node record: nothing is written to the upstream before a lock is asked for", "nothing; if it was in use and has been emptied, wait for max-ttl before you ask for a lock")
	case others && o.votesAfterLoss():
		out.add(Warning, "forgot", names+": no node record, which others have, so it was emptied; the first proxy lets it vote at once", "find out what emptied it; --restart-grace safe")
	case others:
		says, fix := afterWrites(names+": no node record, which others have, so it was emptied, or is new among them; "+o.afterLoss(), "nothing; it comes in by itself while a proxy runs. Find out what emptied it", missing...)
		out.add(Warning, "forgot", says, fix)
	case o.Strict:
		out.add(Warning, "new", "none has a node record, and bootstrap is strict: they sit out max-ttl and more before anybody gets a lock", "lockproxy init, if they are new")
	default:
		out.add(Note, "new", "none has a node record: the first proxy takes them for new", "nothing, if they are; if they were in use, wait for max-ttl before you start a proxy")
	}
}
