// Package holdid reads and makes the ids of holds, by which nodes tell them apart: those that one request took have one tag.
package holdid

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const tagLength = 16 // of a hold's id: the tag, a dot, and the attempt

// TagOf is a request id as the nodes know it: the same for the same lock, owner and id only.
func TagOf(h locks.Holder, req string) string {
	text := fmt.Appendf(nil, "%d %d %d %s%s%s", h.DB, len(h.Name), len(h.Owner), h.Name, h.Owner, req)
	if h.Reader != "" {
		text = append([]byte("reads "), text...)
	}
	sum := sha256.Sum256(text)
	return base32.StdEncoding.EncodeToString(sum[:])[:tagLength]
}

// Tag is the tag of a hold, empty if it has none.
func Tag(id string) string {
	if len(id) > tagLength && id[tagLength] == '.' {
		return id[:tagLength]
	}
	return ""
}

// RequestOf is the same for all holds that one request took.
func RequestOf(id string) string { return cmp.Or(Tag(id), id) }

// Count counts holds as nodes do: those of one request are one.
func Count(holds []string) int {
	n := len(holds)
	for i, id := range holds {
		if t := Tag(id); t != "" && slices.ContainsFunc(holds[:i], HasTag(t)) {
			n--
		}
	}
	return n
}

// OfRequest are the holds of the request with this tag, if there are any; else those of the
// request that took the last of these.
func OfRequest(tag string, holds []string) []string {
	last := holds[len(holds)-1:]
	if tag == "" || !slices.ContainsFunc(holds, HasTag(tag)) {
		tag = Tag(last[0])
	}
	if tag == "" {
		return last
	}
	var all []string
	for _, id := range holds {
		if Tag(id) == tag {
			all = append(all, id)
		}
	}
	return all
}

// HasTag returns a function that reports whether a hold has this tag.
func HasTag(tag string) func(id string) bool {
	return func(id string) bool { return Tag(id) == tag }
}
