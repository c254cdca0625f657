package commands

import (
	"testing"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/table"
)

func TestClassOf(t *testing.T) {
	rows := table.New(allRows())
	tests := []struct{ command, want string }{
		{"get", "read"}, {"GET", "read"}, {"SET", "write"}, {"GETSET", "write"}, {"KEYS", "read"}, {"FLUSHALL", "write"},
		{"LOCK", "lock"}, {"renew", "renew"}, {"UNLOCK", "unlock"}, {"LockAll", "lock"}, {"LOCKCTL", "lockctl"},
		{"AUTH", "connection"}, {"SELECT", "connection"}, {"PING", "connection"}, {"CLIENT", "connection"},
		{"MULTI", "transaction"}, {"EXEC", "transaction"}, {"WATCH", "transaction"},
		{"BLPOP", "blocking"}, {"XREAD", "blocking"}, {"WAIT", "blocking"},
		{"EVAL", "script"}, {"FCALL", "script"}, {"PUBLISH", "pubsub"}, {"SUBSCRIBE", "pubsub"}, {"MONITOR", "pubsub"},
		{"CONFIG", "admin"}, {"ACL", "admin"}, {"INFO", "admin"}, {"DBSIZE", "read"},
		{"JSON.SET", "other"}, {"A.NAME.LONGER.THAN.ANY.OF.REDIS", "other"},
	}
	for _, tt := range tests {
		if got := rows.Lookup([][]byte{[]byte(tt.command)}).Counted().String(); got != tt.want {
			t.Errorf("%s is of class %s, want %s", tt.command, got, tt.want)
		}
	}
}

// Commands are counted once each, however they are handled, and bursts as they came.
func TestDispatcher_Report(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	p.do(t, "GET a", "GET b", "SET a 1")
	p.do(t, "LOCK x 1000 OWNER me")
	p.do(t, "LOCK")
	p.do(t, "UNLOCK x you")
	p.do(t, "NOSUCH")
	p.answered(t)
	reported := metrics.Registry{s.disp}
	for family, want := range map[string]float64{"read": 2, "write": 1, "lock": 2, "unlock": 1, "other": 1, "admin": 0} {
		if got := reported.Sample("lockproxy_commands_total", "family", family).Value; got != want {
			t.Errorf("%v commands of family %s, want %v", got, family, want)
		}
	}
	if n := reported.Sample("lockproxy_command_bursts_total").Value; n < 5 || n > 6 { // the first may open the connection between two commands
		t.Errorf("%v bursts", n)
	}
	if n := reported.Sample("lockproxy_command_errors_total", "error", "ERR").Value; n != 1 {
		t.Errorf("the proxy has said ERR %v times, want once", n)
	}
}

// Every 64th burst of commands that only read or write is timed, and none that waits.
func TestTally_TimesOneBatchOfMany(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	const timed = 64 // one of as many is
	took := func() int64 { return metrics.Registry{s.disp}.Sample("lockproxy_command_seconds").Durations.Count() }
	for range 2 * timed {
		p.do(t, "GET a", "GET b")
		p.answered(t)
	}
	if n := took(); n != 2 && n != 3 { // the first burst may have been two
		t.Errorf("%d of %d bursts were timed", n, 2*timed)
	}
	before := took()
	for range 2 * timed {
		p.do(t, "PING")
		p.answered(t)
	}
	if n := took(); n != before {
		t.Errorf("%d bursts of PING were timed", n-before)
	}
}

// answered waits until the client has all replies.
func (p *player) answered(t *testing.T) {
	t.Helper()
	if err := p.replies.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTally_AllocatesNothing(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	args := [][]byte{[]byte("GET"), []byte("a")}
	refusal := resp.AppendError(nil, "ERR no")
	n := testing.AllocsPerRun(100, func() {
		p.row(args)
		p.tally.Came()
		p.tally.EndBurst()
		p.tally.Errors.Count(refusal)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
