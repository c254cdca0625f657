package quorum

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const tagLength = 16 // of a hold's id: the tag, a dot, and the attempt

// requestTag is a request id as the nodes know it: the same for the same name, owner and id only.
func requestTag(h locks.Holder, req string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s%s%s", h.DB, len(h.Name), len(h.Owner), h.Name, h.Owner, req))
	return base32.StdEncoding.EncodeToString(sum[:])[:tagLength]
}

// newHold is the id of a new attempt's hold, with the tag of the request if it has an id.
func (s *Store) newHold(r locks.LockRequest) string {
	if r.Req == "" {
		return s.newEpoch(r.Open) // the hold of a new grant names the first epoch of its lease
	}
	return requestTag(locks.Holder{Key: r.Key, Owner: r.Owner}, r.Req) + "." + s.set.Opts.Random.ID()
}

// holdTag is the tag of a hold, empty if it has none.
func holdTag(id string) string {
	if len(id) > tagLength && id[tagLength] == '.' {
		return id[:tagLength]
	}
	return ""
}

// requestOf is the same for all holds that one request took.
func requestOf(id string) string { return cmp.Or(holdTag(id), id) }

// countHolds counts holds as nodes do: those of one request are one.
func countHolds(holds []string) int {
	n := len(holds)
	for i, id := range holds {
		if t := holdTag(id); t != "" && slices.ContainsFunc(holds[:i], hasTag(t)) {
			n--
		}
	}
	return n
}

// holdsOfRequest are the holds of the request with this tag, if there are any; else those of the
// request that took the last of these.
func holdsOfRequest(tag string, holds []string) []string {
	last := holds[len(holds)-1:]
	if tag == "" || !slices.ContainsFunc(holds, hasTag(tag)) {
		tag = holdTag(last[0])
	}
	if tag == "" {
		return last
	}
	var all []string
	for _, id := range holds {
		if holdTag(id) == tag {
			all = append(all, id)
		}
	}
	return all
}

func hasTag(tag string) func(id string) bool {
	return func(id string) bool { return holdTag(id) == tag }
}
