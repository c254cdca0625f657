package commands

import (
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// kind says who handles a command, and on which connection it travels.
type kind uint8

const (
	forward   kind = iota // to the upstream, on whatever connection the session is on
	verb                  // LOCK, RENEW, UNLOCK, LOCKCTL: ours
	auth                  // changes who the client is
	hello                 // changes the protocol, and maybe who the client is
	selectDB              // changes the database
	reset                 // forgets everything the client said
	quit                  // the last command
	client                // CLIENT: by subcommand
	multi                 // begins a transaction
	execTx                // ends one: EXEC, DISCARD
	watch                 // begins to watch
	unwatch               // ends it
	blocks                // may block: never on a shared connection
	waits                 // waits for what this connection wrote to reach others
	mayBlock              // blocks if it has a BLOCK option
	ownConn               // must not wait behind other clients' commands
	script                // runs a script: may take long
	kills                 // SCRIPT, FUNCTION: KILL must overtake the script it kills; DEBUG is the client's own
	users                 // ACL, CONFIG: may change who may do what
	subscribe             // replies and messages are not one per command
	modules               // MODULE: may change which commands there are
	augmented             // COMMAND, INFO: the reply may have to tell of the proxy too
	web                   // what a browser would send, not a client of Redis
	foreign               // not of Redis 7.0: what it is only the upstream can tell
)

// A known is what is known of a command by its name.
type known struct {
	kind   kind
	family family
}

// kinds are the commands of Redis and ours.
var kinds = withForwarded(map[string]kind{
	"LOCK": verb, "RENEW": verb, "UNLOCK": verb, "LOCKCTL": verb,

	"AUTH": auth, "HELLO": hello, "SELECT": selectDB, "RESET": reset, "QUIT": quit, "CLIENT": client,

	"MULTI": multi, "EXEC": execTx, "DISCARD": execTx, "WATCH": watch, "UNWATCH": unwatch,

	"BLPOP": blocks, "BRPOP": blocks, "BLMOVE": blocks, "BRPOPLPUSH": blocks, "BLMPOP": blocks,
	"BZPOPMIN": blocks, "BZPOPMAX": blocks, "BZMPOP": blocks,
	"WAIT": waits, "WAITAOF": waits,
	"XREAD": mayBlock, "XREADGROUP": mayBlock,

	"EVAL": script, "EVALSHA": script, "FCALL": script, "EVAL_RO": script, "EVALSHA_RO": script, "FCALL_RO": script,
	"SCRIPT": kills, "FUNCTION": kills, "SHUTDOWN": ownConn, "FAILOVER": ownConn, "READONLY": ownConn, "READWRITE": ownConn, "ASKING": ownConn,

	"ACL": users, "CONFIG": users,

	"SUBSCRIBE": subscribe, "PSUBSCRIBE": subscribe, "SSUBSCRIBE": subscribe,
	"UNSUBSCRIBE": subscribe, "PUNSUBSCRIBE": subscribe, "SUNSUBSCRIBE": subscribe,
	"MONITOR": subscribe, "SYNC": subscribe, "PSYNC": subscribe, "REPLCONF": subscribe,

	"MODULE": modules,

	"COMMAND": augmented, "INFO": augmented,

	"POST": web, "HOST:": web,
})

// withForwarded adds the commands that are one request and one reply on any
// connection: whatever is not there.
func withForwarded(special map[string]kind) map[string]known {
	all := map[string]known{}
	for name, k := range special {
		all[name] = known{k, familyOf(name, k, nil)}
	}
	for c := range spec.Builtin().All() {
		if name := strings.ToUpper(c.Name); !strings.Contains(name, "|") {
			k := special[name] // forward, if it is not special
			all[name] = known{k, familyOf(name, k, c)}
		}
	}
	return all
}

// longestName bounds the names that kindOf has to fold.
const longestName = 24

// kindOf looks a command up by its name, in any case. It does not allocate.
func kindOf(name []byte) kind { return lookUp(name).kind }

// lookUp is kindOf and the family.
func lookUp(name []byte) known {
	if len(name) > longestName {
		return known{kind: foreign}
	}
	var up [longestName]byte
	for i, b := range name {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		up[i] = b
	}
	k, ok := kinds[string(up[:len(name)])]
	if !ok {
		return known{kind: foreign}
	}
	return k
}

// changesUsers says that an ACL or CONFIG may change who gets in.
func changesUsers(args [][]byte) bool {
	if len(args) < 2 {
		return false
	}
	if resp.Is(args[0], "ACL") {
		return resp.Is(args[1], "SETUSER") || resp.Is(args[1], "DELUSER") || resp.Is(args[1], "LOAD")
	}
	return resp.Is(args[1], "SET") && slices.ContainsFunc(args[2:], func(a []byte) bool { return resp.Is(a, "REQUIREPASS") })
}

// changesClient says that commands of a kind may change who the client is, or how it is
// answered.
func changesClient(k kind) bool { return k == auth || k == hello || k == selectDB || k == client }

// hasBlock finds the BLOCK option of XREAD and XREADGROUP, which comes before
// STREAMS.
func hasBlock(args [][]byte) bool {
	for _, a := range args[1:] {
		if resp.Is(a, "BLOCK") {
			return true
		}
		if resp.Is(a, "STREAMS") {
			return false
		}
	}
	return false
}
