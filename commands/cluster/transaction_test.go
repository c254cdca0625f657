package cluster

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// TestRouter_Queue: a transaction is on the node of its first key, and moves there if nothing is
// in the way.
func TestRouter_Queue(t *testing.T) {
	rt := &Router{view: &upstream.View{}} // whose master of any slot is nil
	here, elsewhere := (*upstream.Pool)(nil), &upstream.Pool{}
	tests := []struct {
		name    string
		command string
		route   Route
		at      *upstream.Pool
		placed  bool // at slot 1
		watched bool
		want    string // the beginning of the refusal; or moves, placed, queued
	}{
		{"first key here", "GET k", Route{Kind: OneNode, Slot: 1}, here, false, false, "placed"},
		{"first key elsewhere", "GET k", Route{Kind: OneNode, Slot: 1}, elsewhere, false, false, "moves"},
		{"first key elsewhere than what is watched", "GET k", Route{Kind: OneNode, Slot: 1}, elsewhere, false, true, "-CROSSSLOT"},
		{"the same slot again", "GET k", Route{Kind: OneNode, Slot: 1}, here, true, false, "placed"},
		{"the same slot again, which has moved", "GET k", Route{Kind: OneNode, Slot: 1}, elsewhere, true, true, "placed"},
		{"another slot of the same node", "GET k", Route{Kind: OneNode, Slot: 2}, here, true, false, "-CROSSSLOT"},
		{"keys of several slots", "DEL k l", Route{Kind: SeveralSlots}, here, false, false, "-CROSSSLOT"},
		{"slot of no node", "GET k", Route{Kind: SlotUncovered, Answer: "-CLUSTERDOWN"}, here, false, false, "-CLUSTERDOWN"},
		{"keys nobody knows", "SORT k BY x", Route{Kind: UnknownKeys}, here, false, false, "-ERR SORT: the proxy cannot tell"},
		{"asks all nodes", "DBSIZE", Route{Kind: AllMasters}, here, false, false, "-ERR DBSIZE: a transaction is executed by one node"},
		{"asks all nodes, in a way that is refused anyway", "DBSIZE x", Route{Kind: AllMasters}, here, false, false, "queued"},
		{"about one node", "READONLY", Route{Kind: Refused, Answer: "-ERR not here"}, here, false, false, "-ERR not here"},
		{"no keys", "PING", Route{}, elsewhere, false, false, "queued"},
		{"no keys, behind some", "PING", Route{}, here, true, false, "placed"},
		{"unknown", "NO-SUCH", Route{}, here, false, false, "queued"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var args [][]byte
			for _, word := range strings.Fields(tt.command) {
				args = append(args, []byte(word))
			}
			at := Transaction{placed: tt.placed, slot: 1}
			got, moves := rt.Queue(&at, tt.route, spec.Builtin().Lookup(args), args, tt.at, tt.watched)
			switch {
			case got != "":
			case moves:
				got = "moves"
			case at.Placed():
				got = "placed"
			default:
				got = "queued"
			}
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("%q, not %q", got, tt.want)
			}
		})
	}
}

// TestTransaction_Keep: what was sent is kept until the node is known, or the end.
func TestTransaction_Keep(t *testing.T) {
	var at Transaction
	raw := []byte("PING\r\n")
	at.Keep(raw)
	if raw[0] = 'X'; len(at.sent) != 1 || string(at.sent[0]) != "PING\r\n" {
		t.Fatalf("kept %q", at.sent)
	}
	if at.Ended(); len(at.sent) != 0 {
		t.Errorf("ended, it has kept %q", at.sent)
	}
	at.placed = true
	if at.Keep(raw); len(at.sent) != 0 {
		t.Errorf("placed, it has kept %q", at.sent)
	}
}
