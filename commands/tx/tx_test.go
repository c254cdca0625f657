package tx

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// TestState: what is sent says where commands travel, what is answered decides.
func TestState(t *testing.T) {
	db := 7
	tests := []struct {
		name      string
		begin     string // the answer to MULTI
		end       string // the answer to EXEC, with one command queued; empty: it was not sent
		in        bool
		db, watch bool // taken over, kept
	}{
		{"begun", "+OK", "", true, false, false},
		{"begin refused", "-ERR MULTI calls can not be nested", "", false, false, false},
		{"executed", "+OK", "*1\r\n+OK", false, true, false},
		{"keys had changed", "+OK", "$-1", false, false, false},
		{"keys had changed, RESP3", "+OK", "_", false, false, false},
		{"discarded", "+OK", "+OK", false, false, false},
		{"aborted", "+OK", "-EXECABORT Transaction discarded", false, false, false},
		{"its node no longer serves the key", "+OK", "-MOVED 1 host:1", false, false, false},
		{"may not end it", "+OK", "-NOPERM no permissions", true, false, true},
		{"may neither begin nor end it", "-NOPERM no permissions", "-NOPERM no permissions", false, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s State
			begun := s.Begin()
			s.Add(Changes{DB: &db})
			if !s.In || !s.Unsure || s.Len() != 1 {
				t.Fatalf("sent MULTI and a command: in %v, unsure %v, length %d", s.In, s.Unsure, s.Len())
			}
			ended := func([]byte) {}
			if tt.end != "" {
				if ended = s.End(true); s.In || s.Len() != 0 {
					t.Fatalf("sent EXEC: in %v, length %d", s.In, s.Len())
				}
			}
			begun([]byte(tt.begin + "\r\n"))
			if tt.end != "" {
				ended([]byte(tt.end + "\r\n"))
			}
			if over := !tt.in && !tt.watch; s.Over() != over {
				t.Errorf("all is answered: over %v", s.Over())
			}
			c := s.Resolve()
			if s.Selects != (s.In && tt.end == "") || !s.In && s.Len() > 0 {
				t.Errorf("selects %v, %d queued", s.Selects, s.Len())
			}
			if s.In != tt.in || s.Unsure || (c.DB != nil) != tt.db || c.Watches != tt.watch {
				t.Errorf("in %v, unsure %v, changed %+v", s.In, s.Unsure, c)
			}
			if again := s.Resolve(); again.DB != nil || again.Watches {
				t.Errorf("resolved again, it has changed %+v", again)
			}
		})
	}
}

// TestState_Queue: a transaction that is begun anew elsewhere has what was queued, and one whose
// connection has ended has nothing.
func TestState_Queue(t *testing.T) {
	db := 7
	var s State
	s.Begin()([]byte("+OK\r\n"))
	if s.Add(Changes{DB: &db}); !s.Selects {
		t.Error("a SELECT is queued, and it does not say so")
	}
	s.RewriteLast(func(reply []byte) ([]byte, bool) { return []byte(":1\r\n"), true })
	s.Add(Changes{ID: &upstream.Identity{User: "ann"}, Name: []byte("worker"), PinnedForLife: true})
	s.RewriteLast(func(reply []byte) ([]byte, bool) { return []byte(":2\r\n"), false })
	s.Add(Changes{})
	queue := s.Queue()
	if s.Forget(); s.In || s.Unsure || s.Selects || s.Len() != 0 || s.RewriteExec() != nil || !s.Over() {
		t.Fatalf("forgotten: in %v, unsure %v, selects %v, length %d, over %v", s.In, s.Unsure, s.Selects, s.Len(), s.Over())
	}
	s.Resume(queue)
	if !s.In || !s.Unsure || !s.Selects || s.Len() != 3 || s.Over() {
		t.Fatalf("resumed: in %v, unsure %v, selects %v, length %d, over %v", s.In, s.Unsure, s.Selects, s.Len(), s.Over())
	}
	rewrite := s.RewriteExec()
	for reply, want := range map[string]string{
		"*3\r\n+a\r\n+b\r\n+c\r\n": "*3\r\n:1\r\n:2\r\n+c\r\n",
		"*1\r\n+a\r\n":             "*1\r\n+a\r\n",
		"-EXECABORT discarded\r\n": "-EXECABORT discarded\r\n",
	} {
		got, last := rewrite([]byte(reply))
		if string(got) != want || last != strings.Contains(want, ":2") {
			t.Errorf("%q became %q, last %v", reply, got, last)
		}
	}
	s.End(false)(resp.AppendElements(nil, '*', [][]byte{[]byte("+a\r\n"), []byte("+b\r\n")}))
	if c := s.Resolve(); s.In || c.DB == nil || *c.DB != db || c.ID.User != "ann" || string(c.Name) != "worker" || !c.PinnedForLife {
		t.Errorf("executed: in %v, changed %+v", s.In, c)
	}
}

