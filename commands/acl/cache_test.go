package acl

import "testing"

func TestIsAllPowerful_ByVersion(t *testing.T) {
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

// TestCache_DecisionIsPerUser: what the upstream says of one client counts for no other user,
// database or name, nor for anybody's connection where a client may be somebody else.
func TestCache_DecisionIsPerUser(t *testing.T) {
	c := NewCache(func() bool { return false })
	var a Asker
	seen := map[*decision]string{}
	wantNew := func(what string, name ...string) {
		t.Helper()
		d := c.decision(&a, name...)
		if before, ok := seen[d]; ok {
			t.Errorf("%s shares the decision of %s", what, before)
		}
		if d != c.decision(&a, name...) {
			t.Errorf("%s is asked again each time", what)
		}
		seen[d] = what
	}
	wantNew("default")
	wantNew("a name", "ab")
	wantNew("no name", "")
	a.Identity.User, a.Identity.Secret = "u", "ser"
	wantNew("a user")
	a.Identity.User, a.Identity.Secret = "us", "er"
	wantNew("another user")
	wantNew("another user's name", "ab")
	a.Identity.DB = 3
	wantNew("another database")
	a.Own = 1
	wantNew("its own connection")
}
