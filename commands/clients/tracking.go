package clients

import (
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// KeepsReplies reports whether a client may keep the reply to a read of one of keys until it is told of a change, by
// the reply to its CLIENT TRACKINGINFO. One that tells nothing does not exclude it.
func KeepsReplies(info []byte, keys []string) bool {
	fields, ok := resp.Elements(info)
	if !ok || len(fields) < 6 {
		return true
	}
	flags, prefixes := texts(fields[1]), texts(fields[5])
	switch {
	case slices.Contains(flags, "off"):
		return false
	case slices.Contains(flags, "optin"):
		return slices.Contains(flags, "caching-yes")
	case !slices.Contains(flags, "bcast"):
		return true
	}
	return slices.ContainsFunc(keys, func(key string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
}

// texts are the elements of a reply, all of them strings.
func texts(reply []byte) (all []string) {
	elements, _ := resp.Elements(reply)
	for _, e := range elements {
		if e[0] == '+' {
			all = append(all, strings.TrimSuffix(string(e[1:]), "\r\n"))
		} else {
			all = append(all, string(resp.Bulk(e)))
		}
	}
	return all
}
