package embedded

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// version is that of the Redis that miniredis follows, as its HELLO has it.
const version = "8.4.0"

// answer is the reply to a command that miniredis lacks, or would answer wrongly; nil: miniredis runs it.
func (s *Server) answer(c *conn, p *server.Peer, cmd string, args []string) []byte {
	switch cmd {
	case "COMMAND":
		return commands().answerCommand(c.proto, args)
	case "INFO":
		return appendText(nil, s.info(args), c.proto)
	case "CLIENT":
		return s.client(c, args)
	case "HELLO":
		return s.hello(c, p, args)
	case "CONFIG":
		return s.config(c.proto, args)
	case "CLUSTER":
		return resp.AppendError(nil, "ERR This instance has cluster support disabled")
	case "ROLE":
		return resp.AppendArray(resp.AppendInt(resp.AppendBulkString(resp.AppendArray(nil, 3), "master"), 0), 0)
	case "LASTSAVE":
		return resp.AppendInt(nil, s.started.Unix())
	case "ACL", "LATENCY", "MODULE", "SLOWLOG":
		return watchesNothing(cmd, args)
	case "LOCK", "RENEW", "UNLOCK", "LOCKALL", "RENEWALL", "UNLOCKALL", "LOCKCTL": // which the proxy forwards in a transaction, to abort it
		return resp.AppendError(nil, "ERR unknown command '"+cmd+"'")
	}
	return nil
}

// watchesNothing answers commands about modules, users and slow commands: there are no modules, no users but the default one,
// and slow commands are not recorded.
func watchesNothing(cmd string, args []string) []byte {
	if len(args) == 0 {
		return wrongNumber(cmd)
	}
	switch sub := strings.ToUpper(args[0]); cmd + " " + sub {
	case "SLOWLOG GET", "LATENCY LATEST", "LATENCY HISTORY", "MODULE LIST":
		return resp.AppendArray(nil, 0)
	case "SLOWLOG LEN", "LATENCY RESET":
		return resp.AppendInt(nil, 0)
	case "SLOWLOG RESET":
		return ok()
	case "ACL WHOAMI":
		return resp.AppendBulkString(nil, "default")
	default:
		return unknownSubcommand(cmd, sub)
	}
}

func unknownSubcommand(cmd, sub string) []byte {
	return resp.AppendError(nil, fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%s'. Try %s HELP.", sub, cmd))
}

func wrongNumber(name string) []byte {
	return resp.AppendError(nil, "ERR wrong number of arguments for '"+strings.ToLower(name)+"' command")
}

func ok() []byte { return resp.AppendSimple(nil, "OK") }

// config answers CONFIG GET. There is nothing to set.
func (s *Server) config(proto int, args []string) []byte {
	if len(args) < 2 || !strings.EqualFold(args[0], "GET") {
		return resp.AppendError(nil, "ERR an embedded server has only CONFIG GET, and no settings to change")
	}
	settings := map[string]string{
		"appendonly": "no", "bind": "127.0.0.1", "cluster-enabled": "no", "databases": strconv.Itoa(databases),
		"latency-monitor-threshold": "0", "maxmemory": "0", "maxmemory-policy": "noeviction", "notify-keyspace-events": "",
		"port": s.port, "replica-read-only": "yes", "requirepass": "", "save": "", "slave-read-only": "yes",
		"slowlog-log-slower-than": "-1", "timeout": "0",
	}
	var found fields
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		for _, pattern := range args[1:] {
			if matches, err := path.Match(strings.ToLower(pattern), name); matches && err == nil {
				found = append(found, text(name, settings[name]))
				break
			}
		}
	}
	return found.appendTo(nil, proto)
}

// appendText appends a text for people to read.
func appendText(b []byte, value string, proto int) []byte {
	if proto == 3 {
		return fmt.Appendf(b, "=%d\r\ntxt:%s\r\n", len(value)+4, value)
	}
	return resp.AppendBulkString(b, value)
}

// literal are the arguments of an EVAL that answers with this reply. Maps become lists: a
// script has no others.
func literal(reply []byte) []string {
	text, err := json.Marshal([]any{plain(resp.Decode(reply))})
	if err != nil {
		panic(err) // there are only texts, numbers, lists and false
	}
	return []string{"return cjson.decode(ARGV[1])[1]", "0", string(text)}
}

// plain is a value as JSON is made of it; false is what a script has for nothing.
func plain(v resp.Tree) any {
	switch v.Kind {
	case ':':
		n, _ := strconv.Atoi(v.Text)
		return n
	case '_':
		return false
	case '*', '%', '~':
		all := make([]any, len(v.Elems))
		for i, e := range v.Elems {
			all[i] = plain(e)
		}
		return all
	case '=':
		return strings.TrimPrefix(v.Text, "txt:")
	}
	return v.Text
}
