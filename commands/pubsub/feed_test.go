package pubsub

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// TestFeed_Refusal: with subscriptions, in RESP2, PING is answered otherwise and other commands
// are refused, unless the upstream has something else to complain of. A client that monitors may not use keys.
func TestFeed_Refusal(t *testing.T) {
	const onlyMessages = "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n"
	const noKeys = "-ERR Replica can't interact with the keyspace\r\n"
	subscribed, monitors := Feed{subscriber: newSubscriber(nil, nil, &relay.Redirector{})}, Feed{monitor: &monitor{}}
	subscribed.subscriber.confirmed.Note(words("SUBSCRIBE c"))
	for _, tt := range []struct {
		feed          *Feed
		proto         int
		command, want string
	}{
		{&subscribed, 2, "PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n"}, {&subscribed, 2, "ping hello", "*2\r\n$4\r\npong\r\n$5\r\nhello\r\n"},
		{&subscribed, 2, "PING a b", ""}, {&subscribed, 2, "GET key", onlyMessages}, {&subscribed, 2, "GET", ""}, {&subscribed, 2, "NO-SUCH", ""},
		{&subscribed, 3, "GET key", ""},
		{&monitors, 2, "GET key", noKeys}, {&monitors, 3, "SET key value", noKeys}, {&monitors, 2, "DBSIZE", noKeys}, {&monitors, 2, "EVAL text 0", noKeys},
		{&monitors, 2, "publish c message", noKeys}, {&monitors, 2, "GET", ""}, {&monitors, 2, "PING", ""}, {&monitors, 2, "MULTI", ""}, {&monitors, 2, "SCRIPT LOAD text", ""},
	} {
		args := words(tt.command)
		if got := string(tt.feed.Refusal(tt.proto, spec.Builtin().Lookup(args), args)); got != tt.want {
			t.Errorf("%s, RESP%d: %q", tt.command, tt.proto, strings.TrimSpace(got))
		}
	}
}

// TestFeed_Unused: the Feed of a client that has asked for nothing brings nothing.
func TestFeed_Unused(t *testing.T) {
	f := NewFeed(nil, nil)
	f.Close()
	if f.Used() || f.Active() || f.Monitors() || f.Refusal(2, spec.Builtin().Lookup(words("GET key")), words("GET key")) != nil || f.Counts() != [3]int{} {
		t.Error("it is active")
	}
}
