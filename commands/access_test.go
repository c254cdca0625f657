package commands

import "testing"

func TestIsAllPowerful(t *testing.T) {
	const seven = "*6\r\n$5\r\nflags\r\n*1\r\n$2\r\non\r\n$8\r\ncommands\r\n$5\r\n+@all\r\n$4\r\nkeys\r\n$2\r\n~*\r\n"
	tests := []struct {
		reply string
		want  bool
	}{
		{seven, true},
		{"%3" + seven[2:], true},
		{"*4\r\n$8\r\ncommands\r\n$5\r\n+@all\r\n$4\r\nkeys\r\n*1\r\n$1\r\n*\r\n", true}, // of Redis 6
		{"*4\r\n$8\r\ncommands\r\n$5\r\n-@all\r\n$4\r\nkeys\r\n$2\r\n~*\r\n", false},
		{"*4\r\n$8\r\ncommands\r\n$10\r\n+@all -set\r\n$4\r\nkeys\r\n$2\r\n~*\r\n", false},
		{"*4\r\n$8\r\ncommands\r\n$5\r\n+@all\r\n$4\r\nkeys\r\n$4\r\n~a:*\r\n", false},
		{"*4\r\n$8\r\ncommands\r\n$5\r\n+@all\r\n$4\r\nkeys\r\n$4\r\n%R~*\r\n", false},
		{"*4\r\n$8\r\ncommands\r\n$5\r\n+@all\r\n$4\r\nkeys\r\n*2\r\n$1\r\na\r\n$1\r\n*\r\n", false},
		{"*2\r\n$8\r\ncommands\r\n$5\r\n+@all\r\n", false},
		{"*-1\r\n", false},
		{"-NOPERM this user has no permissions to run the 'acl|getuser' command\r\n", false},
		{"", false},
	}
	for _, tt := range tests {
		if got := isAllPowerful([]byte(tt.reply)); got != tt.want {
			t.Errorf("%q: %v", tt.reply, got)
		}
	}
}

// TestAccessOfOthers: what the upstream says of one client counts for no other user,
// database or name, nor for anybody's connection where a client may be somebody else.
func TestAccessOfOthers(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	a := p.d.access
	seen := map[*word]string{}
	fresh := func(what string, name ...string) {
		t.Helper()
		w := a.about(p.Session, name...)
		if before, ok := seen[w]; ok {
			t.Errorf("%s shares the word of %s", what, before)
		}
		if w != a.about(p.Session, name...) {
			t.Errorf("%s is asked again each time", what)
		}
		seen[w] = what
	}
	fresh("default")
	fresh("a name", "ab")
	fresh("no name", "")
	p.id.User, p.id.Secret = "u", "ser"
	fresh("a user")
	p.id.User, p.id.Secret = "us", "er"
	fresh("another user")
	fresh("another user's name", "ab")
	p.id.DB = 3
	fresh("another database")
	p.sticky = true
	fresh("its own connection")
}
