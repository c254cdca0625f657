package cluster

import (
	"bytes"
	"fmt"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// standaloneInfo is INFO of a server of its own.
func standaloneInfo(reply []byte) []byte {
	if len(reply) == 0 || reply[0] != '$' && reply[0] != '=' {
		return reply
	}
	text := resp.Bulk(reply)
	text = bytes.Replace(text, []byte("redis_mode:cluster"), []byte("redis_mode:standalone"), 1)
	text = bytes.Replace(text, []byte("server_mode:cluster"), []byte("server_mode:standalone"), 1) // Valkey's name for it
	text = bytes.Replace(text, []byte("cluster_enabled:1"), []byte("cluster_enabled:0"), 1)
	b := resp.AppendBulk(nil, text)
	b[0] = reply[0]
	return b
}

// Info is INFO of the first node, with the keys of all.
func Info(parts [][]byte) []byte {
	info := standaloneInfo(parts[0])
	head, rest, ok := bytes.Cut(resp.Bulk(info), []byte("# Keyspace\r\n"))
	if !ok || len(parts) == 1 {
		return info
	}
	var keys, expires, ttl int64
	for _, p := range parts {
		k, e, t := keyspace(resp.Bulk(p))
		keys, expires, ttl = keys+k, expires+e, ttl+t*e
	}
	if _, line, ok := bytes.Cut(rest, []byte("db0:")); ok {
		_, rest, _ = bytes.Cut(line, []byte("\r\n"))
	}
	text := append(bytes.Clone(head), "# Keyspace\r\n"...)
	if keys > 0 {
		text = fmt.Appendf(text, "db0:keys=%d,expires=%d,avg_ttl=%d\r\n", keys, expires, ttl/max(expires, 1))
	}
	b := resp.AppendBulk(nil, append(text, rest...))
	b[0] = info[0]
	return b
}

// keyspace is what INFO says of database 0.
func keyspace(info []byte) (keys, expires, ttl int64) {
	_, line, _ := bytes.Cut(info, []byte("\r\ndb0:"))
	fmt.Sscanf(string(line), "keys=%d,expires=%d,avg_ttl=%d", &keys, &expires, &ttl)
	return keys, expires, ttl
}

// StandaloneHello is HELLO of a server of its own.
func StandaloneHello(reply []byte) []byte {
	return bytes.Replace(reply, []byte("$4\r\nmode\r\n$7\r\ncluster\r\n"), []byte("$4\r\nmode\r\n$10\r\nstandalone\r\n"), 1)
}

// ErrorAbout is an error about a command.
func ErrorAbout(args [][]byte, text string) string {
	return string(resp.AppendError(nil, "ERR "+string(bytes.ToUpper(args[0]))+": "+text))
}
