package redistest

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
)

// Slots is the number of slots of a Cluster.
const Slots = 16384

// A Cluster is a Redis Cluster whose nodes notice within two seconds that one is
// gone. Roles change; the order of Nodes does not.
type Cluster struct {
	Nodes []*Server // the masters at the start, in the order of their slots; then the replicas of the first, of the second …

	masters, replicas int // the latter of each master
}

// StartCluster starts a Cluster with all slots spread evenly over the masters, and
// returns when every node reports it as complete. args are those of every node; the
// nodes end with the test.
func StartCluster(tb testing.TB, masters, replicasPerMaster int, args ...string) *Cluster {
	tb.Helper()
	c := &Cluster{masters: masters, replicas: replicasPerMaster}
	c.Nodes = startAll(tb, masters*(1+replicasPerMaster), func() (*Server, error) { return prepareNode(args) })
	c.form(tb)
	return c
}

// prepareNode makes an empty node without starting it.
func prepareNode(args []string) (*Server, error) {
	addr, err := freeBusAddr()
	if err != nil {
		return nil, err
	}
	base := []string{"--repl-diskless-sync-delay", "0", "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1",
		"--cluster-node-timeout", "1500", "--cluster-replica-validity-factor", "0"}
	return prepareAt(addr, append(base, args...))
}

