package vote

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
)

// format is that of the records on the nodes. Proxies of another format do not understand them.
const format = "4"

// A NodeList is one proxy's list of lock nodes as the scripts know it, see ARGV[4] in prologue.lua. Two
// proxies have the same if they name the same nodes, in any order.
type NodeList struct {
	Fingerprint string // for comparing
	Names       string // for reading
}

// NewList is the list of these nodes. A node alone needs no name: the proxies that ask it
// and no other have one list, whatever they call it.
func NewList(nodes []*backends.Server, grace string) NodeList {
	ids := identities(nodes)
	text := strings.Join(ids, " ")
	named := text
	if len(ids) == 1 {
		named = "alone"
	}
	sum := sha256.Sum256([]byte(named))
	return NodeList{Fingerprint: format + " " + grace + " " + hex.EncodeToString(sum[:8]), Names: text}
}

// Same reports whether two lists name the same nodes. prologue.lua has the same function.
func (l NodeList) Same(m NodeList) bool {
	a, b := strings.Fields(l.Fingerprint), strings.Fields(m.Fingerprint)
	return len(a) == 3 && len(b) == 3 && a[0] == b[0] && a[2] == b[2]
}

// identities are the names of the nodes, sorted. Masters that several sets of sentinels know by one name are
// told apart by the sentinels' addresses.
func identities(nodes []*backends.Server) []string {
	count := map[string]int{}
	for _, n := range nodes {
		count[n.ID()]++
	}
	var ids []string
	for _, n := range nodes {
		id := n.ID()
		if count[id] > 1 {
			id = strings.ReplaceAll(n.String(), " ", ",")
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// A NodeSet is the set of lock nodes that a node is in, as its record says.
type NodeSet struct {
	Epoch int64    // how often an operator changed the set
	Now   NodeList // the list of proxies
	Next  NodeList // the list that proxies are changing to; zero: none
}

// Args are the arguments of the scripts that take a set.
func (n *NodeSet) Args() []string {
	return []string{strconv.FormatInt(n.Epoch, 10), n.Now.Fingerprint, n.Now.Names, n.Next.Fingerprint, n.Next.Names}
}

// parseSet reads {epoch, fingerprint, names, next fingerprint, next names}.
func parseSet(m []rueidis.RedisMessage) (*NodeSet, error) {
	var n NodeSet
	if len(m) < 5 {
		return nil, errors.New("no set of lock nodes")
	}
	return &n, cmp.Or(ReadInts(m, &n.Epoch), ReadText(m[1], &n.Now.Fingerprint), ReadText(m[2], &n.Now.Names), ReadText(m[3], &n.Next.Fingerprint), ReadText(m[4], &n.Next.Names))
}

// An OtherSetError reports that a node is in another set of lock nodes than the proxy's.
type OtherSetError struct{ Theirs, Ours string }

func (e *OtherSetError) Error() string {
	return fmt.Sprintf("is one of other lock nodes (%s) than this proxy has (%s): give all proxies one list, with the same names or id=, and change it with lockproxy nodes",
		strings.Join(strings.Fields(e.Theirs), " "), e.Ours)
}
