package commands

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// queueingUpstream is clientUpstream with transactions. EXEC has the reply of each command in
// turn, of a SUBSCRIBE of several channels more than one; SSUBSCRIBE is refused there.
func queueingUpstream() func(l *link, args []string) (string, bool) {
	plain := clientUpstream()
	queued := map[*link][][]string{} // by who is inside MULTI
	answer := func(l *link, args []string) (text string) {
		if strings.HasPrefix(strings.Join(args, " "), "CLIENT LIST ") {
			return "$8\r\nfiltered\r\n"
		}
		switch args[0] {
		case "SSUBSCRIBE":
			return "-ERR SSUBSCRIBE isn't allowed\r\n"
		case "SUBSCRIBE":
			for i, name := range args[1:] {
				text += fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(name), name, i+1)
			}
			return text
		}
		if text, mine := plain(l, args); mine {
			return text
		}
		return plainAnswer(l, args)
	}
	var mu sync.Mutex
	return func(l *link, args []string) (text string, mine bool) {
		mu.Lock()
		defer mu.Unlock()
		switch q, in := queued[l]; {
		case args[0] == "ABORT": // an error, for which EXEC is refused
			queued[l] = append(queued[l], args)
			return "-ERR unknown command\r\n", true
		case args[0] == "MULTI":
			queued[l] = [][]string{}
			return "+OK\r\n", true
		case !in:
			return answer(l, args), true
		case args[0] == "DISCARD":
			delete(queued, l)
			return "+OK\r\n", true
		case args[0] == "EXEC":
			delete(queued, l)
			if slices.ContainsFunc(q, func(args []string) bool { return args[0] == "ABORT" }) {
				return "-EXECABORT Transaction discarded\r\n", true
			}
			text = fmt.Sprintf("*%d\r\n", len(q))
			for _, args := range q {
				text += answer(l, args)
			}
			return text, true
		}
		queued[l] = append(queued[l], args)
		return "+QUEUED\r\n", true
	}
}

// subscribed is the confirmation of the nth subscription.
func subscribed(channel string, n int) string {
	return fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(channel), channel, n)
}

const shardRefused = "-ERR SSUBSCRIBE isn't allowed\r\n"

// TestExecMessages_Rewrites: a transaction with a subscription has the answers about clients that
// any other has, and those of the upstream only where it is not known which they are.
func TestExecMessages_Rewrites(t *testing.T) {
	for _, tt := range []struct{ queued, want string }{
		{"CLIENT LIST TYPE master; SSUBSCRIBE s", "*2\r\n$0\r\n\r\n" + shardRefused},
		{"SSUBSCRIBE s; CLIENT LIST TYPE master", "*2\r\n" + shardRefused + "$0\r\n\r\n"},
		{"CLIENT LIST TYPE master; SUBSCRIBE c; CLIENT ID", "*3\r\n$0\r\n\r\n" + subscribed("c", 1) + ":2\r\n"},
		{"GET k; CLIENT ID; SUBSCRIBE c", "*3\r\n$1\r\nk\r\n:2\r\n" + subscribed("c", 1)},
		{"CLIENT ID; MONITOR; CLIENT ID", "*3\r\n:2\r\n+OK\r\n:2\r\n"},
		{"CLIENT ID; SUBSCRIBE c d; GET k", "*3\r\n:2\r\n" + subscribed("c", 1) + subscribed("d", 2) + "$1\r\nk\r\n"},
		{"CLIENT ID; SUBSCRIBE c d; CLIENT LIST TYPE master", "*3\r\n:2\r\n" + subscribed("c", 1) + subscribed("d", 2) + "$8\r\nfiltered\r\n"},
		{"SUBSCRIBE c d; HELLO 2; SSUBSCRIBE s", "*3\r\n" + subscribed("c", 1) + subscribed("d", 2) + "*4\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:101\r\n" + shardRefused},
	} {
		s := newStage(t, Options{}, queueingUpstream())
		s.enter(t)
		p := s.enter(t) // number 2, by the connection 101 or later at the upstream
		p.do(t, append([]string{"MULTI"}, strings.Split(tt.queued, "; ")...)...)
		p.want(t, "+OK\r\n"+strings.Repeat("+QUEUED\r\n", strings.Count(tt.queued, ";")+1))
		p.do(t, "EXEC", "GET after")
		p.want(t, tt.want+"$5\r\nafter\r\n")
	}
}

// TestExecMessages_Changes: what else was queued takes effect, and a subscription counts if it was executed and not refused.
func TestExecMessages_Changes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before []string
		locks  string // what LOCK says, empty: it is refused
	}{
		{"subscribed", []string{"MULTI", "SELECT 3", "SUBSCRIBE c", "EXEC"}, ""},
		{"discarded", []string{"MULTI", "SELECT 3", "SUBSCRIBE c", "DISCARD"}, "lock 0/a"},
		{"refused", []string{"MULTI", "SELECT 3", "SSUBSCRIBE s", "EXEC"}, "lock 3/a"},
		{"only a monitor", []string{"MULTI", "MONITOR", "SELECT 3", "EXEC"}, "lock 3/a"},
		{"taken back", []string{"MULTI", "SELECT 3", "SUBSCRIBE c", "UNSUBSCRIBE c", "EXEC"}, "lock 3/a"},
		{"not executed", []string{"MULTI", "SELECT 3", "SUBSCRIBE c", "ABORT", "EXEC"}, "lock 0/a"},
		{"no transaction", []string{"MULTI", "SUBSCRIBE c", "EXEC"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := queueingUpstream()
			s := newStage(t, Options{}, func(l *link, args []string) (string, bool) {
				if tt.name == "no transaction" && args[0] == "MULTI" {
					return "-NOPERM no\r\n", true
				}
				return up(l, args)
			})
			p := s.enter(t)
			p.do(t, tt.before...)
			p.do(t, "LOCK a 1000", "ECHO end")
			p.until(t, "the end", func() bool { return strings.HasSuffix(p.text, "$3\r\nend\r\n") })
			asked := s.votes.list()
			if tt.locks == "" && (asked != "" || !strings.Contains(p.text, "-ERR Can't execute 'lock'")) || !strings.HasPrefix(asked, tt.locks) {
				t.Errorf("LOCK asked %q, want %q; the client got %q", asked, tt.locks, p.text)
			}
		})
	}
}
