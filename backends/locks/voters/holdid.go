package voters

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const tagLength = 16 // of a hold's id: the tag, a dot, and the attempt

// UnknownHolds stands for the number of holds left on a node that has them under another fence than their grant's: it
// may lack some.
const UnknownHolds = -1

// RequestTag is a request id as the nodes know it: the same for the same lock, owner and id only.
func RequestTag(h locks.Holder, req string) string {
	text := fmt.Appendf(nil, "%d %d %d %s%s%s", h.DB, len(h.Name), len(h.Owner), h.Name, h.Owner, req)
	if h.Reader != "" {
		text = append([]byte("reads "), text...)
	}
	sum := sha256.Sum256(text)
	return base32.StdEncoding.EncodeToString(sum[:])[:tagLength]
}

// HoldTag is the tag of a hold, empty if it has none.
func HoldTag(id string) string {
	if len(id) > tagLength && id[tagLength] == '.' {
		return id[:tagLength]
	}
	return ""
}

// RequestOf is the same for all holds that one request took.
func RequestOf(id string) string { return cmp.Or(HoldTag(id), id) }

// CountHolds counts holds as nodes do: those of one request are one.
func CountHolds(holds []string) int {
	n := len(holds)
	for i, id := range holds {
		if t := HoldTag(id); t != "" && slices.ContainsFunc(holds[:i], HasTag(t)) {
			n--
		}
	}
	return n
}

// HoldsOfRequest are the holds of the request with this tag, if there are any; else those of the
// request that took the last of these.
func HoldsOfRequest(tag string, holds []string) []string {
	last := holds[len(holds)-1:]
	if tag == "" || !slices.ContainsFunc(holds, HasTag(tag)) {
		tag = HoldTag(last[0])
	}
	if tag == "" {
		return last
	}
	var all []string
	for _, id := range holds {
		if HoldTag(id) == tag {
			all = append(all, id)
		}
	}
	return all
}

// HasTag returns a function that reports whether a hold has this tag.
func HasTag(tag string) func(id string) bool {
	return func(id string) bool { return HoldTag(id) == tag }
}
