package commands

import "testing"

// TestACL_QuestionsByVersion: what a LOCK of two names asks an upstream, and whether it is had.
func TestACL_QuestionsByVersion(t *testing.T) {
	const (
		unknown = "-ERR unknown command `X`, with args beginning with: \r\n"
		noPerm  = "-NOPERM this user has no permissions to run the 'acl' command or its subcommand\r\n"
		granted = "*4\r\n:1\r\n$2\r\nme\r\n:30000\r\n:1\r\n"
	)
	tests := []struct {
		name           string
		acl, hello     string // replies
		set            string
		want           string
		asked, forName int
	}{
		{"before ACLs", unknown, unknown, "", granted, 1, 0},
		{"with ACL hidden, allowed", unknown, "*0\r\n", "-ERR syntax error\r\n", granted, 1, 1},
		{"with ACL hidden, refused", unknown, "*0\r\n", "-NOPERM no\r\n", "-NOPERM no\r\n", 1, 1},
		{"of whom ACL is kept", noPerm, "", "-MOVED 1 127.0.0.1:1\r\n", granted, 1, 1},
		{"of who became nobody", noPerm, "", "-NOAUTH no\r\n", "-NOAUTH no\r\n", 1, 1},
		{"while it is busy", "-BUSY Redis is busy\r\n", "", "-BUSY Redis is busy\r\n", granted, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
				replies := map[string]string{"ACL": tt.acl, "HELLO": tt.hello, "SET": tt.set}
				reply, mine := replies[args[0]]
				return reply, mine
			})
			p := s.enter(t)
			p.do(t, "LOCK job 30s OWNER me")
			p.want(t, tt.want)
			s.enter(t).do(t, "LOCK job 30s OWNER me")
			if who, set := s.count("ACL WHOAMI"), s.count("SET job x NX XX"); who != tt.asked || set != tt.forName {
				t.Errorf("asked who it is %d times, about the name %d times", who, set)
			}
		})
	}
}

// TestIsAdmin_WithoutACL: where ACL is not there it is asked about another command for
// admins, which before Redis 6 everybody may run.
func TestIsAdmin_WithoutACL(t *testing.T) {
	for _, tt := range []struct {
		lastSave string
		want     bool
	}{
		{":1700000000\r\n", true},
		{"-NOPERM this user has no permissions to run the 'lastsave' command\r\n", false},
	} {
		s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
			if args[0] == "ACL" {
				return "-ERR unknown command 'ACL', with args beginning with: \r\n", true
			}
			return tt.lastSave, args[0] == "LASTSAVE"
		})
		a := s.enter(t).asker()
		if admin, err := a.IsAdmin(t.Context()); admin != tt.want || err != nil {
			t.Errorf("%q: %v, %v", tt.lastSave, admin, err)
		}
	}
}