// TestState_Over: a transaction is over when all is answered, unless what it has changed stays on the connection.
func TestState_Over(t *testing.T) {
	var s State
	begun := s.Begin()
	ended := s.End(false)
	if begun([]byte("+OK\r\n")); s.Over() {
		t.Error("it is over before EXEC is answered")
	}
	begun = s.Begin()
	if ended([]byte("*0\r\n")); s.Over() {
		t.Error("it is over though another MULTI was sent")
	}
	begun([]byte("+OK\r\n"))
	s.Add(Changes{PinnedForLife: true})
	if s.End(false)([]byte("*1\r\n+OK\r\n")); s.Over() {
		t.Error("it is over though it has changed the connection")
	}
	begun = s.Begin()
	s.Forget()
	if begun([]byte("+OK\r\n")); !s.Over() {
		t.Error("an answer on the connection before counts")
	}
}

// TestState_Refused: what the upstream refuses changes nothing that was before.
func TestState_Refused(t *testing.T) {
	const refused = "-NOPERM no permissions\r\n"
	var s State
	begun, nested := s.Begin(), s.Begin()
	begun([]byte("+OK\r\n"))
	nested([]byte("-ERR MULTI calls can not be nested\r\n"))
	if s.Resolve(); !s.In {
		t.Error("a nested MULTI ends the transaction")
	}
	first, second := s.End(true), s.End(false)
	first([]byte(refused))
	second([]byte(refused))
	if c := s.Resolve(); !c.Watches {
		t.Error("a second EXEC that is refused ends WATCH")
	}
}

// TestMessages: of a queued command that may have several replies the place of the next one's in EXEC's is not known.
func TestMessages(t *testing.T) {
	for command, known := range map[string]bool{"SUBSCRIBE a": true, "SUBSCRIBE a b": false, "UNSUBSCRIBE": false, "MONITOR": true} {
		var s State
		s.Begin()
		if s.Add(Changes{}); s.HasMessages() || !s.PlaceKnown() {
			t.Error("a plain command has messages")
		}
		s.Add(Changes{Messages: []*Messages{{Args: words(command)}}})
		if !s.HasMessages() || s.PlaceKnown() != known {
			t.Errorf("%s: has messages %v, place known %v", command, s.HasMessages(), s.PlaceKnown())
		}
		ended := s.End(false)
		if ended([]byte("*2\r\n+a\r\n+b\r\n")); len(s.Resolve().Messages) != 1 {
			t.Errorf("%s has not begun with EXEC", command)
		}
	}
}

// TestStateful: a connection has state for certain, or until the transaction on it is over.
func TestStateful(t *testing.T) {
	var over, open State
	open.Begin()
	c := new(upstream.Conn)
	tests := []struct {
		certain, unsure bool
		over, open      bool // whether it has state with either
	}{
		{true, false, true, true},
		{false, true, false, true},
		{true, true, true, true},
		{false, false, false, false},
		{false, true, false, true},
		{false, false, false, false},
	}
	var s Stateful
	for _, tt := range tests {
		s.Set(c, tt.certain, tt.unsure)
		if whenOver, whenOpen := s.Conn(&over) == c, s.Conn(&open) == c; whenOver != tt.over || whenOpen != tt.open {
			t.Errorf("%+v: %v when it is over, %v before", tt, whenOver, whenOpen)
		}
	}
}