// form joins nodes that do not know each other to one Cluster.
func (c *Cluster) form(tb testing.TB) {
	tb.Helper()
	for i, n := range c.Nodes {
		n.Do(tb, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i > 0 {
			host, port, _ := net.SplitHostPort(n.Addr())
			c.Nodes[0].Do(tb, "CLUSTER", "MEET", host, port)
		}
	}
	for i := range c.masters {
		first, last := i*Slots/c.masters, (i+1)*Slots/c.masters-1
		c.Nodes[i].Do(tb, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
	}
	await(tb, "the nodes know each other", func() error {
		for _, n := range c.Nodes {
			text := n.Do(tb, "CLUSTER", "NODES").Text
			if strings.Count(text, "\n") != len(c.Nodes) || strings.Contains(text, "handshake") {
				return fmt.Errorf("%s knows\n%s", n.Addr(), text)
			}
		}
		return nil
	})
	for i := range c.masters {
		for r := range c.replicas {
			c.Nodes[c.masters+i*c.replicas+r].Do(tb, "CLUSTER", "REPLICATE", c.ID(tb, c.Nodes[i]))
		}
	}
	c.AwaitOK(tb)
}

// URL has the addresses of all nodes, also of those that are down.
func (c *Cluster) URL() string { return urlOf(c.Nodes) }

// Shard is the master that had these slots at the start and its replicas, in the
// order of the slots, from 0.
func (c *Cluster) Shard(i int) []*Server {
	at := c.masters + i*c.replicas
	return append([]*Server{c.Nodes[i]}, c.Nodes[at:at+c.replicas]...)
}

// AwaitOK returns when all running nodes agree who serves which slot, that every
// slot is served by a running node, and every replica is in sync.
func (c *Cluster) AwaitOK(tb testing.TB) {
	tb.Helper()
	await(tb, "the cluster is ok", func() error {
		var first string
		for _, n := range c.Nodes {
			if !n.Running() {
				continue
			}
			if info := n.ask(tb, "CLUSTER", "INFO").Text; !strings.Contains(info, "cluster_state:ok") {
				return fmt.Errorf("%s says\n%s", n.Addr(), info)
			}
			if n.Role(tb) == "slave" && !n.InSync(tb) {
				return fmt.Errorf("%s is not in sync", n.Addr())
			}
			view, err := c.view(tb, n)
			if err != nil {
				return err
			}
			if first == "" {
				first = view
			}
			if view != first {
				return fmt.Errorf("%s sees\n%s\nand another\n%s", n.Addr(), view, first)
			}
		}
		return nil
	})
}

// A member is one line of CLUSTER NODES.
type member struct {
	id, addr, flags, master string
	slots                   []bool
}

// down reports whether the node cannot be used, or not yet.
func (m member) down() bool {
	return strings.Contains(m.flags, "fail") || strings.Contains(m.flags, "handshake")
}

// members are the lines of a node's CLUSTER NODES.
func (s *Server) members(tb testing.TB) (all []member) {
	tb.Helper()
	for line := range strings.Lines(s.ask(tb, "CLUSTER", "NODES").Text) {
		f := strings.Fields(line)
		addr, _, _ := strings.Cut(f[1], "@")
		m := member{id: f[0], addr: addr, flags: f[2], master: f[3], slots: make([]bool, Slots)}
		for _, span := range f[8:] {
			var first, last int
			switch n, _ := fmt.Sscanf(span, "%d-%d", &first, &last); n {
			case 0: // [slot->-node], on the move
				continue
			case 1:
				last = first
			}
			for slot := first; slot <= last; slot++ {
				m.slots[slot] = true
			}
		}
		all = append(all, m)
	}
	return all
}

// view is a node's view of slots and replicas, without nodes that are down. It is an
// error while a slot has no node, or the view is wrong about which nodes run.
func (c *Cluster) view(tb testing.TB, n *Server) (string, error) {
	tb.Helper()
	served, up := make([]string, Slots), map[string]string{}
	for _, m := range n.members(tb) {
		if m.down() {
			continue
		}
		up[m.addr] = m.master
		for slot, is := range m.slots {
			if is {
				served[slot] = m.id
			}
		}
	}
	var b strings.Builder
	for slot, id := range served {
		if id == "" {
			return "", fmt.Errorf("%s sees nobody who serves slot %d", n.Addr(), slot)
		}
		if slot == 0 || served[slot-1] != id {
			fmt.Fprintf(&b, "%d %s\n", slot, id)
		}
	}
	for _, other := range c.Nodes {
		master, seen := up[other.Addr()]
		if seen != other.Running() {
			return "", fmt.Errorf("%s sees %s up: %v", n.Addr(), other.Addr(), seen)
		}
		fmt.Fprintf(&b, "%s follows %s\n", other.Addr(), master)
	}
	return b.String(), nil
}

// ID is a node's id in the Cluster.
func (c *Cluster) ID(tb testing.TB, n *Server) string {
	tb.Helper()
	return n.ask(tb, "CLUSTER", "MYID").Text
}

// Owner is the node that claims to serve a slot; nil if none does.
func (c *Cluster) Owner(tb testing.TB, slot int) *Server {
	tb.Helper()
	for _, n := range c.Nodes {
		if n.Running() && n.serves(tb, slot) {
			return n
		}
	}
	return nil
}

// serves reports whether the node claims to be the master of the slot.
func (s *Server) serves(tb testing.TB, slot int) bool {
	tb.Helper()
	for _, m := range s.members(tb) {
		if strings.Contains(m.flags, "myself,master") && m.slots[slot] {
			return true
		}
	}
	return false
}

// SlotOf is the slot of a key, by the first node's CLUSTER KEYSLOT.
func (c *Cluster) SlotOf(tb testing.TB, key string) int {
	tb.Helper()
	for _, n := range c.Nodes {
		if n.Running() {
			return int(n.ask(tb, "CLUSTER", "KEYSLOT", key).Int())
		}
	}
	tb.Fatal("no node is running")
	return 0
}

// A Move is a slot on its way from one master to another. Until Finish, the old master
// replies with ASK for a key that has moved, and the new one with TRYAGAIN or null for
// one that has not.
type Move struct {
	c        *Cluster
	Slot     int
	From, To *Server
}

// StartMove marks a slot as migrating and importing, and moves no key yet.
func (c *Cluster) StartMove(tb testing.TB, slot int, to *Server) *Move {
	tb.Helper()
	m := &Move{c: c, Slot: slot, From: c.Owner(tb, slot), To: to}
	if m.From == nil || m.From == to {
		tb.Fatalf("slot %d cannot move to %s", slot, to.Addr())
	}
	to.Do(tb, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", c.ID(tb, m.From))
	m.From.Do(tb, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", c.ID(tb, to))
	return m
}

// MoveKeys moves these keys of the slot, and returns how many there were.
func (m *Move) MoveKeys(tb testing.TB, keys ...string) int {
	tb.Helper()
	if len(keys) == 0 {
		return 0
	}
	host, port, _ := net.SplitHostPort(m.To.Addr())
	m.From.Do(tb, append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, keys...)...)
	return len(keys)
}

// MoveSome moves up to n keys of the slot, and returns how many there were.
func (m *Move) MoveSome(tb testing.TB, n int) int {
	tb.Helper()
	var keys []string
	for _, k := range m.From.Do(tb, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.Slot), strconv.Itoa(n)).Elems {
		keys = append(keys, k.Text)
	}
	return m.MoveKeys(tb, keys...)
}

// Finish moves the other keys and assigns the slot: at the new master first, then at
// the old one, then at the rest.
func (m *Move) Finish(tb testing.TB) {
	tb.Helper()
	for m.MoveSome(tb, 100) > 0 {
	}
	nodes := append([]*Server{m.To, m.From}, m.c.Nodes...)
	id := m.c.ID(tb, m.To)
	for i, n := range nodes {
		if n.Running() && (i < 2 || n != m.To && n != m.From && n.Role(tb) == "master") {
			n.Do(tb, "CLUSTER", "SETSLOT", strconv.Itoa(m.Slot), "NODE", id)
		}
	}
}

// MoveSlot moves a slot with its keys.
func (c *Cluster) MoveSlot(tb testing.TB, slot int, to *Server) {
	tb.Helper()
	c.StartMove(tb, slot, to).Finish(tb)
}

// Failover makes a replica of a shard its master, coordinated with the old one, and
// returns it when all nodes know.
func (c *Cluster) Failover(tb testing.TB, shard int) *Server {
	tb.Helper()
	for _, n := range c.Shard(shard) {
		if n.Running() && n.Role(tb) == "slave" {
			n.Do(tb, "CLUSTER", "FAILOVER")
			await(tb, n.Addr()+" is the master", func() error {
				if role := n.Role(tb); role != "master" {
					return errors.New(role)
				}
				return nil
			})
			c.AwaitOK(tb)
			return n
		}
	}
	tb.Fatalf("shard %d has no replica", shard)
	return nil
}
