package main

import (
	"fmt"
	"strings"
)

const (
	nodes  = 3
	quorum = 2
	most   = 3 // who want the name
)

// nodesState is a state of the world of nodes. Who wants the name is 1 + its place in Kinds; 0: nobody.
type nodesState struct {
	has, intent [nodes]uint8
	said        [most][nodes]uint8 // what a node has said since the round began: 1 yes, 2 no
	granted     bool               // the first is
}

// What is done in the world of nodes: by one of most, with a node, or to end its round.
const perOwner = nodes + 1

func (c *Config) nodes() world[nodesState] {
	return world[nodesState]{
		next: c.nextAtNodes,
		done: func(s nodesState) bool { return s.granted },
		describe: func(s nodesState) string {
			var b strings.Builder
			for k := range s.has {
				fmt.Fprintf(&b, "node %d: ", k)
				if i := s.has[k]; i > 0 {
					fmt.Fprintf(&b, "%c%d has it, ", c.Kinds[i-1], i-1)
				}
				if i := s.intent[k]; i > 0 {
					fmt.Fprintf(&b, "intent of %c%d", c.Kinds[i-1], i-1)
				}
				b.WriteString(" | ")
			}
			return b.String()
		},
		name: func(action int) string {
			if i, k := action/perOwner, action%perOwner; k < nodes {
				return fmt.Sprintf("%c%d asks node %d", c.Kinds[i], i, k)
			}
			return fmt.Sprintf("%c%d gives back what it has, and begins anew", c.Kinds[action/perOwner], action/perOwner)
		},
	}
}

func (c *Config) nextAtNodes(s nodesState, out func(nodesState, int)) {
	for i := range c.Kinds {
		asks := false
		yes := 0
		for k := range s.has {
			switch s.said[i][k] {
			case 0:
				asks = true
				out(c.askNode(s, i, k), i*perOwner+k)
			case 1:
				yes++
			}
		}
		if asks {
			continue
		}
		t := s
		t.granted = yes >= quorum && i == 0
		t.said[i] = [nodes]uint8{}
		for k := range t.has {
			if t.has[k] == uint8(i+1) {
				t.has[k] = 0
			}
			if t.intent[k] == uint8(i+1) && yes >= quorum {
				t.intent[k] = 0
			}
		}
		out(t, i*perOwner+nodes)
	}
}

// askNode is a node's answer.
func (c *Config) askNode(s nodesState, i, k int) nodesState {
	me := uint8(i + 1)
	whose := s.intent[k]
	keepsOut := whose != 0 && (whose != me || !c.Own) && (whose <= me || c.Kinds[i] != 'M' || !c.Older || !c.Oldest)
	s.said[i][k] = 1
	if s.has[k] == 0 && !keepsOut {
		s.has[k] = me
		if !c.Stay && whose == me {
			s.intent[k] = 0
		}
		return s
	}
	s.said[i][k] = 2
	if c.Kinds[i] == 'M' && c.Leave && (whose == 0 || c.Older && me < whose || !c.Oldest) {
		s.intent[k] = me
	}
	return s
}
