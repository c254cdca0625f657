package commands

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/spec"
	"github.com/lockproxy/lockproxy/commands/table"
)

// moduleTable is a reply to COMMAND, where a module brings MOD.WAIT and MOD.GET.
const moduleTable = "*2\r\n" +
	"*6\r\n$8\r\nmod.wait\r\n:-1\r\n*2\r\n+blocking\r\n+module\r\n:0\r\n:0\r\n:0\r\n" +
	"*6\r\n$7\r\nmod.get\r\n:2\r\n*2\r\n+readonly\r\n+module\r\n:1\r\n:1\r\n:1\r\n"

// tells answers COMMAND with reply, and counts how often in asked.
func tells(reply string, asked *atomic.Int32) func(*link, []string) (string, bool) {
	return func(_ *link, args []string) (string, bool) {
		switch strings.ToUpper(args[0]) {
		case "COMMAND":
			asked.Add(1)
			return reply, true
		case "MOD.WAIT":
			return "", true
		}
		return "", false
	}
}

// learn has a table of commands known, as if it had come on a connection.
func (s *stage) learn(t *testing.T, table string, on *upstream.Conn) {
	t.Helper()
	err := s.disp.discovery.Learn(t.Context(), words("NOSUCH"), func() ([]byte, spec.Source) { return []byte(table), on })
	if err != nil {
		t.Fatal(err)
	}
}

func TestDiscover_BlockingModuleCommandIsPinned(t *testing.T) {
	var asked atomic.Int32
	s := newStage(t, Options{}, tells(moduleTable, &asked))
	a, b := s.enter(t), s.enter(t)
	a.do(t, "Mod.Wait")
	waits := s.await(t, "Mod.Wait")
	b.do(t, "MOD.GET k", "GET k")
	b.want(t, "+OK\r\n$1\r\nk\r\n")
	if s.await(t, "GET k") == waits {
		t.Error("another client's command waits behind it")
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the upstream was asked %d times for its commands", n)
	}
}

// The upstream is asked for nobody who uses what every Redis has.
func TestDiscover_AsksWhenNeeded(t *testing.T) {
	var asked atomic.Int32
	s := newStage(t, Options{}, tells(moduleTable, &asked))
	p := s.enter(t)
	p.do(t, "GET k", "GEORADIUSBYMEMBER_RO k", "MULTI", "SET a b", "EXEC", "MODULE LIST")
	p.want(t, "$1\r\nk\r\n+OK\r\n+OK\r\n+OK\r\n*0\r\n+OK\r\n")
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
	for _, tt := range []struct {
		what   string
		happen func()
		want   int32
	}{
		{"a module's command", func() {}, 1},
		{"another", func() {}, 1},
		{"MODULE LOAD", func() { p.do(t, "module load x"); p.want(t, "+OK\r\n") }, 2},
		{"MODULE LOADEX", func() { p.do(t, "MODULE loadex x"); p.want(t, "+OK\r\n") }, 3},
		{"MODULE UNLOAD", func() { p.do(t, "MODULE UNLOAD x"); p.want(t, "+OK\r\n") }, 4},
		{"a lost connection", func() {
			on := p.shared[upstream.MainClass]
			s.drop()
			<-on.Done()
			p = s.enter(t)
		}, 5},
	} {
		tt.happen()
		for range 3 {
			p.do(t, "MOD.GET k")
			p.want(t, "+OK\r\n")
		}
		if n := asked.Load(); n != tt.want {
			t.Errorf("after %s: asked %d times, want %d", tt.what, n, tt.want)
		}
	}
}

// A client whose user may not see the commands is served all the same, asks once, and
// keeps nobody else from learning them.
func TestDiscover_RefusedByUpstream(t *testing.T) {
	for _, reply := range []string{"-NOPERM no\r\n", "+OK\r\n", "*1\r\n+x\r\n"} {
		var asked atomic.Int32
		var friendly atomic.Bool
		s := newStage(t, Options{}, func(l *link, args []string) (string, bool) {
			if friendly.Load() {
				return tells(moduleTable, &asked)(l, args)
			}
			return tells(reply, &asked)(l, args)
		})
		a := s.enter(t)
		for range 3 {
			a.do(t, "MOD.GET k")
			a.want(t, "+OK\r\n")
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%q: asked %d times", reply, n)
		}
		friendly.Store(true)
		b := s.enter(t)
		b.do(t, "MOD.WAIT")
		if s.await(t, "MOD.WAIT") == s.await(t, "MOD.GET k") {
			t.Errorf("%q: nobody else learnt what blocks", reply)
		}
	}
}

// What cannot be told now is asked for again.
func TestDiscover_BusyUpstream(t *testing.T) {
	var asked atomic.Int32
	s := newStage(t, Options{}, tells("-BUSY Redis is busy running a script.\r\n", &asked))
	p := s.enter(t)
	for range 3 {
		p.do(t, "MOD.GET k")
		p.want(t, "+OK\r\n")
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
}

// In a transaction nothing blocks, and what a module brings has its place.
func TestDiscover_InTransaction(t *testing.T) {
	var asked atomic.Int32
	s := newStage(t, Options{}, tells(moduleTable, &asked))
	p := s.enter(t)
	p.do(t, "MULTI", "MOD.GET k", "EXEC")
	p.want(t, "+OK\r\n+OK\r\n*0\r\n")
	if s.await(t, "MOD.GET k") != s.await(t, "MULTI") {
		t.Error("queued elsewhere")
	}
}

func TestRow_ModuleCommandAllocatesNothing(t *testing.T) {
	var asked atomic.Int32
	s := newStage(t, Options{}, tells(moduleTable, &asked))
	p := s.enter(t)
	p.do(t, "MOD.GET k")
	p.want(t, "+OK\r\n")
	args := bytes.Fields([]byte("Mod.Wait k"))
	if n := testing.AllocsPerRun(100, func() {
		if p.row(args).Needs(args) != table.BlockingConn {
			t.Error("MOD.WAIT is not known to block")
		}
	}); n != 0 {
		t.Errorf("row allocates %v times", n)
	}
}
