package lockcmd

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/observe"
)

// TestLockctl_Adopt: what is observed, in both protocols, and for admins only.
func TestLockctl_Adopt(t *testing.T) {
	o, err := observe.New(observe.Options{All: true, MinTTL: time.Millisecond, MaxTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"lock:1", "job:1"} {
		o.Command(&observe.Client{ID: 1}, observe.Plain, 0, 2, [][]byte{[]byte("SETNX"), []byte(key), []byte("v")}).Reply([]byte(":1\r\n"))
	}
	head := func(proto string) string {
		return proto + "all-traffic $3 yes $7 seconds :0 $4 keys :2 $4 full $2 no $15 unseen-in-multi :0 $21 unseen-in-passthrough :0 $22 keyevent-subscriptions :0 $4 rows *1 "
	}
	for _, tt := range []struct {
		line  string
		admin bool
		proto int
		o     *observe.Observer
		want  string
	}{
		{"LOCKCTL ADOPT MATCH lock:*", true, 2, o, head("*16 $11 ") + "*50 $4 keys $6 lock:* $2 db :0 $7 example $6 lock:1 "},
		{"LOCKCTL ADOPT MATCH lock:*", true, 3, o, head("%8 $11 ") + "%25 $4 keys $6 lock:* "},
		{"lockctl adopt", false, 2, o, "-NOPERM this user has no permissions to run the 'lockctl|adopt' command"},
		{"LOCKCTL ADOPT", true, 2, nil, "-ERR no keys are looked at here; start the proxy with --adopt-report, or name keys with --adopt 'PATTERN mode=observe'"},
		{"LOCKCTL ADOPT MATCH", true, 2, o, "-ERR option MATCH needs a value; usage: LOCKCTL ADOPT [MATCH glob]"},
		{"LOCKCTL ADOPT COUNT 5", true, 2, o, "-ERR unknown option 'COUNT'; usage: LOCKCTL ADOPT [MATCH glob]"},
	} {
		_, c := library(tt.admin, tt.proto)
		c.verbs.opt.Observer = tt.o
		if got := flat(c.answer(t, tt.line)); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s\nwant %s", tt.line, got, tt.want)
		}
	}
}
