package tx

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// TestChanges: what commands change of a client in database 4, with RESP2, once they are executed.
func TestChanges(t *testing.T) {
	ofCommand := map[string]func(upstream.Identity, [][]byte) Changes{
		"AUTH": AuthChanges, "HELLO": HelloChanges, "SELECT": SelectChanges, "CLIENT": ClientChanges,
	}
	for command, want := range map[string]string{
		"AUTH secret":                            "/secret db 4 RESP2, for life",
		"AUTH ann secret":                        "ann/secret db 4 RESP2, for life",
		"AUTH ann secret more":                   ", for life",
		"HELLO":                                  "me/mine db 4 RESP2, for life",
		"HELLO 3":                                "me/mine db 4 RESP3, for life",
		"HELLO 3 AUTH ann secret":                "ann/secret db 4 RESP3, for life",
		"HELLO 2 SETNAME worker":                 "me/mine db 4 RESP2 named worker, for life",
		"HELLO 4":                                ", for life",
		"SELECT 7":                               "db 7, for life",
		"SELECT x":                               ", for life",
		"CLIENT SETNAME worker":                  "named worker, for life",
		"CLIENT NO-EVICT ON":                     ", for life",
		"CLIENT ID":                              "",
		"CLIENT TRACKING ON REDIRECT 5":          ", for life",
		"CLIENT KILL ID 5":                       "",
		"CLIENT":                                 ", for life",
		"HELLO 3 AUTH ann secret SETNAME worker": "ann/secret db 4 RESP3 named worker, for life",
	} {
		args := words(command)
		c := ofCommand[string(args[0])](upstream.Identity{User: "me", Secret: "mine", DB: 4, Proto: 2}, args)
		if got := described(c); got != want {
			t.Errorf("%s changes %q, not %q", command, got, want)
		}
	}
	if c := ClientChanges(upstream.Identity{}, append(words("CLIENT SETNAME"), []byte{})); c.Name == nil {
		t.Error("SETNAME with an empty name changes nothing")
	}
}

func described(c Changes) (text string) {
	if id := c.ID; id != nil {
		text = fmt.Sprintf("%s/%s db %d RESP%d", id.User, id.Secret, id.DB, id.Proto)
	}
	if c.DB != nil {
		text += fmt.Sprintf("db %d", *c.DB)
	}
	if c.Name != nil {
		text = strings.TrimSpace(text + " named " + string(c.Name))
	}
	if c.PinnedForLife {
		text += ", for life"
	}
	return text
}

func words(line string) (args [][]byte) {
	for _, word := range strings.Fields(line) {
		args = append(args, []byte(word))
	}
	return args
}
