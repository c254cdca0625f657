package commands

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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
		{"a command that was not there a second ago", func() {
			k := *s.disp.discovered.Load()
			k.at = k.at.Add(-2 * rediscoverEvery)
			s.disp.discovered.Store(&k)
			for range 3 {
				p.do(t, "NONSENSE")
				p.want(t, "+OK\r\n")
			}
		}, 5},
		{"a lost connection", func() {
			on := s.disp.discovered.Load().on
			s.drop()
			<-on.Done()
			p = s.enter(t)
		}, 6},
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

// Clients that come while the upstream is asked wait for that answer.
func TestDiscover_AsksOnce(t *testing.T) {
	var asked atomic.Int32
	s := newStage(t, Options{}, tells(moduleTable, &asked))
	s.disp.discovering <- struct{}{}
	var all []*player
	var wg sync.WaitGroup
	for range 5 {
		p := s.enter(t)
		all = append(all, p)
		wg.Go(func() { p.do(t, "MOD.GET k") })
	}
	time.Sleep(calm)
	<-s.disp.discovering
	wg.Wait()
	for _, p := range all {
		p.want(t, "+OK\r\n")
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
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

// A reply that comes while a module is loaded tells the commands from before.
func TestDiscover_ForgottenMeanwhile(t *testing.T) {
	var s *stage
	var asked atomic.Int32
	s = newStage(t, Options{}, func(l *link, args []string) (string, bool) {
		if args[0] == "COMMAND" && asked.Load() == 0 {
			s.disp.forgetTable()
		}
		return tells(moduleTable, &asked)(l, args)
	})
	p := s.enter(t)
	p.do(t, "MOD.GET k", "MOD.GET k", "MOD.GET k")
	p.want(t, "+OK\r\n+OK\r\n+OK\r\n")
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want 2", n)
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
		if p.row(args).needs(args) != blockingConn {
			t.Error("MOD.WAIT is not known to block")
		}
	}); n != 0 {
		t.Errorf("row allocates %v times", n)
	}
}
