package redistest

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

func TestServer_Lifecycle(t *testing.T) {
	s := Start(t, "--databases", "3")
	s.Do(t, "SET", "a", "1")
	if v := s.Do(t, "CONFIG", "GET", "databases"); v.String() != `*[$"databases" $"3"]` {
		t.Errorf("an argument was not taken: %v", v)
	}
	s.Kill()
	if s.Running() {
		t.Fatal("killed and still running")
	}
	if _, err := Dial(s.Addr()); err == nil {
		t.Fatal("killed and still accepting")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if v := s.Do(t, "GET", "a"); !v.Null {
		t.Errorf("a restarted server remembers %v", v)
	}
	s.Close()
	if _, err := os.Stat(s.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
}

func TestServer_Pause(t *testing.T) {
	s := Start(t)
	c := Open(t, s.Addr())
	s.Pause()
	c.Send(t, "PING\r\n")
	if got, closed := c.ReadUntilQuiet(100e6); got != "" || closed {
		t.Errorf("a paused server answered %q, closed %v", got, closed)
	}
	s.Resume()
	if v := c.Read(t); v.Raw != "+PONG\r\n" {
		t.Errorf("after CONT: %v", v)
	}
}

func TestLaunch_ErrorHasTheServersLog(t *testing.T) {
	_, err := Launch("--no-such-option", "1")
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("got %v", err)
	}
}

func TestReadValue(t *testing.T) {
	tests := []struct{ raw, want string }{
		{"+OK\r\n", "+OK"},
		{"-ERR no\r\n", "-ERR no"},
		{":-1\r\n", ":-1"},
		{"$2\r\na\n\r\n", `$"a\n"`},
		{"$0\r\n\r\n", `$""`},
		{"$-1\r\n", "$-1"},
		{"*-1\r\n", "*-1"},
		{"_\r\n", "_"},
		{"*0\r\n", "*[]"},
		{"*2\r\n*1\r\n:1\r\n$1\r\nb\r\n", `*[*[:1] $"b"]`},
		{"%1\r\n+k\r\n#t\r\n", "%[+k #t]"},
		{"=5\r\ntxt:a\r\n", `="txt:a"`},
	}
	for _, tt := range tests {
		v, err := readValue(bufio.NewReader(strings.NewReader(tt.raw)))
		if err != nil || v.String() != tt.want || v.Raw != tt.raw {
			t.Errorf("%q: got %v (raw %q), error %v", tt.raw, v, v.Raw, err)
		}
	}
	for _, raw := range []string{"", "OK\r\n", "+OK\n", "$2\r\nabc\r\n", "$x\r\n", "*-2\r\n", "*1\r\n", "?\r\n"} {
		if v, err := readValue(bufio.NewReader(strings.NewReader(raw))); err == nil {
			t.Errorf("%q was read as %v", raw, v)
		}
	}
}

// TestClaim_WhateverTheDirectory: a process with a directory of its own for temporary files takes no
// ports of another's.
func TestClaim_WhateverTheDirectory(t *testing.T) {
	n := blocks + os.Getpid() // a block that no process uses
	t.Setenv("TMPDIR", t.TempDir())
	mine, err := claim(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	if again, err := claim(n); err == nil {
		again.Close()
		t.Error("two have one block")
	}
	mine.Close()
	again, err := claim(n)
	if err != nil {
		t.Fatalf("given back: %v", err)
	}
	again.Close()
}

// TestFreeAddr_WhileOthersFork: nobody listens at an address that was found free, not for a moment either.
func TestFreeAddr_WhileOthersFork(t *testing.T) {
	var forking sync.WaitGroup
	defer forking.Wait()
	stop := make(chan struct{})
	defer close(stop)
	for range 4 {
		forking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	for range 1000 {
		addr, err := FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		if accepts(addr) == nil {
			t.Fatalf("somebody listens at %s", addr)
		}
	}
}
