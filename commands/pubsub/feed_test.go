package pubsub

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands/spec"
)

// TestSubscriberModeReply: with subscriptions, in RESP2, PING is answered otherwise and other commands
// are refused, unless the upstream has something else to complain of.
func TestSubscriberModeReply(t *testing.T) {
	for command, want := range map[string]string{
		"PING": "*2\r\n$4\r\npong\r\n$0\r\n\r\n", "ping hello": "*2\r\n$4\r\npong\r\n$5\r\nhello\r\n", "PING a b": "",
		"GET key": "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n",
		"GET":     "", "NO-SUCH": "",
	} {
		args := words(command)
		if got := string(SubscriberModeReply(spec.Builtin().Lookup(args), args)); got != want {
			t.Errorf("%s: %q", command, strings.TrimSpace(got))
		}
	}
}

// TestFeed_Unused: the Feed of a client that has asked for nothing brings nothing.
func TestFeed_Unused(t *testing.T) {
	f := NewFeed(nil, nil)
	f.Close()
	if f.Used() || f.Active() || f.Monitors() || f.SubscriberMode(2) || f.Counts() != [3]int{} {
		t.Error("it is active")
	}
}
