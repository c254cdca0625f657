package lockcmd

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// TestLockctl_Adopted: an adopted lock shows its client's value or field where owners are shown, and says which it is.
func TestLockctl_Adopted(t *testing.T) {
	for _, tt := range []struct {
		kind, value, owner, why string
	}{
		{"string", "token-1", locks.NewAdoptedString(&locks.RandSource{}, "token-1"), "job is held 2 times by the value token-1 (adopted), fence 7"},
		{"string", "", locks.NewAdoptedString(&locks.RandSource{}, ""), `job is held 2 times by the value "" (adopted), fence 7`},
		{"sorted set", "token-1", locks.NewAdoptedSorted(&locks.RandSource{}, "token-1"), "job is held 2 times by the token token-1 (adopted), fence 7"},
		{"hash", "my id:1", locks.NewAdoptedHash("my id:1"), `job is held 2 times by the field "my id:1" (adopted), fence 7`},
	} {
		owner := flat(string(text("owner", tt.value).value))
		adopted := "$7 adopted " + flat(string(text("adopted", tt.kind).value))
		for _, line := range []string{"LOCKCTL INFO job", "LOCKCTL LIST", "LOCKCTL FORCE job"} {
			b, c := library(true, 3)
			b.owner = tt.owner
			got := flat(c.answer(t, line))
			if !strings.Contains(got, "$5 owner "+owner+"$5 fence :7 $5 holds") || !strings.Contains(got, "$5 votes :2 "+adopted) || strings.Contains(got, "lpa") {
				t.Errorf("%s of %q: %q", line, tt.value, got)
			}
			if line == "LOCKCTL INFO job" && !strings.Contains(got, "$4 says $4 held $5 owner "+owner+"$5 fence :7 $12 remaining-ms :1000 "+adopted) {
				t.Errorf("the node of %q: %q", tt.value, got)
			}
		}
		b, c := library(true, 2)
		b.owner = tt.owner
		if got := c.answer(t, "LOCKCTL WHY job"); !strings.Contains(got, tt.why) || strings.Contains(got, "lpa") {
			t.Errorf("WHY of %q: %s", tt.value, got)
		}
		b, c = library(false, 2)
		b.owner = tt.owner
		for _, line := range []string{"LOCKCTL INFO job", "LOCKCTL LIST", "LOCKCTL WHY job"} {
			if got := c.answer(t, line); tt.value != "" && strings.Contains(got, tt.value) || strings.Contains(got, "lpa") {
				t.Errorf("%s shows %q to a user who is no admin: %q", line, tt.value, got)
			}
		}
	}
}

// TestLockctl_Fence: only of the grant that is there, with that value, field or owner, or of the reader that is called so.
func TestLockctl_Fence(t *testing.T) {
	for _, owner := range []string{"me", locks.NewAdoptedString(&locks.RandSource{}, "me"), locks.NewAdoptedHash("me")} {
		for _, tt := range []struct {
			line  string
			proto int
			want  string
			asked []string
		}{
			{"LOCKCTL FENCE job me", 2, ":7 ", []string{"read 0/job"}},
			{"lockctl fence job me", 3, ":7 ", []string{"read 0/job"}},
			{"LOCKCTL FENCE job you", 2, "$-1 ", []string{"read 0/job", "read 0/job you"}},
			{"LOCKCTL FENCE job you", 3, "_ ", []string{"read 0/job", "read 0/job you"}},
			{"LOCKCTL FENCE free me", 3, "_ ", []string{"read 0/free", "read 0/free me"}},
			{"LOCKCTL FENCE job reader", 2, ":6 ", []string{"read 0/job", "read 0/job reader"}},
			{"LOCKCTL FENCE job " + strings.Repeat("r", locks.MaxOwner+1), 2, "$-1 ", []string{"read 0/job"}},
		} {
			b, c := library(false, tt.proto)
			b.owner = owner
			if got := flat(c.answer(t, tt.line)); got != tt.want {
				t.Errorf("%s of %q in protocol %d: %q, not %q", tt.line, owner, tt.proto, got, tt.want)
			}
			if !slices.Equal(b.asked, tt.asked) {
				t.Errorf("%s asked %q", tt.line, b.asked)
			}
		}
	}
	b, c := library(true, 2)
	c.conn.(*fakeConn).mayNot = errors.New("NOPERM no")
	if got := c.answer(t, "LOCKCTL FENCE job me"); got != "-NOPERM no\r\n" || len(b.asked) != 0 {
		t.Errorf("without the right to lock: %q, asked %q", got, b.asked)
	}
}

// TestVerbs_RefuseOwnersOfAdoptedLocks: whoever could name one could release in its name.
func TestVerbs_RefuseOwnersOfAdoptedLocks(t *testing.T) {
	owner := locks.NewAdoptedHash("me")
	for _, line := range []string{"UNLOCK job " + owner, "UNLOCK job " + owner + " FENCE 7", "RENEW job 30s " + owner, "LOCK job 30s OWNER " + owner} {
		args := words(line)
		var err error
		switch args[0][0] {
		case 'U':
			_, err = ParseUnlock(args)
		case 'R':
			_, err = Limits{}.WithDefaults().ParseRenew(args)
		default:
			_, err = Limits{}.WithDefaults().ParseLock(args)
		}
		if !errors.Is(err, errAdoptedOwner) {
			t.Errorf("%q: %v", line, err)
		}
	}
}
