package commands

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands/spec"
	"github.com/lockproxy/lockproxy/commands/stats"
	"github.com/lockproxy/lockproxy/commands/table"
)

func TestTable_Lookup(t *testing.T) {
	rows := table.New(allRows())
	tests := []struct{ call, want string }{ // want is a row's name; empty: there is none
		{"GET", "get"}, {"lock", "lock"}, {"UnLock", "unlock"}, {"georadiusbymember_ro", "georadiusbymember_ro"},
		{"config", "config"}, {"CONFIG Set", "config|set"}, {"script kill", "script|kill"}, {"script nosuch", "script"},
		{"xgroup create", "xgroup"}, {"cluster nosuch", "cluster"}, {"get kill", "get"},
		{"", ""}, {strings.Repeat("A", 99), ""}, {"LOCK\x00", ""}, {"config|get", ""}, {"ft.search", ""},
	}
	for _, tt := range tests {
		args := bytes.Split([]byte(tt.call), []byte(" "))
		switch c := rows.Lookup(args); {
		case c == nil && tt.want != "", c != nil && c.Name != tt.want:
			t.Errorf("%q: %+v, want %s", tt.call, c, tt.want)
		}
	}
	for _, call := range []string{"set k", "config set"} {
		args := bytes.Fields([]byte(call))
		if n := testing.AllocsPerRun(100, func() { rows.Lookup(args) }); n != 0 {
			t.Errorf("%s: lookup allocates %v times", call, n)
		}
	}
}

// stated names what a row says of a command that must not go by a default.
func stated(c *command) (says []string) {
	for what, is := range map[string]bool{
		"fan-out": c.Cluster.FanOut != nil, "refused": c.Cluster.Refuse != nil, "cursor": c.Cluster.Cursor,
		"any node": c.Cluster.AnyNode, "run": c.Do.runInCluster != nil, "session only": c.Has(table.SessionOnly),
	} {
		if is {
			says = append(says, what)
		}
	}
	return says
}

// Every command and subcommand of Redis has a row, and one without keys says which nodes
// of a Cluster it goes to.
func TestTable_HasARowForEveryCommand(t *testing.T) {
	rows := table.New(allRows())
	for known := range spec.Builtin().All() {
		args := bytes.Split([]byte(known.Name), []byte("|"))
		c := rows.Lookup(args)
		if c == nil {
			t.Errorf("%s has no row", known.Name)
			continue
		}
		if !known.HasKeys() && len(stated(c)) == 0 && !isContainer(known.Name) {
			t.Errorf("%s has no keys, and its row does not say where it goes in a Cluster", known.Name)
		}
		if n := c.Needs(append(args, []byte("BLOCK"))); known.Flags&spec.Blocking != 0 && n != table.BlockingConn && c.Do.run == nil {
			t.Errorf("%s may block, and needs connection %d", known.Name, n)
		}
		if known.Flags&spec.PubSub != 0 && known.Flags&spec.NoScript != 0 && !c.Has(table.Messages) {
			t.Errorf("%s is answered with messages, and its row does not say so", known.Name)
		}
	}
}

// isContainer reports whether Redis has subcommands of the command.
func isContainer(name string) bool {
	for c := range spec.Builtin().All() {
		if strings.HasPrefix(c.Name, name+"|") {
			return true
		}
	}
	return false
}

// Every row is of a command that Redis has, but for the proxy's own and what is none, and
// does not contradict itself.
func TestTable_RowsAreConsistent(t *testing.T) {
	notOfRedis := strings.Fields("lock renew unlock lockall renewall unlockall lockctl post host: waitaof client|setinfo client")
	for _, c := range allRows() {
		known := spec.Builtin().Lookup(bytes.Split([]byte(c.Name), []byte("|")))
		if known == nil && !slices.Contains(notOfRedis, c.Name) {
			t.Errorf("%s is no command of Redis", c.Name)
		}
		if n := len(stated(c)); n > 1 && !slices.Contains(stated(c), "session only") {
			t.Errorf("%s says %v", c.Name, stated(c))
		}
		if c.Cluster.Split != nil && (known == nil || !known.HasKeys()) {
			t.Errorf("%s is split by keys that it does not have", c.Name)
		}
		if !strings.Contains(c.Name, "|") && c.Class == stats.Other && !c.Has(table.IsHTTP) {
			t.Errorf("%s is counted nowhere", c.Name)
		}
	}
}
